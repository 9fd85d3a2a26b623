"""Reads a user's filter for one table: the text that Lance evaluates, and the tree that indices answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pennon.errors import InvalidArgument
from pennon.query.filter.expression_sql import expression_sql
from pennon.query.filter.literal_spelling import spelled_for_lance
from pennon.query.filter.parse import parse_filter
from pennon.query.filter.predicate import Node

# The filters that users may pass: SQL text, or an expression such as `pyarrow.compute.field("id") > 7`.
FilterLike = str | pc.Expression


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


def read_filter(given: str, columns: Mapping[str, pa.DataType]) -> ReadFilter:
    """A filter over columns by path.

    Raises:
        InvalidFilter: It does not parse, uses a missing column, or has a literal with no or several meanings.
    """
    sql = spelled_for_lance(given, columns)
    return ReadFilter(sql, parse_filter(sql, columns))
