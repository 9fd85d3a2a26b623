"""What is in the wheel and the sdist, and whether the wheel works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.support.distribution import ROOT, build, repository_files

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git work tree")
    target = tmp_path_factory.mktemp("dist")
    build(target)
    return target


def wheel(dist: Path) -> zipfile.ZipFile:
    (path,) = dist.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_every_file_of_the_package_and_no_other(dist: Path) -> None:
    package = {name.removeprefix("src/") for name in repository_files() if name.startswith("src/")}
    with wheel(dist) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == package
    assert {"pennon/py.typed", "pennon/format/pb/lance.proto", "pennon/format/pb/lance_pb2.pyi"} <= found


def test_the_wheel_names_its_license_its_command_and_its_readme(dist: Path) -> None:
    with wheel(dist) as archive:
        info = {
            name.partition(".dist-info/")[2]: archive.read(name) for name in archive.namelist() if ".dist-info/" in name
        }
    assert b"pennon = pennon.cli:main" in info["entry_points.txt"]
    assert {"licenses/LICENSE", "licenses/NOTICE"} <= set(info)
    metadata = message_from_bytes(info["METADATA"])
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert str(metadata.get_payload()).startswith("# Pennon")


def test_the_sdist_has_every_file_of_the_repository(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        found = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    assert not set(repository_files()) - found
    added = {name for name in found - set(repository_files()) if not name.startswith("src/pennon.egg-info/")}
    assert added == {"PKG-INFO", "setup.cfg"}


def test_links_of_the_readme_work_outside_the_repository() -> None:
    """A package index shows the page without the files next to it. The picture is replaced by its text there."""
    readme = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", readme)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


@pytest.mark.heavy
def test_the_wheel_works_in_a_clean_environment(dist: Path, tmp_path: Path) -> None:
    """Installed as users install it: with the newest dependencies that it allows, not those of the lock file."""
    (path,) = dist.glob("*.whl")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    _run(tmp_path, python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(path))
    _run(tmp_path, python, "-m", "pip", "check")
    command = environment / "bin" / "pennon"
    assert _run(tmp_path, command, "--version").startswith("pennon ")
    shown = _run(tmp_path, command, "demo", "--rows", "200000", "--keep", "demo")
    assert "200,000 events" in shown
    listed = json.loads(_run(tmp_path, command, "indices", "demo/events.lance", "--output", "json"))
    assert listed
    where = _run(tmp_path, python, "-c", "import pennon; print(pennon.__file__)")
    assert where.startswith(str(environment))


def _run(directory: Path, *command: str | Path) -> str:
    """The output, in an environment without this repository in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    done = subprocess.run([*map(str, command)], cwd=directory, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
