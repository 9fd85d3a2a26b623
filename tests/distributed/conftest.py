"""A Spark session that is not Pennon's own: executors in processes of their own, or behind Spark Connect.

A process has one session, so `make test-distributed` runs these tests once for each; other runs leave them out.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

SESSION = os.environ.get("PENNON_TEST_SESSION")
collect_ignore_glob = [] if SESSION else ["test_*"]

# Two executors with a core and 2 GiB each, which share nothing with the driver but the file system.
MASTER = "local-cluster[2,1,2048]"
SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def connect() -> bool:
    return SESSION == "connect"


@pytest.fixture(scope="session", autouse=True)
def spark(connect: bool) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder
    with warnings.catch_warnings():
        # Libraries with threads warn of the fork by which the JVM is started.
        warnings.filterwarnings("ignore", ".*fork")
        if connect:
            session = builder.remote("local[2]").getOrCreate()
        else:
            for key, value in SETTINGS.items():
                builder = builder.config(key, value)
            session = builder.master(MASTER).getOrCreate()
    yield session
    session.stop()
