"""Groups of near-duplicates without Spark: the same tasks with the same messages, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pennon.engine.frames import Delivered, Message
from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan
from pennon.jobs.near_duplicates.tasks import deal_groups, find_forest, merge_forests
from pennon.testing.duplicates import Pair, delivered, routed


def groups_of(plan: NearDuplicatesPlan) -> set[frozenset[int]]:
    """Groups of addresses."""
    sent = _answered(routed(plan), partial(find_forest, plan))
    for function in (merge_forests, deal_groups):
        sent = _answered(sent, partial(function, plan))
    groups: dict[int, set[int]] = {}
    for _, _, batch in sent:
        for row, first, size in zip(*(batch.column(n).to_pylist() for n in ("row", "first", "size")), strict=True):
            groups.setdefault(first, set()).add(row)
            groups[first].add(first)
            assert first <= row
            assert size > 1
    return {frozenset(rows) for rows in groups.values()}


def connected(pairs: Iterable[Pair]) -> set[frozenset[int]]:
    """The groups that pairs connect, by merging sets."""
    of: dict[int, set[int]] = {}
    for a, b in pairs:
        both = of.get(a, {a}) | of.get(b, {b})
        for row in both:
            of[row] = both
    return {frozenset(group) for group in of.values()}


def _answered(
    sent: Iterable[Message], function: Callable[[int, Iterator[Delivered]], Iterator[Message]]
) -> list[Message]:
    return [answer for destination, some in delivered(sent).items() for answer in function(destination, iter(some))]
