"""Lance tables in Spark: the data source `pennon`, and SQL functions for searches and indices.

`register(spark)` registers both with a session, classic or Connect. Pennon must be installed on executors, as for all
its jobs.
"""

from __future__ import annotations

import pyspark

from pennon.engine.session import check_version

# Before the modules below: they need classes that older versions lack.
check_version(pyspark.__version__, (4, 0), "pennon.spark, with the data source and the SQL functions,")

from pennon.spark.register import ReadExplanation, explain, read, register  # noqa: E402

__all__ = ["ReadExplanation", "explain", "read", "register"]
