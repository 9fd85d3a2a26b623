"""What a new process imports: only what its query needs, since that takes longer than the query."""

from __future__ import annotations

import json
import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon

pytestmark = pytest.mark.process

ROWS, DIMENSION = 4000, 16
# Packages, and the rooms of Pennon that build, search or maintain indices of other kinds.
HEAVY = ("lance", "faiss", "numba", "pandas", "pyspark")
OTHERS = ("vector.search", "vector.quantizers", "vector.options", "zones.segment", "bitmap.segment", "inverted.segment")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with indices of several kinds."""
    uri = str(tmp_path_factory.mktemp("new") / "t.lance")
    random = np.random.default_rng(5)
    vectors = pa.FixedSizeListArray.from_arrays(random.random(ROWS * DIMENSION, dtype=np.float32), DIMENSION)
    kinds, words = pa.array(random.choice(["a", "b"], ROWS)), pa.array([f"text {row}" for row in range(ROWS)])
    rows = {"id": np.arange(ROWS), "at": np.arange(ROWS), "kind": kinds, "text": words, "v": vectors}
    lance.write_dataset(pa.table(rows), uri, max_rows_per_file=1000)
    table = pennon.open(uri, engine="local")
    table.create_index("id")
    table.create_index("at", "ZONEMAP")
    table.create_index("kind", "BITMAP")
    table.create_index("text", "INVERTED")
    table.create_index("v", "IVF_FLAT", num_partitions=4)
    return uri


def imported(uri: str, query: str) -> set[str]:
    """The modules that a new process has imported after a query."""
    code = f"import json, sys, pennon\ntable = pennon.open({uri!r})\n{query}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "query", ["table.version", "assert table.count('id = 77') == 1", "assert table.scan('id = 77', ['at']).num_rows"]
)
def test_a_lookup_imports_neither_pylance_nor_other_kinds(uri: str, query: str) -> None:
    modules = imported(uri, query)
    assert not modules & set(HEAVY)
    assert not [name for name in modules if name.startswith(tuple(f"pennon.index.{other}" for other in OTHERS))]
    assert not [name for name in modules if name.startswith("pennon.jobs.") and name.endswith(".jobs")]


def test_a_search_imports_no_other_kind(uri: str) -> None:
    modules = imported(uri, "assert table.search('v', [0.5] * 16, 3).num_rows == 3")
    assert not modules & {"pyspark", "pydantic"}
    other = [f"pennon.index.{kind}.segment" for kind in ("btree", "zones", "bitmap", "ngram", "rtree", "inverted")]
    assert not modules & set(other)
