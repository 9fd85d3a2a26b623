"""What a merge does with rows: for a matched row the first clause whose condition holds, as in SQL's MERGE."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pennon.display import DisplayedFields
from pennon.errors import ColumnNotFound, InvalidArgument
from pennon.format.snapshot import Snapshot
from pennon.query.filter.opaque_text import check_expression
from pennon.wording import did_you_mean

T = TypeVar("T")

SOURCE, TARGET = "source", "target"
_MENTION = r"(?i)(?<![\w.`]){table}\s*\.\s*(?:`((?:[^`]|``)+)`|(\w+))"


@dataclass(frozen=True)
class Update(DisplayedFields):
    """Give a matched row new values.

    `columns` are the columns that get the values of the source, or SQL expressions over `source.` and `target.` by
    column; by default all that the source has. `condition` is such SQL, too: `"source.ts > target.ts"`.
    """

    columns: Sequence[str] | Mapping[str, str] | None = None
    condition: str | None = None


@dataclass(frozen=True)
class Delete(DisplayedFields):
    """Delete a row: a matched one, or one of the table that no row of the source matches. `condition` is SQL over
    `source.` and `target.`; without a match over `target.` alone."""

    condition: str | None = None


@dataclass(frozen=True)
class Insert(DisplayedFields):
    """Insert a row of the source that matches none. `condition` is SQL over `source.`."""

    condition: str | None = None


Matched = Update | Delete


@dataclass(frozen=True)
class Clauses:
    """The clauses of a merge, checked for their forms."""

    on: tuple[str, ...]
    matched: tuple[Matched, ...]
    not_matched: tuple[Insert, ...]
    by_source: tuple[Delete, ...]

    @classmethod
    def of(cls, on: object, when_matched: object, when_not_matched: object, by_source: object) -> Clauses:
        """From the arguments of a user: clauses, their names, lists of clauses, or None for none.

        Raises:
            InvalidArgument: a clause that does not exist there, or one that never applies.
            InvalidFilter: a condition or a value is not an SQL expression.
        """
        keys = (on,) if isinstance(on, str) else tuple(cast(Iterable[Any], on)) if _is_list(on) else ()
        if not keys or not all(isinstance(key, str) for key in keys):
            raise InvalidArgument("on must name one or more key columns", 'Write on="id", or on=["day", "id"]')
        if len(set(keys)) != len(keys):
            raise InvalidArgument("on names a column twice")
        clauses = cls(
            cast(tuple[str, ...], keys),
            _clauses("when_matched", when_matched, {"update": Update(), "delete": Delete()}),
            _clauses("when_not_matched", when_not_matched, {"insert": Insert()}),
            _clauses("when_not_matched_by_source", by_source, {"delete": Delete()}),
        )
        if not (clauses.matched or clauses.not_matched or clauses.by_source):
            raise InvalidArgument(
                "the merge has no clause", 'Write when_matched="update", or when_not_matched="insert"'
            )
        for text in (*clauses.texts, *(clause.condition for clause in clauses.by_source)):
            if isinstance(text, str):
                check_expression(text)
        return clauses

    @property
    def texts(self) -> list[str]:
        """All SQL in the clauses over `source.`."""
        conditions = [clause.condition for clause in (*self.matched, *self.not_matched)]
        values = [text for clause in self.updates for text in expressions_of(clause).values()]
        return [text for text in (*conditions, *values) if text is not None]

    @property
    def updates(self) -> list[Update]:
        return [clause for clause in self.matched if isinstance(clause, Update)]

    def mentioned(self, table: str, names: Iterable[str]) -> set[str]:
        """Those columns of `source` or `target` that SQL in the clauses mentions."""
        pattern = re.compile(_MENTION.format(table=table))
        found: set[str] = set()
        for text in self.texts:
            for quoted, bare in pattern.findall(text):
                found.add(quoted.replace("``", "`") if quoted else bare)
        lowered = {name.lower() for name in found}
        return {name for name in names if name in found or name.lower() in lowered}

    def written_columns(self, clause: Update, given: Sequence[str], snapshot: Snapshot) -> dict[str, str | None]:
        """The columns that an update sets: to an expression, or (None) to the value of the source.

        Raises:
            ColumnNotFound: the table, or the source, lacks one of them.
            InvalidArgument: one is a key.
        """
        own: list[str] = snapshot.schema.names
        keys = [snapshot.column(key).path for key in self.on]
        if clause.columns is None:
            return {name: None for name in given if name in own and name not in self.on}
        chosen: dict[str, str | None] = dict(expressions_of(clause)) or dict.fromkeys(
            cast(Sequence[str], clause.columns)
        )
        for name, expression in chosen.items():
            if name not in own:
                raise ColumnNotFound(f"table {snapshot.uri} has no column {name!r}", did_you_mean(name, own))
            if name in self.on or snapshot.column(name).path in keys:
                raise InvalidArgument(f"column {name!r} is a key, which an update cannot change")
            if expression is None and name not in given:
                raise ColumnNotFound(f"the source has no column {name!r}", did_you_mean(name, given))
        return chosen


def expressions_of(clause: Update) -> Mapping[str, str]:
    return clause.columns if isinstance(clause.columns, Mapping) else {}


def _clauses(label: str, given: object, named: Mapping[str, T]) -> tuple[T, ...]:
    """Clauses of the types that `named` has."""
    if given is None:
        return ()
    kinds = tuple(type(clause) for clause in named.values())
    found: list[T] = []
    for each in cast(Iterable[object], given) if _is_list(given) else [given]:
        clause = named.get(each) if isinstance(each, str) else each
        if not isinstance(clause, kinds):
            known = ", ".join(f"{name!r} or {type(clause).__name__}(...)" for name, clause in named.items())
            shown = repr(each) if isinstance(each, str) else type(each).__name__
            raise InvalidArgument(f"{label} takes {known}, not {shown}")
        found.append(_checked(label, cast(T, clause)))
    unreachable = [clause for clause in found[:-1] if getattr(clause, "condition", None) is None]
    if unreachable:
        raise InvalidArgument(
            f"{label} has clauses after one without a condition, which never apply", "Put that one last"
        )
    return tuple(found)


def _checked(label: str, clause: T) -> T:
    condition = getattr(clause, "condition", None)
    if condition is not None and not isinstance(condition, str):
        raise InvalidArgument(f"a condition of {label} is SQL text, not {type(condition).__name__}")
    if isinstance(clause, Update) and clause.columns is not None:
        columns = cast(Any, clause.columns)
        if isinstance(columns, str) or not isinstance(columns, Mapping | Sequence) or not columns:
            raise InvalidArgument(
                f"columns of {label} takes names, or SQL by name, not {columns!r}", 'Write Update(columns=["price"])'
            )
        texts = [*columns, *(columns.values() if isinstance(columns, Mapping) else ())]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(f"columns of {label} takes names, or SQL by name")
    return clause


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)
