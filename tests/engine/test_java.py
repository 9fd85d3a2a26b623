"""Java is found the way Spark finds it, and its absence is told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pennon.engine.java import find_java
from pennon.errors import JavaNotFound

pytestmark = pytest.mark.process


def fake_java(home: Path, says: str, exit_code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\njava version "25-ea" 2025-09-16', 25),
    ],
)
def test_java_home_comes_first(tmp_path: Path, says: str, version: int) -> None:
    java = fake_java(tmp_path / "home", says)
    fake_java(tmp_path / "path", 'java version "1.8.0_392"')
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")})
    assert (found.executable, found.version) == (str(java), version)


def test_path_is_searched_without_java_home(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "17.0.15"')
    assert find_java({"PATH": str(java.parent)}).executable == str(java)


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"no java is on PATH.*openjdk-17.*JAVA_HOME"):
        find_java({"PATH": str(tmp_path)})


def test_java_home_without_java_is_not_mended_from_path(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "path", 'openjdk version "17.0.15"')
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME is .*empty, which has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path / "empty"), "PATH": str(java.parent)})


@pytest.mark.parametrize(("says", "version"), [('java version "1.8.0_392"', 8), ('openjdk version "11.0.2"', 11)])
def test_old_java_is_named(tmp_path: Path, says: str, version: int) -> None:
    java = fake_java(tmp_path, says)
    with pytest.raises(JavaNotFound, match=f"needs Java 17 or newer, but .* is Java {version}"):
        find_java({"PATH": str(java.parent)})


def test_java_that_does_not_work_is_quoted(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "Unable to locate a Java Runtime.", exit_code=1)
    with pytest.raises(JavaNotFound, match="Unable to locate a Java Runtime"):
        find_java({"PATH": str(java.parent)})
