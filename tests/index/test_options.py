"""Options of index types: every class documents itself, is checked by what it documents, and is public."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pytest

import pennon
from pennon.errors import IgnoredOptionWarning, InvalidArgument, UnknownIndexType
from pennon.index.option_text import options_text, shared_options, types_text
from pennon.index.options import IndexOptions, option, options_of
from pennon.index.registry import KINDS, index_options, index_types
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.hnsw.graph import HnswParams
from pennon.index.vector.kinds import VECTOR_KINDS, SubIndex
from pennon.index.vector.metric import Metric
from pennon.index.vector.options import VECTOR_OPTIONS, recorded_options
from pennon.table import option_help

TYPES = index_types()


@dataclass(frozen=True, kw_only=True)
class Sampler(IndexOptions):
    """Every type of option there is."""

    index_type: ClassVar[str] = "SAMPLER"

    share: float = option(0.5, "A share.", at_least=0, at_most=1)
    words: tuple[str, ...] | None = option(None, "Some words.", unset="none")
    exact: bool = option(False, "Whether it is exact.")
    shape: str = option("round", "A shape.", choices=("round", "flat"))
    table: Any = option(None, "An array.", unset="trained")


@pytest.mark.parametrize("name", TYPES)
def test_a_type_is_public_documented_and_has_defaults(name: str) -> None:
    cls = TYPES[name]
    assert (cls.index_type, getattr(pennon, cls.__name__)) == (name, cls)
    assert cls.__name__ in pennon.__all__
    assert [each.name for each in options_of(cls)] == [field.name for field in fields(cls)]
    assert cls() == index_options(name.lower(), {})
    for each in options_of(cls):
        assert each.help.endswith("."), each.name
        assert each.default is not None or each.unset, each.name
        assert f"{each.name}: " in (cls.__doc__ or "")


def test_names_of_kinds_are_those_of_their_options() -> None:
    for kind in KINDS:
        assert kind.names == tuple(kind.options)
        assert list(kind.names) == [options.index_type for options in kind.options.values()]
    assert list(VECTOR_OPTIONS) == list(VECTOR_KINDS)


def test_help_lists_the_options_of_all_types() -> None:
    """The text is written beforehand, so that queries do not import all types."""
    assert options_text(TYPES) + "\n" == option_help.OPTIONS, "run python -m tools.make_option_help"
    for verb in (pennon.Table.create_index, pennon.Table.plan_index):
        text = inspect.getdoc(verb) or ""
        assert text.rstrip().endswith(option_help.OPTIONS.rstrip())
        assert "Args:\n    column: " in text


@pytest.mark.parametrize("name", VECTOR_KINDS)
def test_graphs_and_codes_are_those_of_the_type(name: str) -> None:
    kind, options = VECTOR_KINDS[name], VECTOR_OPTIONS[name]()
    assert (options.graph is not None) == (kind.sub_index is SubIndex.HNSW)
    assert kind.quantizer.shape(options.codes, 32, np.dtype(np.float32)).row_bytes > 0


def test_help_shows_every_option() -> None:
    for method in (pennon.Table.create_index, pennon.Table.plan_index):
        shown = " ".join((method.__doc__ or "").split())
        for shared in shared_options(TYPES):
            assert f"{shared.name}: {shared.help} [{shared.constraints(TYPES)}]" in shown


def test_types_that_share_an_option_share_its_type_and_meaning() -> None:
    for shared in shared_options(TYPES):
        assert len({(variant.option.type, variant.option.help) for variant in shared.variants}) == 1, shared.name


def test_names_of_types_in_short() -> None:
    assert types_text(["BTREE"], TYPES) == "BTREE"
    assert types_text(VECTOR_KINDS, TYPES) == "IVF_*"
    assert types_text([name for name in TYPES if "HNSW" in name], TYPES) == "IVF_HNSW_*"
    assert types_text(["IVF_PQ", "IVF_HNSW_PQ"], TYPES) == "IVF_PQ, IVF_HNSW_PQ"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"share": 1.5}, "share must be at most 1, not 1.5"),
    ({"share": -1}, "share must be at least 0, not -1"),
    ({"share": float("nan")}, "share must be at least 0"),
    ({"share": "half"}, "share must be a number, not 'half'"),
    ({"share": True}, "share must be a number"),
    ({"share": None}, "share must be a number, not None"),
    ({"words": "one"}, "words must be a list of strings"),
    ({"words": [1]}, "words must be a list of strings"),
    ({"exact": 1}, "exact must be True or False, not 1"),
    ({"shape": "square"}, "shape must be round or flat, not 'square'"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_values_are_checked_by_what_is_documented(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Sampler(**given)


def test_values_that_are_allowed() -> None:
    assert Sampler(share=1, words=("a", "b"), exact=True, shape="flat", table=np.ones(3)).share == 1
    assert Sampler.of({"share": None, "words": ["a"]}).words == ["a"]


def test_options_beside_an_object_and_unknown_types_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"ranges given in addition to BTree\(...\)"):
        index_options(pennon.BTree(), {"ranges": 3})
    with pytest.raises(UnknownIndexType, match="SAMPLER"):
        pennon.index.registry.kind_named(Sampler().index_type)
    assert index_options(pennon.BTree(ranges=3), {"batch_size": None}) == pennon.BTree(ranges=3)


def test_an_object_is_settled_with_a_warning_once() -> None:
    with pytest.warns(IgnoredOptionWarning, match="target_partition_size has no effect") as found:
        settled = index_options(pennon.IvfSq(num_partitions=4, target_partition_size=9), {})
    assert found[0].filename == __file__
    assert settled == index_options(settled, {}) == pennon.IvfSq(num_partitions=4)


def test_options_are_read_back_from_what_the_manifest_records() -> None:
    details = VectorDetails(VECTOR_KINDS["IVF_HNSW_PQ"], Metric.DOT, 4, 8, hnsw=HnswParams(5, 12, 60))
    expected = pennon.IvfHnswPq(
        metric="dot", num_bits=4, num_sub_vectors=8, m=12, ef_construction=60, max_level=5, target_partition_size=7
    )
    assert recorded_options(details, target_partition_size=7) == expected
    assert recorded_options(VectorDetails(VECTOR_KINDS["IVF_FLAT"], Metric.L2)) == pennon.IvfFlat(metric="l2")
