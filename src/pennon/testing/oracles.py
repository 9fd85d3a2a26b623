"""What an indexed answer is compared with: pylance's scan without any index, and its own indexed answer."""

from __future__ import annotations

from typing import Any

import lance


def full_scan(uri: str, filter: str, column: str = "id") -> list[Any]:
    """The sorted values of `column` that pylance finds without any index."""
    scanner = lance.dataset(uri).scanner(columns=[column], filter=filter, use_scalar_index=False)
    return sorted(scanner.to_table()[column].to_pylist())


def pylance_answer(uri: str, filter: str, column: str = "id") -> tuple[list[Any], bool]:
    """The sorted values that pylance finds, and whether it used a scalar index."""
    scanner = lance.dataset(uri).scanner(columns=[column], filter=filter)
    return sorted(scanner.to_table()[column].to_pylist()), "ScalarIndexQuery" in scanner.explain_plan()
