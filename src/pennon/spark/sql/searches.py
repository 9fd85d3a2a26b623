"""What the functions of searches have in common: a search, and its plan.

A search whose arguments are all constants is planned when the query is analyzed, so that its errors are found there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st

from pennon.errors import InvalidArgument
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.spark.sql.columns import options_of, row_schema, rows_of
from pennon.spark.sql.function import EVERYWHERE, SIGNATURES, Call, FunctionSchema, Given, Rows, TableFunction
from pennon.spark.sql.plans import PLAN, lines

K = 10
# Columns of ids are named like others here.
IDS = ("with_row_id", "with_row_address")
QUERIES = ("column", "vector_column", "text_column")


@dataclass(frozen=True)
class Search:
    """What a search computes, the options it takes, how it runs and how it is explained: by a catalog, the arguments, k
    and the options. `vector` is the name of the argument that is one."""

    name: str
    computed: tuple[str, ...]
    check_options: Callable[[Iterable[str]], None]
    run: Callable[[Catalog, Given, Any, Given], pa.Table]
    explain: Callable[[Catalog, Given, Any, Given], str]
    vector: str | None = None

    def functions(self) -> tuple[TableFunction, TableFunction]:
        """`pennon_search...`, and `pennon_explain_search...`."""
        found = TableFunction(f"pennon_{self.name}", self._check, self._schema, self._rows)
        return found, TableFunction(f"pennon_explain_{self.name}", self._check, self._plan_schema, self._plan)

    def _check(self, names: set[str]) -> None:
        self.check_options(names - {*IDS})

    def _schema(self, call: Call) -> FunctionSchema:
        self._check_call(call)
        schema = row_schema(call, self.computed)
        if call.is_constant:
            self._explained(Catalog.read(call.snapshot, SHARED_CACHE), schema.columns, call.constants)
        return schema

    def _plan_schema(self, call: Call) -> FunctionSchema:
        self._check_call(call)
        columns = row_schema(call, self.computed).columns
        if call.is_constant:
            self._explained(Catalog.read(call.snapshot, SHARED_CACHE), columns, call.constants)
        return call.schema(PLAN, columns)

    def _check_call(self, call: Call) -> None:
        vector = call.types.get(self.vector or "")
        if vector is not None and not isinstance(vector, st.ArrayType):
            raise InvalidArgument(
                f"query must be an array of numbers, not {vector.simpleString()}", "Write array(0.1, 0.2, ...)"
            )
        for name in QUERIES:
            if call.constants.get(name) is not None:
                call.snapshot.column(call.constants[name])

    def _rows(self, catalog: Catalog, result: FunctionSchema, given: Given) -> Rows:
        return rows_of(result, self.run(catalog, *self._bound(result.columns, given)))

    def _plan(self, catalog: Catalog, result: FunctionSchema, given: Given) -> Rows:
        return lines(self._explained(catalog, result.columns, given))

    def _explained(self, catalog: Catalog, columns: tuple[str, ...], given: Given) -> str:
        return self.explain(catalog, *self._bound(columns, given))

    def _bound(self, columns: tuple[str, ...], given: Given) -> tuple[Mapping[str, Any], int | None, Mapping[str, Any]]:
        own = SIGNATURES[f"pennon_{self.name}"].required[1:]
        arguments = {name: given.get(name) for name in own}
        if self.vector is not None:
            arguments[self.vector] = _vector(arguments[self.vector])
        options = options_of(given, {"uri", "k", *own, *EVERYWHERE, *IDS})
        # NULL is the default, unless the search has an end of its own.
        k = given.get("k", K)
        k = K if k is None and "distance_range" not in options else k
        return arguments, k, {**options, "columns": list(columns)}


def _vector(query: Any) -> list[float | None] | None:
    """SQL's array(0.1, 0.2) holds decimals."""
    return None if query is None else [None if item is None else float(item) for item in query]
