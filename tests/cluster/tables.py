"""A table with a column for every family of index, and filters that each family answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pennon.index.vector.vectors import to_lists
from tests.support.geometries import POSITION
from tests.support.vectors import clustered

DIM = 16
WORDS = [f"word{number}" for number in range(200)]

# Column, index type, options, and filters that the index answers.
FAMILIES: tuple[tuple[str, str, dict[str, Any], tuple[str, ...]], ...] = (
    ("k", "BTREE", {"ranges": 3}, ("k = 77", "k between 100 and 300", "k is null")),
    ("country", "BITMAP", {}, ("country = 'c3'", "country in ('c1', 'c9')")),
    ("tags", "LABEL_LIST", {}, ("array_has(tags, 't2')", "array_has_all(tags, ['t1', 't3'])")),
    ("ts", "ZONEMAP", {}, ("ts >= 2500 and ts < 2600",)),
    ("key", "BLOOMFILTER", {}, ("key = 'key1234'",)),
    ("code", "NGRAM", {}, ("contains(code, '-123')",)),
    ("body", "INVERTED", {}, ()),
    ("v", "IVF_PQ", {"num_partitions": 4, "num_sub_vectors": 4}, ()),
    ("place", "RTREE", {}, ("st_intersects(place, st_geomfromtext('POLYGON((0 0, 30 0, 30 30, 0 30, 0 0))'))",)),
)


def rows(count: int, start: int = 0) -> pa.Table:
    rng = np.random.default_rng(start)
    ids = np.arange(start, start + count)
    words = rng.integers(0, len(WORDS), (count, 8))
    places = pa.StructArray.from_arrays([pa.array(rng.uniform(-90, 90, count)) for _ in "xy"], fields=list(POSITION))
    geometry = pa.field("place", POSITION, metadata={"ARROW:extension:name": "geoarrow.point"})
    columns: dict[str, Any] = {
        "id": pa.array(ids),
        "k": pa.array(rng.integers(0, 1000, count), mask=ids % 50 == 7),
        "country": [f"c{number}" for number in rng.integers(0, 12, count)],
        "tags": [[f"t{n}" for n in sorted(set(some))] for some in rng.integers(0, 8, (count, 3)).tolist()],
        "ts": ids,
        "key": [f"key{number}" for number in ids],
        "code": [f"a-{number}-z" for number in ids],
        "body": [" ".join(WORDS[number] for number in line) for line in words.tolist()],
        "v": to_lists(clustered(count, DIM, start).astype(np.float32)),
        "place": places,
    }
    table = pa.table(columns)
    number = table.column_names.index("place")
    return table.set_column(number, geometry, table["place"])
