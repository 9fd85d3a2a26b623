"""The choice of the engine that runs the jobs of a table: by name, by the environment, or Spark by default."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from pennon.engine.engine import Engine
from pennon.engine.local_engine import LocalEngine
from pennon.engine.progress import ProgressListener
from pennon.engine.spark_engine import SparkEngine
from pennon.errors import InvalidArgument, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK, LOCAL = ENGINES = ("spark", "local")
VARIABLE = "PENNON_ENGINE"


def choose_engine(
    name: str | None,
    spark: SparkSession | None = None,
    *,
    progress: ProgressListener | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Engine:
    """Choose an engine without starting it. `around` wraps the tasks that run in this process."""
    if spark is not None and not is_session(spark):
        remedy = "Give a pyspark.sql.SparkSession, or leave it out to use the active one"
        raise InvalidArgument(f"spark= takes a Spark session, not {type(spark).__name__}", remedy)
    # A session is an argument too, so it takes precedence over the environment.
    chosen = name or (SPARK if spark is not None else os.environ.get(VARIABLE) or SPARK)
    if chosen not in ENGINES:
        given = "engine=" if name else f"{VARIABLE}="
        raise InvalidArgument(f"unknown engine {given}{chosen!r}", f"Use {' or '.join(ENGINES)}")
    if chosen == SPARK:
        return SparkEngine(spark, progress=progress, around=around)
    if spark is not None:
        raise InvalidArgument("engine='local' does not use a Spark session", "Leave out spark=, or use engine='spark'")
    return LocalEngine(progress=progress, around=around)


def is_session(given: object) -> bool:
    """Whether it is a session of Spark, classic or Connect."""
    return _is_of_spark(given, "SparkSession")


def is_frame(given: object) -> bool:
    """Whether it is a Spark DataFrame, classic or Connect."""
    return _is_of_spark(given, "DataFrame")


def _is_of_spark(given: object, name: str) -> bool:
    # By name: importing the classes is slow, or needs packages that are not installed. pandas on Spark is another API.
    modules = [each.__module__ for each in type(given).__mro__ if each.__name__ == name]
    return any(module.startswith("pyspark.sql.") for module in modules)


def require_spark(engine: Engine, verb: str) -> SparkEngine:
    """The engine as a `SparkEngine`, for verbs that work on Spark DataFrames."""
    if not isinstance(engine, SparkEngine):
        raise SparkUnavailable(
            f"{verb} works on Spark DataFrames, and this table was opened with the local engine",
            f"Open it with engine='spark' (--engine spark), and unset {VARIABLE} if it names another engine",
        )
    return engine
