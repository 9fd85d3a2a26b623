"""Whoever runs the suite with another pyspark has that one, in the driver, in the JVM and in the workers."""

from __future__ import annotations

from typing import Any

import pyspark

from pennon.engine import SparkEngine
from tests.versions.versions import PYSPARK


def test_the_other_version_is_the_one_that_runs(engine: SparkEngine) -> None:
    assert PYSPARK
    version = PYSPARK.removeprefix("pyspark-")
    session: Any = engine._cluster._spark  # pyright: ignore[reportPrivateUsage]
    assert (pyspark.__version__, session.version) == (version, version)
    assert set(engine.map("version", lambda _: pyspark.__version__, range(4))) == {version}
