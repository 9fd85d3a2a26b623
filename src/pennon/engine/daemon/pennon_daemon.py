"""Starts PySpark's worker daemon from the installed pyspark.

Spark puts its own zip of pyspark first on the path of Python workers. A zip holds no bytecode, so every worker would
compile pyspark again (0.8 s instead of 0.2 s). This module is outside the package because the daemon forks: importing
pennon here would load libraries that start threads.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]

from pyspark.daemon import manager  # noqa: E402  the path has to be clean first

if __name__ == "__main__":
    manager()
