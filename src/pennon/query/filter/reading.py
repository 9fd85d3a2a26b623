"""Reads a user's filter for one table: the text that Lance evaluates, and the tree that indices answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import InvalidArgument
from pennon.query.filter.expression_sql import expression_sql
from pennon.query.filter.literal_spelling import spelled_for_lance
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import Node

# The filters that users may pass: SQL text, or an expression such as `pyarrow.compute.field("id") > 7`.
FilterLike = str | pc.Expression
# Longer filters are not kept: a list of a million numbers takes as much memory as an index.
REMEMBERED_LENGTH = 2000


@dataclass(frozen=True)
class ReadFilter:
    sql: str
    node: Node


def filter_text(given: FilterLike, schema: pa.Schema) -> str:
    """A filter as text, the form in requests, which are sent to tasks and compared.

    Raises:
        InvalidFilter: It is an expression that has no meaning over these columns, or none in SQL.
        InvalidArgument: It is neither text nor an expression.
    """
    if isinstance(given, pc.Expression):
        return expression_sql(given, schema)
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  users may pass anything
        problem = f"a filter is SQL text or a pyarrow expression, not {type(given).__name__}"
        raise InvalidArgument(problem, "Write it as SQL: \"user_id = 42 AND name LIKE 'a%'\"")
    return given


def conjunction(*filters: str | None) -> str | None:
    """All of some filters; None without any."""
    given = [filter for filter in filters if filter is not None]
    if len(given) < 2:
        return given[0] if given else None
    # A line break, so that a comment at the end of a filter does not hide the parenthesis.
    return " AND ".join(f"({filter}\n)" if "--" in filter else f"({filter})" for filter in given)


def read_filter(given: str, columns: Mapping[str, pa.DataType]) -> ReadFilter:
    """A filter over columns by path.

    Raises:
        InvalidFilter: It does not parse, uses a missing column, or has a literal with no or several meanings.
    """
    if len(given) > REMEMBERED_LENGTH:
        return _read(given, columns)
    return _remembered(given, _Identical(columns))


def _read(given: str, columns: Mapping[str, pa.DataType]) -> ReadFilter:
    spelled = spelled_for_lance(given, columns)
    return ReadFilter(spelled.sql, parse_filter(spelled.sql, columns, spelled.syntax))


class _Identical:
    """The columns of a table as part of a key: the very same object, which is not compared column by column."""

    def __init__(self, columns: Mapping[str, pa.DataType]) -> None:
        self.columns = columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identical) and other.columns is self.columns

    def __hash__(self) -> int:
        return id(self.columns)


@lru_cache(maxsize=128)
def _remembered(given: str, columns: _Identical) -> ReadFilter:
    """One query reads its filter several times, and many queries have the filter of an earlier one."""
    return _read(given, columns.columns)
