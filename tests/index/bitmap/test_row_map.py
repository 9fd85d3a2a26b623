"""Maps of rows are written as roaring writes them, read whatever wrote them, and refused when they are damaged."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from pyroaring import BitMap

from pennon.errors import DamagedFile, UnsupportedTable
from pennon.format.row_set import RowSet
from pennon.index.bitmap.joining import concat_maps, join_maps, remap_maps
from pennon.index.bitmap.row_map import Maps, encode, encode_one, from_row_set, listed, to_row_set

Ids = npt.NDArray[np.uint64]
RNG = np.random.default_rng(7)


def drawn(count: int, highs: int = 3) -> Ids:
    high = RNG.integers(0, highs, count).astype(np.uint64) << np.uint64(32)
    return RNG.integers(0, 1 << 20, count).astype(np.uint64) | high


GROUPS = [drawn(count) for count in (0, 1, 5, 100, 5000, 300_000)]
DENSE = [np.arange(count, dtype=np.uint64) for count in (4096, 4097, 70_000)]


def by_roaring(ids: Ids, *, runs: bool = False) -> bytes:
    highs = np.unique(ids >> np.uint64(32))
    parts = [struct.pack("<I", len(highs))]
    for high in highs.tolist():
        own = ids[ids >> np.uint64(32) == high] & np.uint64(0xFFFF_FFFF)
        bitmap = BitMap(own.astype(np.uint32))
        if runs:
            bitmap.run_optimize()
        content = bitmap.serialize()
        parts += [struct.pack("<II", high, len(content)), content]
    return b"".join(parts)


def groups_of(groups: Sequence[Ids]) -> tuple[Ids, npt.NDArray[np.int64]]:
    starts = np.cumsum([0, *(len(group) for group in groups)])
    return np.concatenate([np.empty(0, dtype=np.uint64), *groups]), starts


def rows_of(maps: Maps) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(len(maps))]
    for ids, owners in listed(maps, "here").chunks(1000):
        for number in np.unique(owners).tolist():
            found[number] += ids[owners == number].tolist()
    return found


def test_maps_are_those_of_roaring() -> None:
    maps = encode(*groups_of(GROUPS))
    for number, group in enumerate(GROUPS):
        assert maps.slice(number, number + 1).to_bytes() == by_roaring(group)


@pytest.mark.parametrize("runs", [False, True])
def test_what_was_written_is_read(runs: bool) -> None:
    groups = [*GROUPS, *DENSE]
    maps = concat_maps([Maps.of_bytes(by_roaring(group, runs=runs)) for group in groups])
    assert rows_of(maps) == [np.unique(group).tolist() for group in groups]
    assert rows_of(encode(*groups_of(groups))) == rows_of(maps)
    everything = np.unique(np.concatenate(groups))
    np.testing.assert_array_equal(to_row_set(maps, "here").addresses(), everything)
    assert from_row_set(to_row_set(maps, "here")) == encode_one(everything)


def test_rows_and_runs_are_counted() -> None:
    groups = [*GROUPS, *DENSE]
    counts = listed(encode(*groups_of(groups)), "here").counts()
    for group, (rows, runs) in zip(groups, counts.tolist(), strict=True):
        ids = np.unique(group)
        assert rows == len(ids)
        assert runs == (0 if not len(ids) else 1 + int(np.count_nonzero(np.diff(ids) != 1)))


def test_maps_of_other_fragments_are_joined_as_they_are() -> None:
    apart = [drawn(500, 1) + (np.uint64(n) << np.uint64(32)) for n in (3, 1, 2)]
    maps = encode(*groups_of(apart))
    joined = join_maps(maps, np.array([0, 3]), "here")
    assert joined.to_bytes() == encode_one(np.concatenate(apart))


def test_maps_with_a_fragment_in_common_are_united() -> None:
    groups = [drawn(500), drawn(300), drawn(9), drawn(0)]
    joined = join_maps(encode(*groups_of(groups)), np.array([0, 2, 4]), "here")
    assert joined.slice(0, 1).to_bytes() == encode_one(np.concatenate(groups[:2]))
    assert joined.slice(1, 2).to_bytes() == encode_one(np.concatenate(groups[2:]))


def test_ids_are_remapped_and_those_that_are_gone_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [drawn(5000), drawn(20), drawn(100_000)]

    def remap(ids: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        return ids ^ np.uint64(1), ids % np.uint64(3) != 0

    for chunk in (1 << 21, 1000):  # the second keeps large maps compressed
        monkeypatch.setattr("pennon.index.bitmap.joining.CHUNK_IDS", chunk)
        maps = remap_maps(encode(*groups_of(groups)), np.arange(4), remap, "here")
        expected = [np.unique(group[group % np.uint64(3) != 0] ^ np.uint64(1)).tolist() for group in groups]
        assert rows_of(maps) == expected


def test_a_whole_fragment_is_understood_and_not_listed() -> None:
    maps = Maps.of_bytes(struct.pack("<III", 1, 7, 0))
    assert to_row_set(maps, "here").by_fragment == {7: None}
    with pytest.raises(UnsupportedTable, match="all rows of a fragment"):
        listed(maps, "here")
    with pytest.raises(ValueError, match="list"):
        from_row_set(RowSet({7: None}))


def test_damage_is_found_before_it_is_believed() -> None:
    content = [by_roaring(GROUPS[3]), by_roaring(DENSE[2], runs=True), by_roaring(DENSE[1])]
    refused = 0
    for _ in range(2000):
        damaged = bytearray(content[RNG.integers(0, 3)])
        for _ in range(RNG.integers(1, 4)):
            damaged[RNG.integers(0, min(len(damaged), 48))] = RNG.integers(0, 256)
        if RNG.random() < 0.3:
            damaged = damaged[: RNG.integers(0, len(damaged))]
        try:
            rows_of(Maps.of_bytes(bytes(damaged)))
        except (DamagedFile, UnsupportedTable):
            refused += 1
    assert refused > 1000
