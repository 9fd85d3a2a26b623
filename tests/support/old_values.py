"""Indices in which pylance's optimize has kept old values next to new ones."""

from __future__ import annotations

from collections.abc import Sequence

import pennon
from tests.support.tables import full_scan, stock_answer

HEALERS = ("audit", "optimize", "maintain")


def check_answers(uri: str, filters: Sequence[str]) -> None:
    """Pennon answers as a full scan does."""
    for filter in filters:
        assert sorted(pennon.open(uri).scan(filter, ["id"])["id"].to_pylist()) == full_scan(uri, filter), filter
        assert pennon.open(uri).count(filter) == len(full_scan(uri, filter)), filter


def check_healing(uri: str, filters: Sequence[str], healer: str) -> None:
    """pylance answers the first of the filters by old values, and Pennon does not. An audit reports the index, and each
    of the healers repairs it, for pylance too."""
    assert stock_answer(uri, filters[0])[0] != full_scan(uri, filters[0])
    check_answers(uri, filters)
    assert not pennon.open(uri).audit().ok
    if healer == "audit":
        pennon.open(uri).audit(repair=True)
    elif healer == "optimize":
        pennon.open(uri).optimize_indices()
    else:
        pennon.open(uri).maintain()
    assert pennon.open(uri).audit().ok
    check_answers(uri, filters)
    for filter in filters:
        assert stock_answer(uri, filter)[0] == full_scan(uri, filter), filter
