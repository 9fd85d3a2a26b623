"""The rows of a graph: what goes in comes out, and what no writer would have written is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.errors import DamagedFile, InvalidArgument
from pennon.index.vector.hnsw.build import build_graph
from pennon.index.vector.hnsw.graph import GRAPH_SCHEMA, HnswGraph, HnswParams, Level
from pennon.index.vector.hnsw.search import HnswSearcher, NodeVectors
from tests.support.graphs import clusters

POINTS = clusters(900, 16)
GRAPH = build_graph(POINTS, by_l2=True)


@st.composite
def graphs(draw: st.DrawFn) -> HnswGraph:
    """Any graph the layout can hold, sensible or not."""
    params = HnswParams(draw(st.integers(1, 9)), draw(st.integers(4, 12)), 40, draw(st.none() | st.integers(0, 9)))
    sizes = sorted(draw(st.lists(st.integers(1, 40), min_size=1, max_size=params.max_level)), reverse=True)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    nodes, levels = np.arange(sizes[0]), list[Level]()
    for size in sizes:
        nodes = np.sort(rng.permutation(nodes)[:size])
        counts = rng.integers(0, 2 * params.m + 2, size)
        neighbors = rng.choice(nodes, counts.sum())
        distances = rng.standard_normal(counts.sum()).astype(np.float32)
        levels.append(Level.of_lists(nodes, np.repeat(np.arange(size), counts), neighbors, distances))
    return HnswGraph(params, int(rng.choice(nodes)), tuple(levels))


def same(left: HnswGraph, right: HnswGraph) -> bool:
    arrays = ("nodes", "offsets", "neighbors", "distances")
    return (left.params, left.entry_point, len(left.levels)) == (
        right.params,
        right.entry_point,
        len(right.levels),
    ) and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(left.levels, right.levels, strict=True)
        for name in arrays
    )


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 3), st.booleans())
def test_columns_hold_a_graph(graph: HnswGraph, before: int, chunked: bool) -> None:
    batch, metadata = graph.to_columns()
    assert batch.schema == GRAPH_SCHEMA
    assert len(json.loads(metadata)["level_offsets"]) == graph.params.max_level + 1
    # As it comes from the file: a piece of a longer table, in any number of chunks.
    table = pa.Table.from_batches([batch.slice(0, before), batch]).slice(min(before, batch.num_rows))
    assert same(HnswGraph.from_columns(table if chunked else batch, metadata, "the test"), graph)


def test_a_partition_without_rows_has_no_graph() -> None:
    batch, metadata = build_graph(POINTS[:0], by_l2=True).to_columns()
    assert (batch.num_rows, metadata) == (0, "")
    assert len(HnswGraph.from_columns(batch, metadata, "the test")) == 0


def test_what_stock_leaves_out_may_be_missing() -> None:
    batch, metadata = GRAPH.to_columns()
    said = json.loads(metadata)
    said["level_offsets"] = said["level_offsets"][: len(GRAPH.levels) + 1]
    del said["params"]["prefetch_distance"]
    read = HnswGraph.from_columns(batch.drop_columns(["_distance"]), json.dumps(said), "the test")
    assert np.array_equal(read.levels[0].neighbors, GRAPH.levels[0].neighbors)
    assert not read.levels[0].distances.any()


def test_graphs_of_writers_that_did_not_count_node_0() -> None:
    """Stock of 2025: node 0 is the entry point and on every level, but the offsets count it on level 0 only."""
    *below, top = (_with_node_0(level) for level in GRAPH.levels)
    levels = (*below, *[top] * (GRAPH.params.max_level - len(below)))
    batch, metadata = HnswGraph(GRAPH.params, 0, levels).to_columns()
    said = json.loads(metadata)
    said["level_offsets"] = [offset - max(0, level - 1) for level, offset in enumerate(said["level_offsets"])]
    read = HnswGraph.from_columns(batch, json.dumps(said), "the test")
    assert [len(level.nodes) for level in read.levels] == [len(level.nodes) for level in levels]
    _, found = HnswSearcher(read, NodeVectors.of_points(POINTS, by_l2=True)).search(POINTS[:50], 1, 30)
    assert np.mean(found[:, 0] == np.arange(50)) > 0.9


def _with_node_0(level: Level) -> Level:
    if level.nodes[0] == 0:
        return level
    nodes, counts = np.concatenate([[0], level.nodes]), np.concatenate([[0], level.counts])
    return Level.of_lists(nodes, np.repeat(np.arange(len(nodes)), counts), level.neighbors, level.distances)


def changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[pa.RecordBatch, Any], Any]:
    """Damage the flat values of a column."""

    def damage(batch: pa.RecordBatch, said: Any) -> tuple[pa.RecordBatch, Any]:
        column = batch.column(name)
        is_list = pa.types.is_list(column.type)
        values = change((column.flatten() if is_list else column).to_numpy().copy())
        array = pa.ListArray.from_arrays(column.offsets, pa.array(values)) if is_list else pa.array(values)
        return batch.set_column(batch.schema.get_field_index(name), name, array), said

    return damage


def told(key: str, value: Any) -> Callable[[pa.RecordBatch, Any], Any]:
    def damage(batch: pa.RecordBatch, said: Any) -> tuple[pa.RecordBatch, Any]:
        return batch, said | {key: value}

    return damage


def at(place: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values[place] = value
        return values

    return change


def one_long_list(batch: pa.RecordBatch, said: Any) -> tuple[pa.RecordBatch, Any]:
    offsets = np.full(batch.num_rows + 1, len(batch.column("__neighbors").flatten()), dtype=np.int32)
    offsets[0] = 0
    lists = [pa.ListArray.from_arrays(offsets, batch.column(name).flatten()) for name in ("__neighbors", "_distance")]
    return pa.record_batch([batch.column(0), *lists], schema=batch.schema), said


BOUNDS = [0, *np.cumsum([len(level.nodes) for level in GRAPH.levels]).tolist()]
DAMAGE: dict[str, Callable[[pa.RecordBatch, Any], Any]] = {
    "nodes out of order": changed("__vector_id", lambda ids: ids[::-1]),
    "a node twice": changed("__vector_id", at(5, 4)),
    "a node beyond the partition": changed("__vector_id", at(-1, 5000)),
    "a top node from nowhere": changed(
        "__vector_id", at(BOUNDS[2], int(np.setdiff1d(np.arange(900), GRAPH.levels[1].nodes)[0]))
    ),
    "nodes of another type": changed("__vector_id", lambda ids: ids.astype(np.uint64)),
    "a neighbor beyond the partition": changed("__neighbors", at(7, 900)),
    "a neighbor not on its level": changed(
        "__neighbors", at(-1, int(np.setdiff1d(np.arange(900), GRAPH.levels[1].nodes)[0]))
    ),
    "neighbors of another type": changed("__neighbors", lambda ids: ids.astype(np.uint64)),
    "a node with all neighbors": one_long_list,
    "rows missing": lambda batch, said: (batch.slice(0, 800), said),
    "a row too many": lambda batch, said: (pa.concat_batches([batch, batch.slice(0, 1)]), said),
    "no rows": lambda batch, said: (batch.slice(0, 0), said),
    "distances missing": lambda batch, said: (
        batch.set_column(2, "_distance", pa.array([[0.0]] * batch.num_rows, pa.list_(pa.float32()))),
        said,
    ),
    "no node column": lambda batch, said: (batch.drop_columns(["__vector_id"]), said),
    "NULL neighbors": lambda batch, said: (
        batch.set_column(1, "__neighbors", pa.nulls(batch.num_rows, pa.list_(pa.uint32()))),
        said,
    ),
    "falling offsets": told("level_offsets", [0, 900, 400]),
    "offsets that start late": told("level_offsets", [1, *BOUNDS[1:]]),
    "no offsets": told("level_offsets", []),
    "offsets that are no numbers": told("level_offsets", "abc"),
    "an entry point outside": told("entry_point", 900),
    "an entry point below 0": told("entry_point", -1),
    "no entry point": told("entry_point", None),
    "no params": told("params", None),
    "absurd params": told("params", {"max_level": 7, "m": -3, "ef_construction": 0}),
    "params of another type": told("params", {"max_level": "7", "m": [], "ef_construction": 150}),
    "metadata of another form": lambda batch, said: (batch, [said]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_noticed(damage: Callable[[pa.RecordBatch, Any], Any]) -> None:
    batch, metadata = GRAPH.to_columns()
    assert len(GRAPH.levels) > 2
    rows, said = damage(batch, json.loads(metadata))
    with pytest.raises(DamagedFile, match="partition 3"):
        HnswGraph.from_columns(rows, json.dumps(said), "partition 3")


@pytest.mark.parametrize("metadata", ["", "{", "null", "[]", '{"entry_point":0}'])
def test_metadata_that_is_none(metadata: str) -> None:
    with pytest.raises(DamagedFile):
        HnswGraph.from_columns(GRAPH.to_columns()[0], metadata, "the test")


@pytest.mark.parametrize("wrong", [{"m": 3}, {"m": 40, "ef_construction": 39}, {"max_level": 0}])
def test_parameters_no_graph_can_have(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        HnswParams(**wrong)
