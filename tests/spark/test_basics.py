"""Reading, writing and SQL through Spark, as every version that has Python data sources does them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import pennon.spark


def test_read_write_and_sql(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(1000), "word": [f"w{i % 7}" for i in range(1000)]}), uri)
    pennon.open(uri).create_index("id")
    frame = spark.read.format("pennon").option("filter", "id < 10").load(uri)
    assert sorted(row.id for row in frame.where("word = 'w3'").collect()) == [3]
    assert pennon.spark.read(spark, uri, ["id"], "id >= 990").count() == 10
    spark.read.format("pennon").load(uri).where("id % 2 = 0").write.format("pennon").mode("append").save(uri + "2")
    assert lance.dataset(uri + "2").count_rows() == 500
    indices = spark.sql(f"SELECT name FROM pennon_indices('{uri}')").collect()
    assert [row.name for row in indices] == ["id_idx"]
