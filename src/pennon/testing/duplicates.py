"""Near-duplicates without Spark: the same tasks with the same messages, one after another; and brute force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.engine.frames import Delivered, Message
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.cache import ByteCache
from pennon.index.vector.vectors import to_matrix
from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan, plan_near_duplicates
from pennon.jobs.near_duplicates.tasks import find_pairs, route
from pennon.query.catalog import Catalog
from pennon.query.search.request import SearchRequest

Pair = tuple[int, int]
Distances = npt.NDArray[np.float64]


def planned(
    uri: str, distance: float, *, column: str = "v", tasks: int = 4, memory: int = 1 << 30, **options: Any
) -> NearDuplicatesPlan:
    """As `Table.plan_near_duplicates`, for some tasks of a memory."""
    catalog = Catalog.read(Snapshot.open(Location.of(uri)), ByteCache())
    return plan_near_duplicates(catalog, SearchRequest.of(column, 1, options), distance, memory, lambda: tasks)


def pairs_of(plan: NearDuplicatesPlan) -> dict[Pair, float]:
    """Pairs of addresses, and their distances. Fails if a pair comes twice or the wrong way round."""
    pairs: dict[Pair, float] = {}
    for messages in delivered(routed(plan)).values():
        for first, second, distances in find_pairs(plan, iter(messages)):
            for a, b, distance in zip(first.tolist(), second.tolist(), distances.tolist(), strict=True):
                assert a < b
                assert (a, b) not in pairs
                pairs[a, b] = distance
    return pairs


def brute_force(
    uri: str, metric: str, filter: str | None = None, column: str = "v"
) -> tuple[npt.NDArray[np.uint64], Distances]:
    """Addresses of rows that have distances, and those of all pairs, in double precision."""
    table = lance.dataset(uri).to_table(columns=[column], filter=filter, with_row_address=True, use_scalar_index=False)
    vectors, whole = to_matrix(table[column].combine_chunks())
    wide = vectors.astype(np.float64)
    with np.errstate(all="ignore"):
        kept = whole & np.isfinite(wide).all(axis=1)
        if metric == "cosine":
            kept &= (wide != 0).any(axis=1)
    wide = wide[kept]
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    squared = np.array([((wide - row) ** 2).sum(axis=1) for row in wide]).reshape(len(wide), len(wide))
    return table["_rowaddr"].to_numpy()[kept], squared / 2 if metric == "cosine" else squared


def within(addresses: npt.NDArray[np.uint64], distances: Distances, bound: float) -> dict[Pair, float]:
    """The pairs of brute force within a distance."""
    first, second = np.nonzero(np.triu(distances <= bound, 1))
    found: dict[Pair, float] = {}
    for a, b, distance in zip(first, second, distances[first, second], strict=True):
        low, high = sorted((int(addresses[a]), int(addresses[b])))
        found[low, high] = float(distance)
    return found


def check_duplicates(uri: str, column: str, metric: str, filter: str | None) -> None:
    """The pairs within a distance that a few rows have to each other are those of brute force."""
    addresses, distances = brute_force(uri, metric, filter, column)
    ascending = np.unique(distances[np.triu_indices(len(distances), 1)])
    # Between distances, so that rounding does not decide.
    gaps = np.flatnonzero(np.diff(ascending[: max(2, len(ascending) // 10)]) > 1e-4)
    if not len(gaps):
        return
    bound = float(ascending[gaps[-1] : gaps[-1] + 2].mean())
    found = pairs_of(planned(uri, bound, column=column, metric=metric, filter=filter))
    expected = within(addresses, distances, bound)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[pair] for pair in expected], list(expected.values()), rtol=1e-4, atol=1e-4)


def routed(plan: NearDuplicatesPlan) -> Iterator[Message]:
    """What the first tasks send."""
    for number in range(len(plan.parts)):
        yield from route(plan, number, iter([pa.record_batch({"id": [number]})]))


def delivered(sent: Iterable[Message]) -> dict[int, list[Delivered]]:
    """By destination and place, as Spark delivers them."""
    messages: dict[int, list[Delivered]] = {}
    for destination, place, batch in sent:
        messages.setdefault(destination, []).append((place, batch))
    return {destination: sorted(some, key=lambda each: each[0]) for destination, some in messages.items()}
