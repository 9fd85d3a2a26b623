"""Find and check the Java that Spark will start, because Spark's own error does not name what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pennon.errors import JavaNotFound

MINIMUM_VERSION = 17
REMEDY = (
    f"Install a Java runtime of version {MINIMUM_VERSION} or newer (for example the package openjdk-17-jre-headless "
    "or temurin-17-jre) and put it on PATH, or point JAVA_HOME at it"
)


@dataclass(frozen=True)
class Java:
    executable: str
    version: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java that Spark's scripts would use: `JAVA_HOME`, else `PATH`. Raises JavaNotFound."""
    executable = _executable(environment)
    version = _version(executable)
    if version < MINIMUM_VERSION:
        raise JavaNotFound(f"Spark needs Java {MINIMUM_VERSION} or newer, but {executable} is Java {version}", REMEDY)
    return Java(executable, version)


def _executable(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        # Spark does not fall back to PATH when JAVA_HOME is wrong, so neither may this check.
        executable = shutil.which("java", path=str(Path(home) / "bin"))
        if executable is None:
            raise JavaNotFound(f"JAVA_HOME is {home}, which has no bin/java", REMEDY)
        return executable
    executable = shutil.which("java", path=environment.get("PATH", os.defpath))
    if executable is None:
        raise JavaNotFound("Spark needs Java, but JAVA_HOME is not set and no java is on PATH", REMEDY)
    return executable


def _version(executable: str) -> int:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(f"{executable} does not run ({error})", REMEDY) from error
    output = f"{answer.stderr}\n{answer.stdout}"
    # Java 8 calls itself 1.8.
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if answer.returncode != 0 or version is None:
        # The stub that macOS ships without a Java prints an error instead of a version.
        first_line = next((line.strip() for line in output.splitlines() if line.strip()), "nothing")
        raise JavaNotFound(f"{executable} does not report its version; it printed: {first_line}", REMEDY)
    return int(version[1])
