"""A streaming query in a process of its own, to be killed: from one table to another, until it has read them all.

`python -m tests.support.streaming_query SOURCE TARGET CHECKPOINT`
"""

from __future__ import annotations

import sys

import pennon.spark
from pennon.engine import SparkEngine


def run(source: str, target: str, checkpoint: str) -> None:
    engine = SparkEngine.attach()
    spark = engine._cluster._spark  # pyright: ignore[reportPrivateUsage]
    pennon.spark.register(spark)
    limits = {"starting_version": "1", "max_versions_per_trigger": "1"}
    rows = spark.readStream.format("pennon").options(**limits).load(source)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    options = {"checkpointLocation": checkpoint, "maintain": "5"}
    query = rows.writeStream.format("pennon").options(**options).trigger(availableNow=True).start(target)
    query.awaitTermination()
    engine.stop()
    sys.stdout.write("finished\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(*sys.argv[1:])
