"""What an indexed answer is compared with: pylance's scan without any index, and its own indexed answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance


def full_scan(table: str | lance.LanceDataset, filter: str, column: str = "id") -> list[Any]:
    """The sorted values of `column` that pylance finds without any index. `table` is an address or a dataset: for many
    filters, a dataset that stays open is faster."""
    scanner = _opened(table).scanner(columns=[column], filter=filter, use_scalar_index=False)
    return sorted(scanner.to_table()[column].to_pylist())


def full_scans(dataset: lance.LanceDataset, filters: Sequence[str], column: str = "id") -> dict[str, list[Any]]:
    """The same for many filters, in one scan that computes them as columns."""
    names = {f"filter_{number}": filter for number, filter in enumerate(filters)}
    found = dataset.scanner(columns={column: column, **names}, use_scalar_index=False).to_table()
    selected = {filter: found[name].fill_null(False) for name, filter in names.items()}
    return {filter: sorted(found[column].filter(chosen).to_pylist()) for filter, chosen in selected.items()}


def pylance_rows(dataset: lance.LanceDataset, filter: str, column: str = "id") -> list[Any]:
    """The sorted values that pylance finds, through its indices where it can use one."""
    return sorted(dataset.scanner(columns=[column], filter=filter).to_table()[column].to_pylist())


def pylance_answer(table: str | lance.LanceDataset, filter: str, column: str = "id") -> tuple[list[Any], bool]:
    """The sorted values that pylance finds, and whether it used a scalar index."""
    scanner = _opened(table).scanner(columns=[column], filter=filter)
    return sorted(scanner.to_table()[column].to_pylist()), "ScalarIndexQuery" in scanner.explain_plan()


def _opened(table: str | lance.LanceDataset) -> lance.LanceDataset:
    return lance.dataset(table) if isinstance(table, str) else table
