"""Lance tables in Spark: the data source `pennon`, and SQL functions for searches and indices.

`register(spark)` registers both with a session, classic or Connect. Pennon must be installed on executors, as for all
its jobs.
"""

from __future__ import annotations

from pennon.spark.register import ReadExplanation, explain, read, register

__all__ = ["ReadExplanation", "explain", "read", "register"]
