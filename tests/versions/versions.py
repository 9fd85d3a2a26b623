"""Other versions of pylance, each in processes of its own that see it before the installed one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("other_pylance.py")
# A directory with one installed package for each version: pylance-13.0.0, pyspark-4.2.1.
INSTALLED = os.environ.get("PENNON_TEST_VERSIONS")
# The one that this process has on its path, if it is not the locked one: pyspark-4.2.1.
PYSPARK = os.environ.get("PENNON_TEST_SPARK")
# The two majors before the one that Pennon itself works with.
PYLANCES = ("12.0.0", "13.0.0")


class Failed(Exception):
    """What the other version answered was an error."""


@dataclass(frozen=True)
class Stock:
    """One pylance; `path` comes before what is installed, None stands for the installed one."""

    version: str
    path: Path | None = None

    def ask(self, *requests: dict[str, Any]) -> list[Any]:
        """The answers, in order; raises `Failed` at the first error."""
        return [self._unwrap(answer) for answer in self.try_all(*requests)]

    def try_all(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """For each request `{"answer": ...}` or `{"error": ...}`. The process may die: that is an error of each."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if self.path:
            environment["PYTHONPATH"] = str(self.path)
        done = subprocess.run(
            [sys.executable, str(SCRIPT)],
            input=json.dumps(requests),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        if done.returncode:
            return [{"error": f"exit code {done.returncode}: {done.stderr[-2000:]}"}] * len(requests)
        return json.loads(done.stdout)

    @staticmethod
    def _unwrap(answer: dict[str, Any]) -> Any:
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["answer"]


def installed_pylance() -> Stock:
    return Stock(metadata.version("pylance"))


def other(version: str) -> Stock:
    assert INSTALLED, "make test-versions says where the other versions are"
    return Stock(version, Path(INSTALLED).resolve() / f"pylance-{version}")
