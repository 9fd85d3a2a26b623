"""SQL over rows in memory, as Lance evaluates it over the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping

import lance
import pyarrow as pa

from pennon.errors import InvalidFilter, PennonError
from pennon.format.failures import first_line
from pennon.format.store import translate_panics
from pennon.secrets import redact_exception

MEMORY = "memory://expressions"
# pylance computes nothing without a column that is stored.
_STORED = "__pennon_row"


def evaluate(rows: Mapping[str, pa.Table], expressions: Mapping[str, str]) -> pa.Table:
    """The values of SQL expressions for each row. `rows` are tables of equal length, whose columns the expressions name
    with the name of the table: `source.price`.

    Raises:
        InvalidFilter: an expression makes no sense over these columns.
    """
    count = next(iter(rows.values())).num_rows
    structs = {name: _struct(table) for name, table in rows.items() if table.num_columns}
    stored = pa.table({**structs, _STORED: pa.array(range(count), pa.int64())})
    named = {f"e{number}": text for number, text in enumerate(expressions.values())}
    try:
        with translate_panics("an expression"):
            dataset = lance.write_dataset(stored, MEMORY)
            found = dataset.scanner(columns={**named, _STORED: _STORED}, scan_in_order=True).to_table()
    except PennonError:
        raise
    except (ValueError, OSError, pa.ArrowException) as error:
        redact_exception(error)
        texts = ", ".join(repr(text) for text in expressions.values())
        # The columns that are valid would be listed with those of this module.
        problem = first_line(error).partition(" Valid fields are ")[0]
        names = " and ".join(f"{name}.COLUMN" for name in rows)
        raise InvalidFilter(f"{texts} cannot be evaluated: {problem}", f"Write columns as {names}") from error
    found = found.sort_by(_STORED)
    return pa.table(dict(zip(expressions, (found.column(name) for name in named), strict=True)))


def _struct(table: pa.Table) -> pa.Array:
    columns = [column.combine_chunks() for column in table.columns]
    plain = [column.storage if isinstance(column.type, pa.BaseExtensionType) else column for column in columns]
    return pa.StructArray.from_arrays(plain, names=table.column_names)
