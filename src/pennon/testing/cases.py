"""What a history is about: the columns of its table, and the indices that it builds on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pennon.testing.writers import Writers

Build = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Column:
    """A column of a history's table, next to `id`, which is the number of a row."""

    values: Callable[[np.random.Generator, int], pa.Array]
    """That many values."""
    change: str | None = None
    """SQL that gives another value: `k + 1`. Without it, only rules that write values change the column."""
    condition: Callable[[int], str] | None = None
    """SQL that is true of a few rows, by a number from 0 to 19."""


@dataclass(frozen=True)
class IndexCase:
    """An index that histories build, maintain and compare with a scan after every step."""

    column: str
    builds: st.SearchStrategy[Build]
    """The type of index and the options of `Table.create_index`."""
    name: str
    filters: tuple[str, ...] = ()
    """Asked after every step, of Pennon and of pylance."""
    drawn_filters: st.SearchStrategy[str] | None = None
    """More of them; each history draws two."""
    delta_options: Callable[[lance.LanceDataset], Mapping[str, Any]] = field(default=lambda _: {})
    """The options of `Table.create_index` for a segment next to those of an existing index."""
    pylance_build: Callable[[lance.LanceDataset, int], None] | None = None
    """Builds the index by pylance, with a number for what is drawn. None where pylance does not build this kind."""
    refusals: tuple[str, ...] = ()
    """Texts of `InvalidArgument` with which a build may end, because deletions have left too few rows."""
    check: Callable[[Writers], None] | None = None
    """Compares other questions than filters with an oracle, after every step."""


def integers(name: str, distinct: int = 20, *, nulls: bool = True) -> Column:
    """An int64 column with few distinct values; NULL instead of 0."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        drawn = rng.integers(0, distinct, count)
        return pa.array(drawn, pa.int64(), mask=drawn == 0 if nulls else None)

    return Column(values, f"{name} + 1", lambda number: f"{name} = {number} or {name} = {number + 1}")


def strings(name: str, distinct: int = 15) -> Column:
    """A string column with few distinct values, `s1` to `s14`, and NULL."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        return pa.array([f"s{number}" if number else None for number in rng.integers(0, distinct, count)], pa.string())

    return Column(values, f"concat({name}, '0')", lambda number: f"{name} = 's{number}'")


def labels(name: str, distinct: int = 6) -> Column:
    """Lists of up to three labels, `a` to `f`, some repeated or NULL; empty lists and NULL lists."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        drawn = [rng.integers(0, distinct + 1, rng.integers(0, 4)) for _ in range(count)]
        lists = [[chr(96 + n) if n else None for n in some] for some in drawn]
        return pa.array([None if rng.random() < 0.1 else some for some in lists], pa.list_(pa.string()))

    return Column(values, f"array_append({name}, 'z')", lambda number: f"array_has({name}, '{chr(97 + number)}')")


def texts(name: str, words: tuple[str, ...]) -> Column:
    """A string column with texts of three of the words, and NULL."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        drawn, nulls = rng.integers(0, len(words), (count, 3)).tolist(), (rng.random(count) < 0.1).tolist()
        joined = [" ".join(words[number] for number in numbers) for numbers in drawn]
        return pa.array([None if null else text for text, null in zip(joined, nulls, strict=True)], pa.string())

    return Column(
        values, f"concat({name}, 'moved')", lambda number: f"contains({name}, '{words[number % len(words)]}')"
    )


class Points(pa.ExtensionType):
    """Points of GeoArrow, which pylance recognizes by the name of the type."""

    def __init__(self) -> None:
        coordinate = [pa.field(name, pa.float64(), nullable=False) for name in ("x", "y")]
        super().__init__(pa.struct(coordinate), "geoarrow.point")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Points:
        return cls()


def points(name: str, size: int = 10) -> Column:
    """Points with whole coordinates from 0 to `size`, and NULL."""

    def values(rng: np.random.Generator, count: int) -> pa.Array:
        x, y = rng.integers(0, size + 1, (2, count)).astype(np.float64)
        nulls, type_ = pa.array(rng.random(count) < 0.1), Points()
        stored = pa.StructArray.from_arrays([pa.array(x), pa.array(y)], fields=list(type_.storage_type), mask=nulls)
        return pa.ExtensionArray.from_storage(type_, stored)

    def condition(number: int) -> str:
        return f"st_intersects({name}, st_geomfromtext('LINESTRING({number} 0, {number} 4)'))"

    return Column(values, condition=condition)


def scalar_index(
    column: str,
    index_type: str,
    *,
    filters: tuple[str, ...] = (),
    drawn_filters: st.SearchStrategy[str] | None = None,
    options: Mapping[str, st.SearchStrategy[Any]] | None = None,
    pylance: bool = True,
    name: str | None = None,
) -> IndexCase:
    """A scalar index of the given type.

    Args:
        column: One of the columns of the history.
        index_type: As `Table.create_index` and, with `pylance`, `LanceDataset.create_scalar_index` take it.
        filters: Asked after every step.
        drawn_filters: Each history draws two of them and checks these as well.
        options: Options of `Table.create_index`, each with what it is drawn from.
        pylance: Whether pylance builds such an index too.
        name: `<column>_idx` unless given; two indices on one column need two names.
    """

    index_name = name or f"{column}_idx"

    def pylance_build(dataset: lance.LanceDataset, _: int) -> None:
        dataset.create_scalar_index(column, index_type, name=index_name, replace=True)  # pyright: ignore[reportArgumentType]

    drawn = st.fixed_dictionaries(dict(options or {}))
    return IndexCase(
        column,
        drawn.map(lambda chosen: (index_type, chosen)),
        index_name,
        filters,
        drawn_filters,
        pylance_build=pylance_build if pylance else None,
    )


def btree(column: str, *, filters: tuple[str, ...] = (), name: str | None = None) -> IndexCase:
    """A B-tree of small pages, in one to four ranges, built with and without an exchange."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "ranges": st.integers(1, 4),
        "batch_size": st.just(8),
        "rows_per_task": st.sampled_from([None, 50]),
    }
    return scalar_index(column, "BTREE", filters=filters, options=options, name=name)


def zone_map(column: str, *, filters: tuple[str, ...] = (), name: str | None = None) -> IndexCase:
    """A zone map of small zones."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "rows_per_zone": st.sampled_from([1, 7, 100]),
        "rows_per_task": st.sampled_from([None, 50]),
    }
    return scalar_index(column, "ZONEMAP", filters=filters, options=options, name=name)


def bloom_filter(column: str, *, filters: tuple[str, ...] = (), name: str | None = None) -> IndexCase:
    """Bloom filters of small zones, some of which have many false positives."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "number_of_items": st.sampled_from([7, 100]),
        "probability": st.sampled_from([0.5, 0.001]),
        "rows_per_task": st.sampled_from([None, 50]),
    }
    return scalar_index(column, "BLOOMFILTER", filters=filters, options=options, name=name)


def bitmap(column: str, *, filters: tuple[str, ...] = (), name: str | None = None) -> IndexCase:
    """A bitmap index, built with and without an exchange."""
    options = {"rows_per_task": st.sampled_from([None, 50])}
    return scalar_index(column, "BITMAP", filters=filters, options=options, name=name)


def label_list(column: str, *, filters: tuple[str, ...] = (), name: str | None = None) -> IndexCase:
    """An index of the labels in lists, built with and without an exchange."""
    options = {"rows_per_task": st.sampled_from([None, 50])}
    return scalar_index(column, "LABEL_LIST", filters=filters, options=options, name=name)


def rtree(column: str, *, filters: tuple[str, ...] = (), name: str | None = None) -> IndexCase:
    """An R-tree of small pages, built with and without an exchange."""
    options: dict[str, st.SearchStrategy[Any]] = {
        "page_size": st.sampled_from([2, 16, 4096]),
        "rows_per_task": st.sampled_from([None, 50]),
    }
    return scalar_index(column, "RTREE", filters=filters, options=options, name=name)
