"""The options of reads and writes of the data source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pennon.errors import InvalidArgument
from pennon.format.appended import Updates
from pennon.format.store import Location
from pennon.format.streamed_batches import UnknownBatch
from pennon.wording import did_you_mean

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

# Spark passes keys in lower case.
STORAGE = "storage."
# The same for Pennon. In its plans, Spark hides options with "secret" in their name, and does not recognize other names
# of credentials.
SECRET_STORAGE = f"{STORAGE}secret."
READING = (
    "version",
    "columns",
    "filter",
    "with_row_id",
    "with_row_address",
    "batch_size",
    "rows_per_partition",
)
WRITING = ("max_rows_per_file", "vector_columns", "enable_stable_row_ids", "txn_app_id", "txn_version")
STREAM_READING = ("starting_version", "max_versions_per_trigger", "max_rows_per_trigger", "on_update")
STREAM_WRITING = ("maintain", "unknown_batch")
# Spark passes these to sinks of streams.
SPARK_STREAM = ("checkpointlocation", "queryname")
# Where a stream may start, other than at the number of a version.
LATEST, SNAPSHOT = "latest", "snapshot"
# Batches of a stream between two upkeeps of the indices.
MAINTAIN_EVERY = 20
VIEW = "In SQL, CREATE TEMPORARY VIEW name USING pennon OPTIONS (path '...')"


@dataclass(frozen=True)
class ReadOptions:
    location: Location
    version: int | None = None
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    batch_size: int | None = None
    rows_per_partition: int | None = None


@dataclass(frozen=True)
class WriteOptions:
    location: Location
    max_rows_per_file: int = 1 << 20
    vector_columns: tuple[tuple[str, int], ...] = ()
    enable_stable_row_ids: bool = False
    txn_app_id: str | None = None
    txn_version: int | None = None


@dataclass(frozen=True)
class StreamOptions:
    """Those of a stream that writes, beyond the ones of every write. `maintain`: batches from one upkeep of the indices
    to the next; None for no upkeep."""

    write: WriteOptions
    maintain: int | None = None
    unknown_batch: UnknownBatch = UnknownBatch.FAIL


@dataclass(frozen=True)
class StreamReadOptions:
    """Those of a stream that reads, beyond the ones of every read."""

    read: ReadOptions
    starting_version: int | str = LATEST
    max_versions: int | None = None
    max_rows: int | None = None
    on_update: Updates = Updates.FAIL


# Options of other formats, and what to do instead.
OF_OTHERS = {
    "partitionoverwritemode": "a table has no partitions. Write the rows of some keys with table.merge",
    "replacewhere": "Use table.merge with when_not_matched_by_source=pennon.Delete(condition)",
    "mergeschema": "Add columns with pylance's add_columns, then append",
    "overwriteschema": 'mode("overwrite") always takes the columns of the rows',
}


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Options of writes are ignored, because a view or a table of Spark has both."""
    location = _location(options)
    return ReadOptions(
        location,
        version=_number(options, "version"),
        columns=_names(options.get("columns")),
        filter=options.get("filter"),
        with_row_id=_flag(options, "with_row_id"),
        with_row_address=_flag(options, "with_row_address"),
        batch_size=_number(options, "batch_size"),
        rows_per_partition=_number(options, "rows_per_partition"),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    location = _location(options)
    app, version = options.get("txn_app_id"), _number(options, "txn_version", least=0)
    if app is not None and not app.strip():
        raise InvalidArgument("the option txn_app_id is empty", "Give the writer a name that stays the same")
    if version is not None and app is None:
        raise InvalidArgument("the option txn_version needs txn_app_id", "Give the writer a name that stays the same")
    for name in ("version", "columns", "filter"):
        if name in options:
            raise InvalidArgument(
                f"the option {name} is for reading; a write goes to the newest version", "Leave it out"
            )
    return WriteOptions(
        location,
        max_rows_per_file=_number(options, "max_rows_per_file") or WriteOptions.max_rows_per_file,
        vector_columns=_vectors(options.get("vector_columns")),
        enable_stable_row_ids=_flag(options, "enable_stable_row_ids"),
        txn_app_id=app,
        txn_version=version,
    )


def stream_read_options(options: Mapping[str, str]) -> StreamReadOptions:
    if "version" in options:
        raise InvalidArgument("a stream reads one version after the other", "Use the option starting_version")
    start = options.get("starting_version", LATEST).strip().lower()
    return StreamReadOptions(
        read_options(options),
        start if start in (LATEST, SNAPSHOT) else _version(start),
        max_versions=_number(options, "max_versions_per_trigger"),
        max_rows=_number(options, "max_rows_per_trigger"),
        on_update=_choice(options, "on_update", Updates, Updates.FAIL),
    )


def stream_write_options(options: Mapping[str, str]) -> StreamOptions:
    if "txn_version" in options:
        raise InvalidArgument("the option txn_version is for batch writes; Spark numbers the batches of a stream")
    unknown = _choice(options, "unknown_batch", UnknownBatch, UnknownBatch.FAIL)
    return StreamOptions(write_options(options), _maintain(options), unknown)


def _maintain(options: Mapping[str, str]) -> int | None:
    """`never`, `auto`, or a number of batches."""
    text = options.get("maintain", "never").strip().lower()
    if text in ("never", "auto"):
        return MAINTAIN_EVERY if text == "auto" else None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument(f"the option maintain must be never, auto or a number of batches, not {text!r}")
    return int(text)


def _location(options: Mapping[str, str]) -> Location:
    known = ("path", *READING, *WRITING, *STREAM_READING, *STREAM_WRITING)
    if "owner" in options:  # Spark's CREATE TABLE adds it, and later passes no options to Python sources
        raise InvalidArgument("Spark's catalog does not support tables of the format pennon", VIEW)
    if "pushdown" in options:
        raise InvalidArgument(
            "there is no option pushdown: Spark applies the filters of one query to later ones of the same DataFrame",
            "Use the option filter, or table.dataframe(filter=...)",
        )
    for name in options:
        if name.lower() in OF_OTHERS:
            raise InvalidArgument(f"there is no option {name!r}", OF_OTHERS[name.lower()])
        if name not in (*known, *SPARK_STREAM) and not name.startswith(STORAGE):
            raise InvalidArgument(f"there is no option {name!r}", did_you_mean(name, (*known, f"{STORAGE}<key>")))
    if not options.get("path"):
        raise InvalidArgument(
            "the address of the table is missing", f"Pass it to load() or save(), or as the option path. {VIEW}"
        )
    storage = {name: value for name, value in options.items() if name.startswith(STORAGE)}
    bare = {name.removeprefix(SECRET_STORAGE).removeprefix(STORAGE): value for name, value in storage.items()}
    return Location.of(options["path"], bare)


def _number(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise InvalidArgument(f"the option {name} must be a whole number from {least}, not {text!r}")
    return int(text)


def _version(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument(
            f"the option starting_version must be a version, {LATEST} or {SNAPSHOT}, not {text!r}",
            f"Use {SNAPSHOT} to read the whole table first",
        )
    return int(text)


def _choice(options: Mapping[str, str], name: str, kind: type[ChoiceT], default: ChoiceT) -> ChoiceT:
    given = options.get(name, default.value).strip().lower()
    if given not in tuple(kind):
        raise InvalidArgument(f"the option {name} must be one of {', '.join(kind)}, not {given!r}")
    return kind(given)


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"the option {name} must be true or false, not {text!r}")
    return text == "true"


def _names(text: str | None) -> tuple[str, ...] | None:
    """`id, name`, or a JSON list where names have commas or spaces at their ends."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = [""]
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) != len(names):
        raise InvalidArgument(
            f"the option columns must name columns, each once, not {text!r}", 'Write "id,name" or ["id", "name"]'
        )
    return tuple(names)


def _vectors(text: str | None) -> tuple[tuple[str, int], ...]:
    """`embedding:128, title_embedding:64`"""
    found: list[tuple[str, int]] = []
    for item in (text or "").split(","):
        name, _, size = item.strip().rpartition(":")
        if item.strip():
            if not name or not size.isdecimal() or int(size) < 1:
                raise InvalidArgument(
                    f"the option vector_columns must list columns with their dimensions, not {item.strip()!r}",
                    "Write embedding:128",
                )
            found.append((name, int(size)))
    return tuple(found)
