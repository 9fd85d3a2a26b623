"""Engines run the tasks of a job on Spark or in this process: a map over tasks, a columnar exchange, progress.

The only room except `spark` that imports pyspark, and only when a `SparkEngine` is first used, because verbs without
Spark must not pay for the import.
"""

from typing import TYPE_CHECKING

from pennon.engine.choice import choose_engine, is_frame, require_spark
from pennon.engine.engine import Engine, Exchanged
from pennon.engine.interactive import choose_listener
from pennon.engine.local_engine import LocalEngine
from pennon.engine.progress import ProgressListener
from pennon.engine.spark_engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

__all__ = [
    "Engine",
    "Exchanged",
    "LocalEngine",
    "ProgressListener",
    "SparkEngine",
    "choose_engine",
    "choose_listener",
    "is_frame",
    "require_spark",
]
