"""Lance tables in Spark: the data source `pennon`, and SQL functions for searches and indices.

`register(spark)` makes both known to a session, classic or Connect. Executors need Pennon installed, as they do for
everything else it does.
"""

from __future__ import annotations

from pennon.spark.register import ReadExplanation, explain, read, register

__all__ = ["ReadExplanation", "explain", "read", "register"]
