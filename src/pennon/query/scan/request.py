"""The request of a scan, checked before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from pennon.display import DisplayedFields
from pennon.errors import ColumnNotFound, InvalidArgument
from pennon.format.rows import ADDRESS, ROW_ID
from pennon.format.snapshot import Snapshot
from pennon.query.filter.opaque_text import check_expression
from pennon.wording import did_you_mean

METADATA_COLUMNS = (ROW_ID, ADDRESS)
# Names of columns, or new names and their SQL expressions.
ColumnsLike = Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class ColumnOrdering(DisplayedFields):
    """A column to sort by, like pylance's class of the same name."""

    column_name: str
    ascending: bool = True
    nulls_first: bool = False

    @classmethod
    def of(cls, given: object) -> ColumnOrdering:
        """From a column's name, or from pylance's class."""
        if isinstance(given, str):
            return cls(given)
        name = getattr(given, "column_name", None)
        if not isinstance(name, str):
            raise InvalidArgument(
                f"order_by takes names of columns and ColumnOrdering, not {given!r}",
                'Write order_by=["price"], or order_by=[pennon.ColumnOrdering("price", ascending=False)]',
            )
        return cls(name, bool(getattr(given, "ascending", True)), bool(getattr(given, "nulls_first", False)))


class ScanOptions(TypedDict, total=False):
    """Options of a scan apart from filter and columns, with pylance's names.

    limit: at most this many rows.
    offset: skip this many rows first.
    order_by: sort by these columns; a name is ascending with NULLs last, `pennon.ColumnOrdering` is any other order.
    fragments: ids of the fragments to read, in table order; all of them by default.
    fast_search: skip the fragments that the indices of the filter do not cover.
    include_deleted_rows: return deleted rows too, with a NULL `_rowid`; needs `with_row_id`, and uses no index.
    with_row_id: add the column `_rowid`.
    with_row_address: add the column `_rowaddr`.
    """

    limit: int | None
    offset: int | None
    order_by: Sequence[str | ColumnOrdering] | None
    fragments: Iterable[int] | None
    fast_search: bool
    include_deleted_rows: bool
    with_row_id: bool
    with_row_address: bool


@dataclass(frozen=True)
class ScanRequest:
    """The rows and columns to read. `columns=None` means every column; `expressions` are computed instead of
    columns."""

    filter: str | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    with_row_id: bool = False
    with_row_address: bool = False
    batch_size: int | None = None
    expressions: tuple[tuple[str, str], ...] | None = None
    offset: int | None = None
    order_by: tuple[ColumnOrdering, ...] = ()
    fragments: tuple[int, ...] | None = None
    fast_search: bool = False
    include_deleted_rows: bool = False

    @classmethod
    def of(
        cls, filter: str | None, columns: object = None, options: Mapping[str, Any] | None = None, **more: Any
    ) -> ScanRequest:
        """A request from the arguments of a user.

        Raises:
            InvalidArgument: an option that scans do not have, or a value of the wrong type.
        """
        given = {name: value for name, value in (options or {}).items() if value is not None}
        unknown = sorted(given.keys() - ScanOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(ScanOptions.__annotations__)
            raise InvalidArgument(f"scans take no option {unknown[0]!r}", f"They take: {known}")
        for name in ("fast_search", "include_deleted_rows", "with_row_id", "with_row_address"):
            if not isinstance(given.get(name, False), bool):
                raise InvalidArgument(f"{name} must be True or False, not {given[name]!r}")
        if "order_by" in given:
            given["order_by"] = tuple(map(ColumnOrdering.of, listed("order_by", given["order_by"], '["price"]')))
        if "fragments" in given:
            given["fragments"] = tuple(listed("fragments", given["fragments"], "[0, 2]"))
        if isinstance(columns, Mapping):
            given["expressions"] = _expressions(columns)
        elif columns is not None:
            given["columns"] = column_names(columns)
        return cls(filter, **given, **more)

    @property
    def is_plain(self) -> bool:
        """Whether rows may be fetched by their addresses: stored columns, in table order, from the first on."""
        return (
            not self.with_row_id
            and not self.with_row_address
            and not self.offset
            and not self.order_by
            and self.expressions is None
            and (self.columns is None or is_plain(self.columns))
        )

    @property
    def is_ordered(self) -> bool:
        """Whether only a single scan can return the rows: their number or order depends on all of them."""
        return bool(self.offset or self.order_by)

    def options(self, checked: bool) -> dict[str, Any]:
        """The scanner's options; a filter that indices answered exactly is not checked again."""
        columns = None if self.columns is None else list(self.columns)
        return {
            "columns": columns if self.expressions is None else dict(self.expressions),
            "filter": None if checked else self.filter,
            "with_row_id": self.with_row_id,
            "batch_size": self.batch_size,
        }


def check_request(snapshot: Snapshot, request: ScanRequest) -> None:
    """Check a request for this table.

    Raises:
        ColumnNotFound: the table lacks a column that is to be returned or sorted by.
        InvalidArgument: a number out of range, an unknown fragment, or options that exclude each other.
    """
    for column in request.columns or ():
        if column not in METADATA_COLUMNS:
            _check_column(snapshot, column)
    for ordering in request.order_by:
        _check_column(snapshot, ordering.column_name)
    for label, value, least in (
        ("limit", request.limit, 0),
        ("offset", request.offset, 0),
        ("batch_size", request.batch_size, 1),
    ):
        if value is not None and not (_is_integer(value) and value >= least):
            raise InvalidArgument(f"{label} must be a whole number of at least {least}, not {value!r}")
    for fragment in request.fragments or ():
        if not _is_integer(fragment) or fragment not in snapshot.manifest.fragments:
            known = ", ".join(map(str, list(snapshot.manifest.fragments)[:20]))
            raise InvalidArgument(f"table {snapshot.uri} has no fragment {fragment!r}", f"Its fragments are: {known}")
    if request.include_deleted_rows and not request.with_row_id:
        raise InvalidArgument(
            "include_deleted_rows needs with_row_id", "Pass with_row_id=True: deleted rows have a NULL _rowid"
        )


def column_names(given: object) -> tuple[str, ...]:
    """The columns to return, as names."""
    names = listed("columns", given, '["id", "price"]')
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(f"columns takes names of columns, not {name!r}", 'Write columns=["id", "price"]')
    return tuple(names)


def listed(label: str, given: object, example: str) -> list[Any]:
    """The items of a list argument."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgument(f"{label} takes a list, not {given!r}", f"Write {label}={example}")
    return list(given)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def is_plain(columns: tuple[str, ...]) -> bool:
    """Whether these are stored top-level columns; fetched by address, others have another shape or fail."""
    return bool(columns) and not any("." in column or column in METADATA_COLUMNS for column in columns)


def _expressions(columns: Mapping[Any, Any]) -> tuple[tuple[str, str], ...]:
    for name, expression in columns.items():
        if not isinstance(name, str) or not isinstance(expression, str):
            raise InvalidArgument(
                f"columns takes SQL expressions by name, not {name!r}: {expression!r}",
                'Write columns={"double": "price * 2"}',
            )
        check_expression(expression)
    return tuple(columns.items())


def _check_column(snapshot: Snapshot, column: str) -> None:
    if snapshot.columns.find(column) is None:
        known = [c.path for c in snapshot.columns]
        raise ColumnNotFound(f"table {snapshot.uri} has no column {column!r}", did_you_mean(column, known))


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
