"""A segment's kind is what follows the last slash of its type URL, in any case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.foreign import foreign_kind
from pennon.index.fragment_reuse.reading import read_fragment_reuse
from pennon.index.registry import KINDS, kind_of
from tests.support.manifests import edit_newest
from tests.support.pylance_kinds import KINDS as PYLANCE_KINDS
from tests.support.pylance_kinds import rows

pytestmark = pytest.mark.usefixtures("process_engine")

SPELLINGS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "swapped": str.swapcase,
    "with a host": lambda url: f"type.googleapis.com{url}",
    "without a slash": lambda url: url.lstrip("/"),
}


def respell(uri: str, spell: Callable[[str], str]) -> None:
    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        for index in indices.indices:
            index.index_details.type_url = spell(index.index_details.type_url)

    edit_newest(Path(uri), edit)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index of each kind that pylance builds, as `describe` of the tests knows them, one to a column."""
    uri = str(tmp_path_factory.mktemp("types") / "t.lance")
    chosen = ("BTREE", "BITMAP", "LABEL_LIST", "ZONEMAP", "BLOOMFILTER", "NGRAM", "INVERTED", "IVF_FLAT", "RTREE", "FM")
    lance.write_dataset(rows(0, 60, {name: PYLANCE_KINDS[name].source for name in chosen}), uri)
    for name in chosen:
        PYLANCE_KINDS[name].build(uri, name, name)
    return uri


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS)
def test_every_kind_is_recognized(made: str, spell: Callable[[str], str]) -> None:
    respell(made, spell)
    segments = Snapshot.open(Location.of(made)).manifest.user_segments
    found = {segment.name: kind_of(segment) or foreign_kind(segment) for segment in segments}
    assert len(found) == 10
    assert None not in found.values()
    assert set(KINDS) <= set(found.values())
    table = pennon.open(made)
    assert {index.name: index.type for index in table.indices()} == {name: name for name in found}
    assert [use.index for use in table.explain("BTREE = 3").indices] == ["BTREE"]
    assert table.count("BTREE = 3") == 9


def test_so_is_the_fragment_reuse_index(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": np.arange(100)}), uri, max_rows_per_file=25)
    table = pennon.open(uri)
    table.create_index("id")
    table.compact(remap="deferred")
    respell(uri, str.upper)
    reuse = read_fragment_reuse(Snapshot.open(Location.of(uri)))
    assert reuse is not None
    assert table.refresh().count("id = 70") == 1
    assert [use.index for use in table.explain("id = 70").indices] == ["id_idx"]
