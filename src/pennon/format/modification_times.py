"""When the objects of a table in S3 were last written to, from the store's own listing.

pylance lists names without times, so pyarrow's client of S3 lists them. It is given the same credentials, and none are
looked for beyond what both clients read themselves (the environment, the role of the machine). Whether both see the
same store is not assumed: `time_of_store` writes an object with pylance, and finds it with pyarrow, or gives no time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

from pyarrow import fs

from pennon.format.index_metadata import INDICES
from pennon.format.store import Location, Store

# Options of pylance under both of its names, and what pyarrow calls them.
NAMES = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "token": "session_token",
    "region": "region",
    "default_region": "region",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "virtual_hosted_style_request": "virtual_hosted",
}
# Those that do not change which objects are seen.
IMMATERIAL = {
    "allow_http",
    "timeout",
    "connect_timeout",
    "client_max_retries",
    "client_retry_timeout",
    "download_retry_count",
}
CONNECT_SECONDS, REQUEST_SECONDS = 5, 30


@dataclass(frozen=True)
class Written:
    """An object's size, and when it was last written to, in seconds of the store's clock."""

    time: float
    size_bytes: int


class ModificationTimes:
    """The objects of one table, as a listing of the store gives them."""

    def __init__(self, client: Any, root: str) -> None:
        self._client, self._root = client, root

    @classmethod
    def of(cls, location: Location) -> ModificationTimes | None:
        """None for stores other than S3, and for options that pyarrow's client does not take."""
        parsed = urlparse(location.uri)
        options = _client_options(location.storage_options or {})
        if parsed.scheme != "s3" or not parsed.netloc or options is None:
            return None
        with suppress(OSError, ValueError, TypeError):
            if "region" not in options and "endpoint_override" not in options:
                options["region"] = fs.resolve_s3_region(parsed.netloc)
            return cls(fs.S3FileSystem(**options), f"{parsed.netloc}/{parsed.path.strip('/')}")
        return None

    def below(self, path: str) -> dict[str, Written]:
        """The object of that path, or those below it; nothing where the store does not list them."""
        with suppress(OSError):
            address = f"{self._root}/{path}"
            [own] = self._client.get_file_info([address])
            found = [own]
            if own.type is not fs.FileType.File:
                found = self._client.get_file_info(fs.FileSelector(address, recursive=True, allow_not_found=True))
            return {
                info.path: Written(info.mtime.timestamp(), info.size)
                for info in found
                if info.type is fs.FileType.File and info.mtime is not None
            }
        return {}


def time_of_store(store: Store, times: ModificationTimes) -> float | None:
    """The time by the store's clock: that of an object written now. None where it cannot be written, or is not listed,
    because the two clients see different stores.

    The object looks like the file of a crashed job, should this process end here.
    """
    directory = f"{INDICES}/{uuid4()}"
    try:
        store.write(f"{directory}/clock", b"clock")
        return max((written.time for written in times.below(f"{directory}/clock").values()), default=None)
    except OSError:
        return None
    finally:
        with suppress(OSError):
            store.delete_directory(directory)


def _client_options(given: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments of pyarrow's client; None where an option has no counterpart."""
    known: dict[str, str] = {}
    for variable in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION"):
        if value := os.environ.get(variable):
            known[NAMES[variable.removeprefix("AWS_").lower()]] = value
    for key, value in given.items():
        plain = key.lower().removeprefix("aws_")
        if plain in NAMES:
            known[NAMES[plain]] = value
        elif plain not in IMMATERIAL:
            return None
    options: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "request_timeout": REQUEST_SECONDS}
    options |= {name: known[name] for name in ("access_key", "secret_key", "session_token", "region") if name in known}
    if "endpoint" in known:
        endpoint = urlparse(known["endpoint"])
        options |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme or "https"}
    options["force_virtual_addressing"] = known.get("virtual_hosted", "").lower() in ("true", "1", "yes")
    return options
