"""The types of what users pass to verbs, checked before anything is opened or read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

import numpy as np

from pennon.engine import is_frame
from pennon.errors import InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.query.filter.reading import FilterLike, filter_text, read_filter
from pennon.query.scan.request import listed

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{unit}ib": 1 << 10 * power for power, unit in enumerate("kmgt", 1)},
    **{f"{unit}b": 1000**power for power, unit in enumerate("kmgt", 1)},
}
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(sorted(_UNITS, reverse=True))})", re.IGNORECASE | re.ASCII)


def check_texts(**given: object) -> None:
    """Names and expressions: each must be text."""
    for label, value in given.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"{label} must be text, not {_shown(value)}", f'Write {label}="..."')


def check_flags(**given: object) -> None:
    """Each must be True or False: any other value would count as one of them."""
    for label, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise InvalidArgument(f"{label} must be True or False, not {_shown(value)}")


def check_numbers(least: float = 0, **given: object) -> None:
    """Each must be a number of at least `least`."""
    for label, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value >= least:
            raise InvalidArgument(f"{label} must be a number of at least {least}, not {_shown(value)}")


def check_whole_numbers(least: int = 0, **given: object) -> None:
    """Each must be None, or a whole number of at least `least`."""
    for label, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InvalidArgument(f"{label} must be a whole number of at least {least}, not {_shown(value)}")


def check_names(**given: object) -> None:
    """Each must be None, or a list of names."""
    for label, value in given.items():
        for name in () if value is None else listed(label, value, '["user_id_idx"]'):
            if not isinstance(name, str):
                raise InvalidArgument(f"{label} takes names, not {_shown(name)}", f'Write {label}=["user_id_idx"]')


def condition_sql(where: FilterLike | None, snapshot: Snapshot) -> str | None:
    """The rows to change, as SQL that Lance evaluates."""
    if where is None:
        return None
    return read_filter(filter_text(where, snapshot.schema), snapshot.column_types).sql


def check_is_frame(verb: str, given: object, otherwise: str) -> None:
    """A verb that takes a Spark DataFrame and no other."""
    if not is_frame(given):
        type_ = f"{type(given).__module__}.{type(given).__name__}"
        remedy = f"Make one with spark.createDataFrame(...); {otherwise}"
        raise InvalidArgument(f"{verb} takes a Spark DataFrame, not {type_}", remedy)


def ids_of(label: str, given: object) -> list[int] | None:
    """Ids as Python's own numbers; None stays None."""
    ids = None if given is None else listed(label, given, "[0, 1, 5]")
    for number in ids or ():
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InvalidArgument(f"{label} takes whole numbers, not {_shown(number)}", f"Write {label}=[0, 1, 5]")
    return None if ids is None else [int(number) for number in ids]


def check_durations(**given: object) -> None:
    """Each must be a timedelta."""
    for label, value in given.items():
        if not isinstance(value, timedelta):
            raise InvalidArgument(
                f"{label} must be a timedelta, not {_shown(value)}", f"Write {label}=datetime.timedelta(days=7)"
            )


def bytes_of(label: str, given: object) -> int | None:
    """A number of bytes, also as text with a unit; None stays None."""
    if given is None:
        return None
    if isinstance(given, int | np.integer) and not isinstance(given, bool) and given > 0:
        return int(given)
    parts = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    size = int(float(parts[1]) * _UNITS[parts[2].lower()]) if parts else 0
    if size <= 0:
        raise InvalidArgument(f"{label} must be a number of bytes, not {_shown(given)}", f'Write {label}="4GiB"')
    return size


def address_of(uri: object) -> str:
    """The address of a table as text."""
    if not isinstance(uri, str | os.PathLike):
        remedy = 'Write pennon.open("events.lance"), or pennon.open("s3://bucket/events.lance")'
        raise InvalidArgument(f"the address of a table is text or a path, not {_shown(uri)}", remedy)
    path = os.fspath(cast(str | os.PathLike[str], uri))
    check_texts(uri=path)
    if not path:
        raise InvalidArgument("the address of the table is empty", 'Write pennon.open("events.lance")')
    return path


def storage_of(options: object) -> Mapping[str, str] | None:
    """Storage options: texts by name. Values may be secrets, so none is repeated."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise InvalidArgument(
            f"storage_options is a dict of texts, not {type(options).__name__}",
            'Write storage_options={"region": "eu-central-1"}',
        )
    for key, value in cast(Mapping[Any, Any], options).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(
                f"storage option {key!r} must be text, not {type(value).__name__}", "Write numbers as text, too"
            )
    return cast(Mapping[str, str], options)


def _shown(value: object) -> str:
    """A value in an error message; large ones by their type."""
    return repr(value) if isinstance(value, str | bytes | int | float | None) else f"{type(value).__name__}"
