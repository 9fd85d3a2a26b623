"""The archive of Spark's classes that the sessions of a test run share. With it a session takes half the CPU time to
start.

`python -m tests.support.class_archive` makes it, once for a release of Java and of PySpark; `tests/conftest.py` uses it
if it exists.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from pennon.engine.java import find_java
from pennon.engine.settings import CLASS_ARCHIVE
from pennon.errors import JavaNotFound


def archive_path() -> Path | None:
    """Where the archive of this Java and this PySpark is, or will be; None without Java."""
    try:
        java = Path(find_java().executable).resolve()
    except JavaNotFound:
        return None
    built = java.stat()
    fits = f"{java} {built.st_size} {built.st_mtime_ns} {pyspark.__version__} {pyspark.__path__}"
    return Path(sys.prefix) / f"spark-classes-{hashlib.sha256(fits.encode()).hexdigest()[:16]}.jsa"


def main() -> None:
    """Make the archive, if it is not there."""
    archive = archive_path()
    if archive is None or archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="spark-classes-") as directory:
        made = Path(directory) / archive.name
        os.environ |= {CLASS_ARCHIVE: str(made), "PENNON_IN_PROCESS_BYTES": "0"}
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        _load_classes(Path(directory))
        # A run without an archive is only slower.
        if made.exists():
            made.replace(archive)


def _load_classes(directory: Path) -> None:
    """Use Spark as tests do, and wait for the end of the JVM, which writes the archive last."""
    import lance

    import pennon
    import pennon.spark
    from pennon.engine import SparkEngine

    engine = SparkEngine.attach()
    session: Any = engine._cluster._spark  # pyright: ignore[reportPrivateUsage]
    pennon.spark.register(session)
    uri = str(directory / "t.lance")
    rows = pa.table({"k": range(100), "s": [f"s{number % 7}" for number in range(100)]})
    lance.write_dataset(rows, uri, max_rows_per_file=25)
    pennon.open(uri).create_index("k", ranges=2, rows_per_task=25)
    frame = session.read.format("pennon").load(uri)
    frame.where("k < 50").createOrReplaceTempView("t")
    session.sql("select s, count(*) n, sum(k) from t group by s having n > 1 order by s").toPandas()
    session.sql("select * from t a join t b on a.k = b.k where a.s in ('s1', 's2') limit 5").toArrow()
    frame.mapInArrow(lambda batches: batches, frame.schema).repartition(2, "k").write.mode("overwrite").format(
        "noop"
    ).save()
    session.createDataFrame(rows).write.mode("append").format("pennon").save(uri)
    engine.stop()
    gateway = pyspark.SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
    assert gateway is not None
    gateway.shutdown()
    process: Any = gateway.proc
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main()
