"""The places of files that a branch or a shallow clone shares with the table it was made of.

A base path is text from a manifest. It is used only where the table itself could be: in the same kind of store, and
without steps out of the directory it names. pylance resolves a relative one against the working directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlparse

from pennon.errors import PennonError
from pennon.format.store import Location
from pennon.secrets import redact_address


@dataclass(frozen=True, slots=True)
class BasePath:
    """The place of files that a branch or a shallow clone shares with another table. Only below the root of a table
    are there deletion files and indices; other places hold nothing but data files."""

    path: str
    is_dataset_root: bool


def why_refused(table: Location, number: int, base: BasePath | None) -> str | None:
    """Why files below a base path of a table are not read, None where they are."""
    if base is None:
        return f"base path {number} is not recorded"
    shown = redact_address(base.path[:200])
    if not base.is_dataset_root:
        return f"base path {number} is not the root of a table: {shown!r}"
    if _kind_of_store(base.path) != _kind_of_store(table.uri):
        return f"base path {number} is on another kind of store than the table: {shown!r}"
    if "\0" in base.path or ".." in unquote(unquote(base.path)).replace("\\", "/").split("/"):
        return f"base path {number} leads out of the directory it names: {shown!r}"
    try:
        Location.of(base.path, table.storage_options)
    except (PennonError, ValueError) as error:
        return f"base path {number} is not an address: {error}"
    return None


def base_location(table: Location, base: BasePath) -> Location:
    """The table that files are shared with; it has the credentials of this one."""
    return Location.of(base.path, table.storage_options)


def _kind_of_store(uri: str) -> str:
    """The scheme: all of this machine's file system is one, and so is S3 with or without a lock table."""
    try:
        scheme = urlparse(uri).scheme.lower()
    except ValueError:
        return "none"
    return "file" if len(scheme) <= 1 else scheme.partition("+")[0]
