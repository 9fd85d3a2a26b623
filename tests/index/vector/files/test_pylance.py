"""What stock builds, Pennon reads as stock does, and with stock's model it writes the same codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.index.vector.files.details import VectorDetails
from pennon.index.vector.files.storage import VectorFiles
from pennon.index.vector.metric import FLOAT_METRICS, Metric
from pennon.index.vector.quantizers.rabitq.quantizer import ADD_EXTRA, EXTRA, SCALE_EXTRA, RabitQuantizer
from pennon.index.vector.vectors import Vectors, to_matrix
from tests.support.vectors import (
    CASES,
    FLAT,
    Case,
    clustered,
    model_for_stock,
    open_files,
    pennon_nearest,
    row_ids,
    stock_index,
    stock_nearest,
    write_table,
)

ROWS, DIM, PARTITIONS = 3000, 32, 6
ELEMENTS = [np.float32, np.float16, np.float64]


@pytest.fixture(scope="module", params=ELEMENTS, ids=lambda element: np.dtype(element).name)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Vectors]:
    vectors = clustered(ROWS, DIM).astype(request.param)
    return write_table(tmp_path_factory.mktemp("stock") / "t.lance", vectors), vectors


@pytest.mark.parametrize("metric", list(FLOAT_METRICS))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_stock_index_answers_and_encodes_alike(table: tuple[str, Vectors], case: Case, metric: Metric) -> None:
    uri, vectors = table
    model = model_for_stock(case, vectors, metric, PARTITIONS)
    files = stock_index(uri, case, metric.value, PARTITIONS, **model)
    assert files.kind.name == case.kind
    same_neighbors(uri, files, vectors[::300] + vectors.dtype.type(0.1))
    same_codes(uri, files, vectors)


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 7, 8, 9])
def test_every_width_of_rabitq(tmp_path: Path, bits: int) -> None:
    # 40 dimensions are neither a power of two, which changes the rotation, nor a whole block of 64.
    vectors = clustered(2000, 40).astype(np.float32)
    uri = write_table(tmp_path / "t.lance", vectors)
    metric = list(FLOAT_METRICS)[bits % 3]
    files = stock_index(uri, Case("IVF_RQ", (("num_bits", bits),)), metric.value, 3)
    same_neighbors(uri, files, vectors[::400] + np.float32(0.1))
    same_codes(uri, files, vectors)


def test_rows_that_cannot_be_measured_are_left_out(tmp_path: Path) -> None:
    vectors = clustered(600, 8).astype(np.float32)
    vectors[1, 3], vectors[2, 0], vectors[3, 7] = np.nan, np.inf, -np.inf
    vectors[4], vectors[5] = 0, 1e-30
    lists: list[Any] = [list(row) for row in vectors.tolist()]
    lists[6], lists[7] = None, [1.0, None, *[0.5] * 6]
    column = pa.array(lists, pa.list_(pa.float32(), 8))
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"v": column}), uri)
    ids = row_ids(uri)
    items, whole = to_matrix(column)
    assert np.flatnonzero(~whole).tolist() == [6, 7]
    for metric in FLOAT_METRICS:
        files = stock_index(uri, FLAT, metric.value, 2)
        indexed = np.isin(ids, np.concatenate([files.read_partition(p).row_ids for p in range(2)]))
        if metric is Metric.COSINE:
            # Stock forgets the NULL item when it normalises and indexes the row as if the item were 0.
            assert indexed[7]
            indexed[7] = False
        np.testing.assert_array_equal(indexed, whole & metric.indexable(items), err_msg=metric)


def test_an_index_with_empty_partitions_is_read(tmp_path: Path) -> None:
    vectors = clustered(300, 8).astype(np.float32)
    uri = write_table(tmp_path / "t.lance", vectors)
    centroids = np.concatenate([vectors[:3], np.full((3, 8), 1e4, dtype=np.float32)])
    files = stock_index(uri, FLAT, "l2", 6, ivf_centroids=centroids)
    assert (files.layout.lengths[3:] == 0).all()
    assert len(files.read_partition(4)) == 0
    same_neighbors(uri, files, vectors[:5])


def test_details_say_what_the_files_say(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t.lance", clustered(1000, 16).astype(np.float32))
    for case, metric in zip(CASES, [*FLOAT_METRICS, *FLOAT_METRICS], strict=True):
        stock_index(uri, case, metric.value, 2)
        files = open_files(uri)
        assert recorded_details(uri) == VectorDetails.of(files.kind, files.quantizer)


def recorded_details(uri: str) -> VectorDetails | None:
    (segment,) = Snapshot.open(Location.of(uri)).manifest.user_segments
    details = VectorDetails.from_bytes(segment.details)
    assert segment.index_version == (details.kind.index_version if details else None)
    return details


def same_neighbors(uri: str, files: VectorFiles, queries: Vectors) -> None:
    if isinstance(files.quantizer, RabitQuantizer):
        nearly_same_neighbors(uri, files, queries)
        return
    for query, (ids, distances) in zip(queries, pennon_nearest(files, queries, 10, 3), strict=True):
        expected_ids, expected = stock_nearest(uri, query, 10, 3)
        tolerance = 3e-6 * np.abs(expected).max()
        np.testing.assert_allclose(distances, expected, atol=tolerance, rtol=0)
        # A neighbor only one side has must tie with the last.
        measured = dict(zip(expected_ids.tolist(), expected.tolist(), strict=True))
        measured |= dict(zip(ids.tolist(), distances.tolist(), strict=True))
        strangers = np.setxor1d(ids, expected_ids).tolist()
        assert all(measured[stranger] >= expected[-1] - 2 * tolerance for stranger in strangers)


def nearly_same_neighbors(uri: str, files: VectorFiles, queries: Vectors) -> None:
    """Stock sums rounded tables, to 16 bits in the accurate mode, and with several bits leaves out rows whose error
    bound is above the worst neighbor so far, which is rarely wrong."""
    shared = 0
    for query, (ids, distances) in zip(queries, pennon_nearest(files, queries, 10, 3), strict=True):
        expected_ids, expected = stock_nearest(uri, query, 10, 3, approx_mode="accurate")
        both, ours, theirs = np.intersect1d(ids, expected_ids, return_indices=True)
        tolerance = 1e-3 * np.abs(expected).max()
        np.testing.assert_allclose(distances[ours], expected[theirs], atol=tolerance, rtol=0)
        shared += len(both)
    assert shared >= 0.95 * 10 * len(queries)


def same_codes(uri: str, files: VectorFiles, vectors: Vectors) -> None:
    prepared = files.metric.prepare(vectors)
    assigned, distances = files.ivf.assign(prepared)
    position = {row_id: at for at, row_id in enumerate(row_ids(uri).tolist())}
    assert files.ivf.loss == pytest.approx(distances.sum(), rel=1e-4)
    for number in range(files.ivf.num_partitions):
        partition = files.read_partition(number)
        rows = np.array([position[row_id] for row_id in partition.row_ids.tolist()])
        assert (assigned[rows] == number).mean() > 0.999
        columns = files.quantizer.encode(prepared[rows], files.ivf.centroids, np.full(len(rows), number))
        for name, stored in partition.columns.items():
            if not isinstance(files.quantizer, RabitQuantizer):
                np.testing.assert_array_equal(columns[name], stored, err_msg=name)
            elif name in (EXTRA, ADD_EXTRA, SCALE_EXTRA):
                continue  # Pennon looks for the scale in fewer places, see test_rabitq_grid
            elif stored.dtype == np.uint8:
                # Signs of items next to 0. Those of float16 are rounded, so that more of them are: bits are counted.
                differing = columns[name] != stored
                if vectors.dtype == np.float16:
                    differing = np.unpackbits(np.bitwise_xor(columns[name], stored))
                assert differing.mean() <= 0.001, name
            else:
                # For float16 stock measures the residual before rounding it, and encodes it after.
                tolerance = 2e-3 if vectors.dtype == np.float16 else 1e-5
                assert np.median(np.abs(columns[name] - stored)) <= tolerance * np.abs(stored).max(), name
