"""Near-duplicates without Spark: the same tasks with the same messages, one after another; and brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from pennon.engine.frames import Delivered, Message
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import ByteCache
from pennon.index.vector.vectors import to_matrix
from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan, plan_near_duplicates
from pennon.jobs.near_duplicates.tasks import deal_groups, find_forest, find_pairs, merge_forests, route
from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest

Pair = tuple[int, int]


def planned(uri: str, distance: float, *, tasks: int = 4, memory: int = 1 << 30, **options: Any) -> NearDuplicatesPlan:
    catalog = Catalog.read(Snapshot.open(Location.of(uri)), ByteCache())
    return plan_near_duplicates(catalog, SearchRequest.of("v", 1, options), distance, memory, lambda: tasks)


def pairs_of(plan: NearDuplicatesPlan) -> dict[Pair, float]:
    """Pairs of addresses, and their distances. Fails if a pair comes twice or the wrong way round."""
    pairs: dict[Pair, float] = {}
    for messages in _delivered(_routed(plan)).values():
        for first, second, distances in find_pairs(plan, iter(messages)):
            for a, b, distance in zip(first.tolist(), second.tolist(), distances.tolist(), strict=True):
                assert a < b
                assert (a, b) not in pairs
                pairs[a, b] = distance
    return pairs


def groups_of(plan: NearDuplicatesPlan) -> set[frozenset[int]]:
    """Groups of addresses."""
    sent = _answered(_routed(plan), partial(find_forest, plan))
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


def brute_force(uri: str, metric: str, filter: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Addresses of rows that have distances, and those of all pairs, in double precision."""
    table = lance.dataset(uri).to_table(columns=["v"], filter=filter, with_row_address=True)
    vectors, whole = to_matrix(table["v"].combine_chunks())
    wide = vectors.astype(np.float64)
    with np.errstate(all="ignore"):
        kept = whole & np.isfinite(wide).all(axis=1)
        if metric == "cosine":
            kept &= (wide != 0).any(axis=1)
    wide = wide[kept]
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    squared = np.stack([((wide - row) ** 2).sum(axis=1) for row in wide])
    return table["_rowaddr"].to_numpy()[kept], squared / 2 if metric == "cosine" else squared


def within(addresses: np.ndarray, distances: np.ndarray, bound: float) -> dict[Pair, float]:
    first, second = np.nonzero(np.triu(distances <= bound, 1))
    found: dict[Pair, float] = {}
    for a, b, distance in zip(first, second, distances[first, second], strict=True):
        low, high = sorted((int(addresses[a]), int(addresses[b])))
        found[low, high] = float(distance)
    return found


def connected(pairs: Iterable[Pair]) -> set[frozenset[int]]:
    """The groups that pairs connect, by merging sets."""
    of: dict[int, set[int]] = {}
    for a, b in pairs:
        both = of.get(a, {a}) | of.get(b, {b})
        for row in both:
            of[row] = both
    return {frozenset(group) for group in of.values()}


def _routed(plan: NearDuplicatesPlan) -> Iterator[Message]:
    for number in range(len(plan.parts)):
        yield from route(plan, number, iter([pa.record_batch({"id": [number]})]))


def _delivered(sent: Iterable[Message]) -> dict[int, list[Delivered]]:
    """By destination and place, as Spark delivers them."""
    messages: dict[int, list[Delivered]] = {}
    for destination, place, batch in sent:
        messages.setdefault(destination, []).append((place, batch))
    return {destination: sorted(some, key=lambda each: each[0]) for destination, some in messages.items()}


def _answered(
    sent: Iterable[Message], function: Callable[[int, Iterator[Delivered]], Iterator[Message]]
) -> list[Message]:
    return [answer for destination, some in _delivered(sent).items() for answer in function(destination, iter(some))]
