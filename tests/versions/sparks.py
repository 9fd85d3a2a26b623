"""What works on which version of Spark: the tests that `make test-versions` runs on each, and the table in the docs.

`python -m tests.versions.sparks pyspark-3.5.9` prints the tests of that version, `--table` the table of the page
docs/versions.md, which a test compares with it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pennon.engine.older_sparks import version_of

# The versions that were run, oldest first; the last one is the locked one and runs the whole suite.
VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")


@dataclass(frozen=True)
class Feature:
    """What users call it, the tests that show it, and the oldest Spark that has it."""

    name: str
    tests: tuple[str, ...]
    since: tuple[int, int] = (3, 5)
    # Of what is missing, or done in another way, before a version.
    note: str = ""


FEATURES = (
    Feature(
        "tasks, exchange, killed workers, embedded and given sessions",
        ("tests/versions/test_other_pyspark.py", "tests/engine"),
        note="before 4.1 blocks are sent by the hash of a key",
    ),
    Feature("a worker Python like the driver's", ("tests/engine/test_worker_python.py",)),
    Feature(
        "builds of every family",
        (
            "tests/jobs/btree/test_interop.py",
            "tests/jobs/test_scalar_kinds_on_spark.py",
            "tests/jobs/vector/test_build.py",
        ),
    ),
    Feature("optimize, merges of segments", ("tests/jobs/test_optimize.py", "tests/jobs/vector/test_optimize.py")),
    Feature("maintenance, audit, names and counts of jobs", ("tests/jobs/test_work.py",)),
    Feature("kNN join", ("tests/jobs/knn_join/test_join.py",)),
    Feature("text join", ("tests/jobs/text_join/test_join.py",)),
    Feature("lookup join", ("tests/jobs/lookup_join/test_join.py",)),
    Feature("delete, update and merge", ("tests/jobs/merge/test_on_spark.py",)),
    Feature(
        "data source and SQL functions",
        ("tests/spark/test_basics.py",),
        since=(4, 0),
    ),
    Feature("streams, and the rest of the data source", ("tests/spark",), since=(4, 1)),
)


def tests_of(version: str) -> list[str]:
    """The tests that run on a version; a directory has all of its own."""
    chosen = [test for feature in FEATURES if version_of(version) >= feature.since for test in feature.tests]
    return [test for test in dict.fromkeys(chosen) if not any(test.startswith(f"{other}/") for other in chosen)]


def table() -> str:
    """In Markdown: a row for each feature, a column for each version."""
    head = ["what", *VERSIONS]
    lines = [_line(head), _line(["---"] * len(head))]
    for feature in FEATURES:
        works = ["yes" if version_of(version) >= feature.since else "no" for version in VERSIONS]
        lines.append(_line([f"{feature.name}; {feature.note}" if feature.note else feature.name, *works]))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    wanted = sys.argv[1]
    print(table() if wanted == "--table" else " ".join(tests_of(wanted.removeprefix("pyspark-"))))  # noqa: T201
