"""Maps of addresses against dictionaries that say the same of every row."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pennon.index.fragment_reuse import address_map
from pennon.index.fragment_reuse.address_map import CHUNK, AddressMap, surviving_runs


def address(fragment: int, offset: int) -> int:
    return fragment << 32 | offset


@st.composite
def compactions(draw: st.DrawFn) -> tuple[dict[int, int], list[tuple[list[int], list[list[int]], list[int]]]]:
    """Fragments with their rows, and compactions one after another: old fragments, survivors of each, sizes of new."""
    first = {f: draw(st.integers(0, 12)) for f in range(draw(st.integers(1, 4)))}
    live, fresh = dict(first), len(first)
    steps: list[tuple[list[int], list[list[int]], list[int]]] = []
    for _ in range(draw(st.integers(1, 4))):
        old = draw(st.permutations(sorted(live)))[: draw(st.integers(1, len(live)))]
        kept = [sorted(draw(st.sets(st.integers(0, live[f] - 1)))) if live[f] else [] for f in old]
        rows = sum(map(len, kept))
        cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=2)))
        sizes = np.diff([0, *cuts, rows]).tolist()
        steps.append((list(old), kept, sizes))
        for f in old:
            del live[f]
        for size in sizes:
            live[fresh], fresh = size, fresh + 1
    return first, steps


@given(compactions())
def test_maps_joined_say_what_they_say_one_after_another(
    history: tuple[dict[int, int], list[tuple[list[int], list[list[int]], list[int]]]],
) -> None:
    first, steps = history
    every = [address(f, o) for f, rows in first.items() for o in range(rows)]
    now: dict[int, int | None] = {a: a for a in every}
    fresh, joined = len(first), AddressMap.none()
    for old, kept, sizes in steps:
        new = [(fresh + i, size) for i, size in enumerate(sizes)]
        slots = [address(f, o) for f, size in new for o in range(size)]
        survivors = [address(f, o) for f, offsets in zip(old, kept, strict=True) for o in offsets]
        moved = dict(zip(survivors, slots, strict=True))
        gone = {address(f, o) for f in old for o in range(60)} - moved.keys()
        now = {a: None if b is None or b in gone else moved.get(b, b) for a, b in now.items()}
        alive_rows = BitMap64(survivors)
        step = AddressMap.of_runs([surviving_runs(alive_rows, f, 60) for f in old], new)
        joined = joined.then(step)
        # Files written at any time in between know the rows by the addresses of that time.
        now |= {a: a for a in slots if a not in now}
        fresh += len(new)
    asked = np.array(list(now), dtype=np.uint64)
    found, alive = joined.apply(asked)
    assert [int(a) if b else None for a, b in zip(found, alive, strict=True)] == list(now.values())
    current = sorted({a for a in now.values() if a is not None})
    for few, piece_rows in ((0, 0), (0, 1 << 40), (1 << 40, 0)):  # by pieces, by tables, by search
        with (
            patch.object(address_map, "FEW_ADDRESSES", few),
            patch.object(address_map, "PIECE_ROWS", piece_rows),
        ):
            assert joined.apply_ascending(np.sort(asked)).tolist() == current


def test_rows_nobody_moved_stay() -> None:
    mapped = AddressMap.of_runs([surviving_runs(BitMap64([address(1, 3)]), 1, 10)], [(9, 1)])
    asked = np.array([address(0, 3), address(1, 2), address(1, 3), address(2, 0)], dtype=np.uint64)
    found, alive = mapped.apply(asked)
    assert mapped.apply_ascending(asked.copy()).tolist() == [address(0, 3), address(2, 0), address(9, 0)]
    assert alive.tolist() == [True, False, True, True]
    assert found[alive].tolist() == [address(0, 3), address(9, 0), address(2, 0)]


def test_a_map_of_many_rows_is_a_few_runs() -> None:
    rows = BitMap64(range(1_000_000)) - BitMap64([7, 500_000])
    mapped = AddressMap.of_runs([surviving_runs(rows, 0, 1_000_000)], [(1, 600_000), (2, 399_998)])
    assert len(mapped.starts) == 4
    later = AddressMap.of_runs(
        [surviving_runs(BitMap64(range(1 << 32, (1 << 32) + 600_000)), 1, 600_000)], [(5, 600_000)]
    )
    assert len(mapped.then(later).starts) == 5


@pytest.mark.parametrize("share", [0.6, 0.9995])
@pytest.mark.parametrize("small", [1, 40])
def test_many_runs_are_counted_to(small: int, share: float) -> None:
    """Runs of a row or two, and long ones; fragments of about one size, and one among many small ones."""
    rng = np.random.default_rng(5)
    sizes = {3: 70_000, 9: 50_001} | {10 + i: 64 - i for i in range(small)}
    survivors = {f: np.flatnonzero(rng.random(rows) < share) + (f << 32) for f, rows in sizes.items()}
    alive_rows = BitMap64(np.concatenate(list(survivors.values())).tolist())
    mapped = AddressMap.of_runs(
        [surviving_runs(alive_rows, f, rows) for f, rows in sizes.items()], [(99, len(alive_rows))]
    )
    assert (mapped._whole_words is None) == (small > 1)  # pyright: ignore[reportPrivateUsage]
    asked = np.concatenate([np.arange(rows + 200) + (f << 32) for f, rows in sizes.items()]).astype(np.uint64)
    asked = np.append(asked, np.uint64((3 << 32) + 0xFFFF_FFFF))
    order = rng.permutation(len(asked))
    assert len(order) > CHUNK
    found, alive = mapped.apply(asked[order])
    expected = {int(a): (99 << 32) + i for i, a in enumerate(np.concatenate(list(survivors.values())))}
    assert [int(a) if b else None for a, b in zip(found, alive, strict=True)] == [
        expected.get(int(a)) for a in asked[order]
    ]
