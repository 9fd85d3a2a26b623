"""What a table function of SQL is: its arguments, the columns of its rows, and how it runs.

Errors are found when a query is analyzed, wherever the arguments are constants: Spark runs a task four times
before it fails, and reports it with pages of traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types as st
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from pennon.errors import InvalidArgument
from pennon.format.snapshot import Pin, Snapshot
from pennon.format.store import Location
from pennon.query.catalog import Catalog
from pennon.secrets import is_secret
from pennon.wording import did_you_mean

Storage = Mapping[str, str]
Given = Mapping[str, Any]
Rows = Iterator[tuple[Any, ...]]

# Arguments that every function takes.
EVERYWHERE = ("version", "storage_options")
# Arguments that determine the table and the columns, and must be known before the query runs.
CONSTANTS = (
    "uri",
    "column",
    "vector_column",
    "text_column",
    "columns",
    "with_row_id",
    "with_row_address",
    *EVERYWHERE,
)


@dataclass(frozen=True)
class Signature:
    """The arguments of a function that may be given by position, without a default and with one; and its module."""

    module: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


_SEARCHES = {
    "search": Signature("vector", ("uri", "column", "query"), ("k",)),
    "search_text": Signature("text", ("uri", "column", "query"), ("k",)),
    "search_hybrid": Signature("hybrid", ("uri", "vector_column", "vector", "text_column", "text"), ("k",)),
}
SIGNATURES = {
    "pennon_scan": Signature("scans", ("uri",), ("filter", "columns")),
    "pennon_lookup": Signature("scans", ("uri", "column", "value"), ("columns",)),
    "pennon_indices": Signature("plans", ("uri",)),
    "pennon_explain": Signature("plans", ("uri",), ("filter",)),
    **{f"pennon_{name}": signature for name, signature in _SEARCHES.items()},
    **{f"pennon_explain_{name}": signature for name, signature in _SEARCHES.items()},
}


@dataclass
class FunctionSchema(AnalyzeResult):
    """The columns of the result; all rows of a query are answered by the same version."""

    pin: Pin | None = field(default=None, repr=False)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call when a query is analyzed: the arguments that are constants, with their values, and the types of all."""

    function: str
    snapshot: Snapshot
    constants: Given
    types: Mapping[str, st.DataType]

    @property
    def is_constant(self) -> bool:
        """Whether all arguments are known."""
        return self.constants.keys() == self.types.keys()

    def schema(self, fields: st.StructType, columns: tuple[str, ...] = ()) -> FunctionSchema:
        """The result of an analysis."""
        return FunctionSchema(fields, pin=self.snapshot.pin(), columns=columns)


@dataclass(frozen=True)
class TableFunction:
    """A function by its name in SQL. `check_options` refuses names of arguments that it does not take."""

    name: str
    check_options: Callable[[set[str]], None]
    analyze: Callable[[Call], FunctionSchema]
    run: Callable[[Catalog, FunctionSchema, Given], Rows]

    @property
    def positional(self) -> tuple[str, ...]:
        """The arguments that may be given without a name."""
        signature = SIGNATURES[self.name]
        return (*signature.required, *signature.optional)

    def bind(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name."""
        return {**dict(zip(self.positional, given, strict=False)), **named}

    def analyzed(self, storage: Storage, given: Mapping[str, AnalyzeArgument]) -> FunctionSchema:
        """The columns of the result.

        Raises:
            InvalidArgument: an argument that the function does not take, of a wrong type, or that must be a constant.
        """
        self.check_options(given.keys() - {*self.positional, *EVERYWHERE})
        for name in CONSTANTS:
            if name in given and not given[name].isConstantExpression:
                raise InvalidArgument(f"the argument {name} of {self.name} must be a constant")
        constants: dict[str, Any] = {name: a.value for name, a in given.items() if a.isConstantExpression}
        types = {name: argument.dataType for name, argument in given.items()}
        uri = constants.get("uri")
        if not isinstance(uri, str):
            raise InvalidArgument("the address of the table is missing", "Pass it as the first argument")
        location = Location.of(uri, joined_options(storage, constants.get("storage_options")))
        snapshot = Snapshot.open(location, constants.get("version"))
        return self.analyze(Call(self.name, snapshot, constants, types))


def joined_options(storage: Storage, given: Storage | None) -> Storage:
    """The options of a session and of a call. Arguments of a call are visible in Spark's plans, so secrets are refused
    there."""
    for key, value in (given or {}).items():
        if is_secret(key, value):
            raise InvalidArgument(
                f"{key!r} is a secret, and arguments of functions are visible in Spark's plans",
                "Pass it to pennon.spark.register(spark, storage_options={...})",
            )
    return {**storage, **(given or {})}


def no_options(function: str, *known: str) -> Callable[[set[str]], None]:
    """A check for functions whose options are few."""

    def check(names: set[str]) -> None:
        unknown = sorted(names - {*known})
        if unknown:
            signature = SIGNATURES[function]
            takes = (*signature.required, *signature.optional, *known, *EVERYWHERE)
            raise InvalidArgument(f"{function} has no argument {unknown[0]!r}", did_you_mean(unknown[0], takes))

    return check
