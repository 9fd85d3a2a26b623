"""The columns of a source: which of them a merge uses, and the types they are converted to.

Types are converted where values stay the same, as in Spark's MERGE: numbers to numbers that hold them, text to text,
lists item by item. A value that does not fit fails the merge. Other types are refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pennon.errors import ColumnNotFound, InvalidArgument
from pennon.format.expressions import evaluate
from pennon.format.snapshot import Snapshot
from pennon.jobs.merge.clauses import SOURCE, TARGET, Clauses
from pennon.query.filter.reading import read_filter
from pennon.query.lookup.keys import KeyColumn
from pennon.wording import did_you_mean, in_line


@dataclass(frozen=True)
class MergeSchema:
    """The staged columns of the source, by position, with their types; what each update sets; and the columns of the
    table that are read for matched rows."""

    staged: pa.Schema
    updates: tuple[Mapping[str, str | None], ...]
    read: tuple[str, ...]


def check_schema(snapshot: Snapshot, given: pa.Schema, clauses: Clauses) -> MergeSchema:
    """What a merge reads and writes.

    Raises:
        ColumnNotFound: the table or the source lacks a key, or the source has a column that no clause uses.
        InvalidArgument: a column has a type that is not converted, or an insert lacks a column without NULLs.
        InvalidFilter: SQL that makes no sense over these columns.
    """
    names: list[str] = given.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"the source has two columns {twice!r}", "Rename one")
    _check_keys(snapshot, given, clauses)
    mentioned = clauses.mentioned(SOURCE, names)
    own: pa.Schema = snapshot.schema
    for name in names:
        if name not in own.names and name not in mentioned:
            raise ColumnNotFound(
                f"table {snapshot.uri} has no column {name!r}, which the source has",
                f"Drop it, or use it in a condition. {did_you_mean(name, own.names)}",
            )
    fields = [_staged(own.field(field.name), field, snapshot) if field.name in own.names else field for field in given]
    staged = pa.schema(fields)
    updates = tuple(clauses.written_columns(clause, names, snapshot) for clause in clauses.updates)
    if clauses.not_matched:
        missing = next((field for field in own if field.name not in names and not field.nullable), None)
        if missing is not None:
            raise InvalidArgument(
                f"the source lacks column {missing.name!r}, which cannot hold NULL in {snapshot.uri}",
                "Add it, or leave out the insert",
            )
    read = clauses.mentioned(TARGET, own.names)
    for columns in updates:
        read |= {name for name in own.names if name not in columns and name not in clauses.on}
    _check_sql(snapshot, staged, clauses, updates)
    return MergeSchema(staged, updates, tuple(name for name in own.names if name in read))


def filter_of_targets(condition: str | None, snapshot: Snapshot) -> str | None:
    """A condition over `target.` alone as a filter of the table."""
    if condition is None:
        return None
    text = _TargetNames(snapshot).removed(condition)
    return read_filter(text, snapshot.column_types).sql


def _check_keys(snapshot: Snapshot, given: pa.Schema, clauses: Clauses) -> None:
    for key in clauses.on:
        column = snapshot.column(key)
        if key not in given.names:
            raise ColumnNotFound(f"the source has no key column {key!r}", did_you_mean(key, given.names))
        if column.path not in (key, f"`{key}`") or "." in column.path.replace(f"`{key}`", ""):
            raise InvalidArgument(f"key {key!r} is part of another column", "Use top-level columns as keys")
        KeyColumn(column, float_bits=True).check(given.field(key).type, key)


def _staged(own: pa.Field, given: pa.Field, snapshot: Snapshot) -> pa.Field:
    """The column of the source in the type of the table's."""
    type_ = _plain(own.type)
    if not converts(given.type, type_):
        raise InvalidArgument(
            f"column {own.name!r} of the source has type {given.type}, and of table {snapshot.uri} type {own.type}",
            "Cast it",
        )
    return pa.field(own.name, type_)


def converts(given: pa.DataType, own: pa.DataType) -> bool:
    """Whether values of a type are converted to another."""
    is_ = pa.types
    given = _plain(given)
    if given == own or is_.is_null(given):
        return True
    if _is_list(given) and _is_list(own):
        return converts(given.value_type, own.value_type)
    if is_.is_struct(given) and is_.is_struct(own):
        names = [field.name for field in own]
        same = [field.name for field in given] == names
        return same and all(converts(given.field(name).type, own.field(name).type) for name in names)
    if is_.is_map(given) and is_.is_map(own):
        return converts(given.key_type, own.key_type) and converts(given.item_type, own.item_type)
    if is_.is_timestamp(given) and is_.is_timestamp(own):
        return (given.tz is None) == (own.tz is None)
    families = (
        lambda t: is_.is_integer(t) or is_.is_floating(t) or is_.is_decimal(t),
        lambda t: is_.is_string(t) or is_.is_large_string(t) or is_.is_string_view(t),
        lambda t: is_.is_binary(t) or is_.is_large_binary(t) or is_.is_fixed_size_binary(t) or is_.is_binary_view(t),
        is_.is_date,
        is_.is_time,
        is_.is_duration,
    )
    return any(family(given) and family(own) for family in families)


def _plain(type_: pa.DataType) -> pa.DataType:
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _is_list(type_: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_)


def _check_sql(
    snapshot: Snapshot, staged: pa.Schema, clauses: Clauses, updates: tuple[Mapping[str, str | None], ...]
) -> None:
    """All SQL must make sense over no rows: conditions must be conditions, and values of the types of their columns."""
    source, target = staged.empty_table(), snapshot.schema.empty_table()
    for clause in clauses.matched:
        _check_condition(clause.condition, {SOURCE: source, TARGET: target})
    for clause in clauses.not_matched:
        _check_condition(clause.condition, {SOURCE: source})
    for clause in clauses.by_source:
        _check_condition(clause.condition, {TARGET: target})
        filter_of_targets(clause.condition, snapshot)
    for columns in updates:
        for name, expression in columns.items():
            if expression is None:
                continue
            own = snapshot.schema.field(name).type
            found = evaluate({SOURCE: source, TARGET: target}, {name: expression}).column(0)
            if not converts(found.type, _plain(own)):
                raise InvalidArgument(
                    f"{expression!r} is of type {found.type}, column {name!r} of type {own}", "Cast it"
                )


def _check_condition(condition: str | None, tables: Mapping[str, pa.Table]) -> None:
    if condition is not None:
        found = evaluate(tables, {"condition": condition}).column(0)
        if not pa.types.is_boolean(found.type):
            raise InvalidArgument(f"{in_line(condition)!r} is not a condition but of type {found.type}")


class _TargetNames:
    """Takes `target.` off the names of columns in a condition, outside of quotes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._uri = snapshot.uri

    def removed(self, condition: str) -> str:
        parts: list[str] = []
        at, quote = 0, ""
        while at < len(condition):
            sign = condition[at]
            if quote:
                quote = "" if sign == quote else quote
            elif sign in "'\"`":
                quote = sign
            elif condition[at : at + len(TARGET) + 1].lower() == f"{TARGET}." and not _follows_name(condition, at):
                at += len(TARGET) + 1
                continue
            parts.append(sign)
            at += 1
        return "".join(parts)


def _follows_name(text: str, at: int) -> bool:
    return at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_.`")
