"""The Python that Spark's workers run where the user has not chosen one.

PySpark starts `python3` from the PATH unless PYSPARK_PYTHON names another. In a virtual environment that is not
activated, that is the Python of the system, which has neither Pennon nor pyarrow. On a local master the workers run on
this machine, so the interpreter of this process is there and has what it needs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pennon.engine.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What PySpark starts by default, and the variable that names another.
DEFAULT, VARIABLE = "python3", "PYSPARK_PYTHON"
# Set by PySpark for `remote("local")`.
LOCAL_SERVER = "SPARK_LOCAL_REMOTE"
# Takes precedence over what is recorded with a function.
SETTING = "spark.sql.execution.pyspark.python"

_changing = threading.RLock()
# Jobs that run on a Connect session for which the setting was made.
_jobs: Counter[str] = Counter()


@contextmanager
def drivers_python(spark: SparkSession) -> Generator[None]:
    """Functions given to Spark within are run by the interpreter of this process, if the master is local and the user
    has not chosen another. Spark records the interpreter with each function, so functions given to it later are not
    affected.
    """
    if is_connect(spark) or not sys.executable or VARIABLE in os.environ:
        yield
        return
    context = spark.sparkContext
    if context.pythonExec != DEFAULT or not (context.master or "").startswith("local"):
        yield
        return
    with _changing:
        context.pythonExec = sys.executable
        try:
            yield
        finally:
            context.pythonExec = DEFAULT


@contextmanager
def drivers_python_of_connect(spark: SparkSession) -> Generator[None]:
    """The same for jobs that run within, on a Connect server that PySpark started in this process. The server records
    no interpreter with a function, but a setting of the session names it: it is set while such a job runs."""
    if not is_connect(spark) or LOCAL_SERVER not in os.environ or not sys.executable or VARIABLE in os.environ:
        yield
        return
    session: Any = spark
    with _changing:
        chosen = not _jobs[session.session_id] and spark.conf.get(SETTING, None)
        if not chosen:
            _jobs[session.session_id] += 1
            spark.conf.set(SETTING, sys.executable)
    try:
        yield
    finally:
        with _changing:
            if not chosen:
                _jobs[session.session_id] -= 1
                if not _jobs[session.session_id]:
                    spark.conf.unset(SETTING)
