"""Values so frequent that no value cuts their rows into pieces: they are passed on as they are, a bounded number at a
time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pennon.index.btree import pages
from pennon.index.btree.pages import Run, merge_runs, sort_run

ROWS = 40_000


def drawn(kind: str, rng: np.random.Generator) -> pa.Array:
    """Half of the rows have one value, a tenth another."""
    dice = rng.random(ROWS)
    numbers = np.where(dice < 0.5, 500, np.where(dice < 0.6, 900, rng.integers(0, 1000, ROWS)))
    if kind == "zeros":
        return pa.array(np.where(dice < 0.5, 0.0, np.where(dice < 0.9, -0.0, numbers - 500.0)))
    if kind == "strings":
        return pa.array([f"{number:04d}" for number in numbers.tolist()])
    return pa.array(numbers)


@pytest.mark.parametrize("kind", ["numbers", "strings", "zeros"])
@pytest.mark.parametrize("count", [2, 5])
def test_merging_in_bounded_pieces(kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MERGE_ROWS", 1000)
    rng = np.random.default_rng(count)
    unsorted = [(drawn(kind, rng), np.arange(n * ROWS, (n + 1) * ROWS, dtype=np.uint64)) for n in range(count)]
    runs = [sort_run([chunk], chunk[0].type) for chunk in unsorted]
    merged = list(merge_runs(runs))
    whole = sort_run(unsorted, unsorted[0][0].type)
    values = pa.concat_arrays([run.values for run in merged])
    assert bits(values) == bits(whole.values)
    ids = np.concatenate([run.ids for run in merged])
    assert np.array_equal(np.sort(ids), np.sort(whole.ids))
    as_they_came = pa.concat_arrays([chunk for chunk, _ in unsorted])
    assert bits(values.take(pa.array(np.argsort(ids)))) == bits(as_they_came)
    # Pieces are cut by a sample, so some are larger than others; none holds a frequent value whole.
    assert max(run.rows for run in merged) < 5000


def test_one_value_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MERGE_ROWS", 1000)
    none = np.empty(0, dtype=np.uint64)
    runs = [Run(none, pa.array(np.full(ROWS, 7)), np.arange(n, 3 * ROWS, 3, dtype=np.uint64)) for n in range(3)]
    merged = list(merge_runs(runs))
    assert sum(run.rows for run in merged) == 3 * ROWS
    assert max(run.rows for run in merged) <= 1000


def bits(values: pa.Array) -> bytes | list[object]:
    return values.to_numpy().tobytes() if pa.types.is_floating(values.type) else values.to_pylist()
