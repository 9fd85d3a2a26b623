"""Other processes of a test: where they start and what they find."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**extra: str) -> dict[str, str]:
    """For such a process: it finds the tests, and its workers load the faults."""
    paths = [str(ROOT / "tests" / "faults" / "worker"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYSPARK_PYTHON": sys.executable} | extra
