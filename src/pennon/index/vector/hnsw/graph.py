"""The HNSW graph of one partition, and the rows it is stored as in `index.idx`.

A node is a vector's position in its partition (0-based, uint32), never a row id. The rows are `__vector_id` uint32,
`__neighbors` list<uint32> and `_distance` list<float>: level 0 first, which holds every node, then level 1, 2 ..., each
with ascending nodes and a subset of the one below. `_distance` is the distance to each neighbor on the quantized
vectors; no search needs it, newer readers use it when rows are remapped.

In addition to the rows, a partition has one JSON string in the list `lance:hnsw`, empty for a partition without rows:
`{"entry_point", "params": {"max_level", "m", "ef_construction", "prefetch_distance"}, "level_offsets": [0, n0, n0 + n1,
...]}`, with max_level + 1 offsets, counted from the partition's first row and repeated for empty levels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.errors import DamagedFile, InvalidArgument
from pennon.index.vector.vectors import Floats, Positions

Nodes = npt.NDArray[np.uint32]

NODE_COLUMN, NEIGHBOURS_COLUMN, DISTANCES_COLUMN = "__vector_id", "__neighbors", "_distance"
GRAPH_SCHEMA = pa.schema(
    [
        pa.field(NODE_COLUMN, pa.uint32()),
        pa.field(NEIGHBOURS_COLUMN, pa.list_(pa.field("item", pa.uint32()))),
        pa.field(DISTANCES_COLUMN, pa.list_(pa.field("item", pa.float32()))),
    ]
)

MIN_M = 4

# In units of m: pylance's lists have at most 2m + 1 items, Pennon's a few more. faiss pads all lists to the longest
# one, so a single oversized list would multiply a partition's memory.
LONGEST_LIST = 8


@dataclass(frozen=True)
class HnswParams:
    """The parameters of a graph: m neighbors for a new node, at most 2m on level 0, chosen from ef_construction
    nearest."""

    max_level: int = 7
    m: int = 20
    ef_construction: int = 150
    prefetch_distance: int | None = 2

    def __post_init__(self) -> None:
        if self.m < MIN_M:
            raise InvalidArgument(f"m={self.m} is too small for an HNSW graph", f"Use m >= {MIN_M}")
        if self.ef_construction < self.m:
            raise InvalidArgument(f"ef_construction={self.ef_construction} is less than m={self.m}", "Use at least m")
        if self.max_level < 1:
            raise InvalidArgument(f"max_level={self.max_level} leaves no level", "Use max_level >= 1")


@dataclass(frozen=True, eq=False)
class Level:
    """Neighbors of nodes[i]: neighbors[offsets[i]:offsets[i + 1]], all of them nodes of this level."""

    nodes: Nodes
    offsets: Positions
    neighbors: Nodes
    distances: Floats

    @classmethod
    def of_lists(
        cls,
        nodes: npt.NDArray[np.integer[Any]],
        owners: npt.NDArray[np.integer[Any]],
        neighbors: npt.NDArray[np.integer[Any]],
        distances: Floats,
    ) -> Level:
        """A level from single links; owners are ascending positions in `nodes`."""
        offsets = np.zeros(len(nodes) + 1, dtype=np.int64)
        np.cumsum(np.bincount(owners, minlength=len(nodes)), out=offsets[1:])
        return cls(nodes.astype(np.uint32), offsets, neighbors.astype(np.uint32), distances)

    @property
    def counts(self) -> Positions:
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        return int(self.counts.max(initial=0))

    @property
    def nbytes(self) -> int:
        return self.nodes.nbytes + self.offsets.nbytes + self.neighbors.nbytes + self.distances.nbytes


@dataclass(frozen=True, eq=False)
class HnswGraph:
    params: HnswParams
    entry_point: int
    levels: tuple[Level, ...]  # not empty, level 0 first; no levels in a partition without rows

    def __len__(self) -> int:
        return len(self.levels[0].nodes) if self.levels else 0

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self.levels)

    def node_levels(self) -> npt.NDArray[np.int32]:
        """The highest level of every node."""
        found = np.zeros(len(self), dtype=np.int32)
        for number, level in enumerate(self.levels):
            found[level.nodes] = number
        return found

    def to_columns(self) -> tuple[pa.RecordBatch, str]:
        """The partition's rows and its JSON string."""
        if not self.levels:
            return pa.RecordBatch.from_pylist([], schema=GRAPH_SCHEMA), ""
        nodes = np.concatenate([level.nodes for level in self.levels])
        counts = np.concatenate([level.counts for level in self.levels])
        offsets = np.zeros(len(nodes) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        columns = [
            pa.array(nodes),
            _lists(offsets, np.concatenate([level.neighbors for level in self.levels])),
            _lists(offsets, np.concatenate([level.distances for level in self.levels])),
        ]
        return pa.record_batch(columns, schema=GRAPH_SCHEMA), self._metadata()

    def _metadata(self) -> str:
        sizes = np.zeros(self.params.max_level, dtype=np.int64)
        sizes[: len(self.levels)] = [len(level.nodes) for level in self.levels]
        level_offsets = [0, *np.cumsum(sizes).tolist()]
        known = {"entry_point": self.entry_point, "params": asdict(self.params), "level_offsets": level_offsets}
        return json.dumps(known, separators=(",", ":"))

    @classmethod
    def from_columns(cls, columns: pa.Table | pa.RecordBatch, metadata: str, where: str) -> HnswGraph:
        """A partition's graph from its rows; `where` names file and partition in errors.

        Everything is checked: faiss follows neighbors without bounds checks, and an invalid one would read out of
        bounds.
        """
        try:
            return _from_columns(columns, metadata)
        except (ArithmeticError, AttributeError, InvalidArgument, LookupError, TypeError, ValueError) as error:
            remedy = "Rebuild the index with create_index(replace=True)"
            raise DamagedFile(f"{where} does not hold a valid HNSW graph: {error}", remedy) from error


def _from_columns(columns: pa.Table | pa.RecordBatch, metadata: str) -> HnswGraph:
    if not columns.num_rows and not metadata:
        return HnswGraph(HnswParams(), 0, ())
    known: dict[str, Any] = json.loads(metadata)
    params = _params(known)
    nodes = _values(columns, NODE_COLUMN, pa.uint32())
    offsets, neighbors = _list_column(columns, NEIGHBOURS_COLUMN, pa.uint32())
    if DISTANCES_COLUMN in columns.schema.names:
        distance_offsets, distances = _list_column(columns, DISTANCES_COLUMN, pa.float32())
        if not np.array_equal(offsets, distance_offsets):
            raise ValueError("nodes with different numbers of neighbors and distances")
    else:
        distances = np.zeros(len(neighbors), dtype=np.float32)
    bounds = _level_bounds(nodes, known["level_offsets"])
    levels = tuple(_cut(nodes, offsets, neighbors, distances, *rows) for rows in pairwise(bounds))
    graph = HnswGraph(params, int(known["entry_point"]), levels)
    _check(graph)
    return graph


def _level_bounds(nodes: Nodes, level_offsets: Sequence[int]) -> list[int]:
    """The rows at which levels begin, and the end of the last.

    The nodes alone determine them: they ascend within a level, and the next level, a subset, cannot begin above the
    last node. So the offsets are only checked against them. Writers of 2025 put node 0 on every level but did not count
    it above level 0; such graphs are accepted.
    """
    recorded = np.diff(np.array(level_offsets, dtype=np.int64))
    bounds = [0, *(np.flatnonzero(nodes[1:] <= nodes[:-1]) + 1).tolist(), len(nodes)]
    sizes = np.diff(bounds)
    uncounted = sizes - (np.arange(len(sizes)) > 0)
    if level_offsets[0] != 0 or not (
        np.array_equal(np.trim_zeros(recorded, "b"), sizes) or (len(sizes) > 1 and np.array_equal(recorded, uncounted))
    ):
        raise ValueError(f"level offsets {list(level_offsets)} that do not fit its rows")
    return bounds


def _cut(nodes: Nodes, offsets: Positions, neighbors: Nodes, distances: Floats, start: int, stop: int) -> Level:
    own = offsets[start : stop + 1]
    links = slice(own[0], own[-1])
    return Level(nodes[start:stop], own - own[0], neighbors[links], distances[links])


def _check(graph: HnswGraph) -> None:
    count = len(graph)
    if not count or not np.array_equal(graph.levels[0].nodes, np.arange(count)):
        raise ValueError("a level 0 that does not hold every node once, in order")
    if not 0 <= graph.entry_point < count:
        raise ValueError(f"entry point {graph.entry_point} of {count} nodes")
    tops = np.zeros(count, dtype=np.int32)
    for number, level in enumerate(graph.levels[1:], 1):
        if level.nodes[-1] >= count or (tops[level.nodes] != number - 1).any():
            raise ValueError(f"nodes on level {number} that are not on the level below")
        tops[level.nodes] = number
    for number, level in enumerate(graph.levels):
        if level.neighbors.max(initial=0) >= count or (tops[level.neighbors] < number).any():
            raise ValueError(f"neighbors that are not on level {number}")
        if level.longest > LONGEST_LIST * graph.params.m:
            raise ValueError(f"a node with {level.longest} neighbors for m = {graph.params.m}")


def _lists(offsets: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _list_column(
    columns: pa.Table | pa.RecordBatch, name: str, item: pa.DataType
) -> tuple[Positions, npt.NDArray[Any]]:
    column = _column(columns, name)
    if not pa.types.is_list(column.type) or column.type.value_type != item:
        raise TypeError(f"{name} of type {column.type}")
    values = column.flatten()
    if column.null_count or values.null_count:
        raise ValueError(f"NULLs in {name}")
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], values.to_numpy()


def _values(columns: pa.Table | pa.RecordBatch, name: str, type_: pa.DataType) -> npt.NDArray[Any]:
    column = _column(columns, name)
    if column.type != type_ or column.null_count:
        raise TypeError(f"{name} of type {column.type} with {column.null_count} NULLs")
    return column.to_numpy()


def _column(columns: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    column = columns.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def params_of(metadata: str) -> HnswParams:
    """The parameters in the metadata of a graph."""
    return _params(json.loads(metadata))


def _params(known: dict[str, Any]) -> HnswParams:
    recorded: dict[str, Any] = {"prefetch_distance": None} | known["params"]
    return HnswParams(**{field.name: recorded[field.name] for field in fields(HnswParams)})
