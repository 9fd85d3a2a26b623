"""Finds the columns of a table by the names in filters, as Lance does."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

import pyarrow as pa

from pennon.errors import InvalidFilter
from pennon.format.schema import quote_identifier
from pennon.index.key_spans import Order, order_of
from pennon.query.filter.syntax import Name
from pennon.wording import did_you_mean


class Columns:
    """Column types by path: `user_id`, or `a.b` for a field of a struct, with unusual parts in backticks."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        self.types = types

    def find(self, name: Name) -> tuple[str, Order] | None:
        """The path and the order of a column; None if the name may be something other than one of these columns."""
        path = _path(name.parts)
        if path not in self.types and not name.verbatim:
            path = self._any_case(name.parts)
        if path in self.types:
            return path, order_of(self.types[path])
        parents = (_path(name.parts[:length]) for length in range(1, len(name.parts)))
        if (
            name.parts[0].startswith("_")  # such as _rowid, _rowaddr and _distance
            or any(parent in self.types for parent in parents)
            or any(known.startswith(f"{path}.") for known in self.types)
        ):
            return None
        raise InvalidFilter(
            f"the filter names a column that the table does not have: {path}", did_you_mean(path, self.types)
        )

    def exactly(self, name: Name) -> tuple[str, pa.DataType] | None:
        """The path and the type of a column whose case matches the table's, as required for arguments of functions."""
        path = _path(name.parts)
        return (path, self.types[path]) if path in self.types else None

    def _any_case(self, parts: list[str]) -> str:
        """The path with its first part in the table's case: Lance ignores the case of the first part only."""
        roots = {path.split(".", 1)[0] for path in self.types}
        matching = [root for root in roots if root.translate(_LOWER) == parts[0].translate(_LOWER)]
        return _path(parts) if parts[0] in roots or len(matching) != 1 else _path([matching[0], *parts[1:]])


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def _path(parts: Iterable[str]) -> str:
    return ".".join(map(quote_identifier, parts))
