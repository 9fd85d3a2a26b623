"""A session that knows Pennon's data source and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pennon.spark
from pennon.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(engine: SparkEngine) -> SparkSession:
    session: Any = engine._cluster._spark  # pyright: ignore[reportPrivateUsage]
    pennon.spark.register(session)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    return session
