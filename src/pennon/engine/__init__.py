"""Spark as Pennon needs it: a session, a map over tasks, a columnar exchange, progress.

The only room that imports pyspark, and it does so on `Engine.attach`, because verbs that need no Spark must not pay
for the import.
"""

from typing import TYPE_CHECKING

from pennon.engine.engine import Engine
from pennon.engine.progress import PlainProgress, ProgressListener, RichProgress, progress_for_terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession as SparkSession

__all__ = ["Engine", "PlainProgress", "ProgressListener", "RichProgress", "progress_for_terminal"]
