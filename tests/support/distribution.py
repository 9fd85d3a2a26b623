"""Builds wheel and sdist from the files of the repository, with the build backend that is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The backend replaces sys.argv.
_BUILD = """
import sys
from setuptools import build_meta

target = sys.argv[1]
build_meta.build_sdist(target)
build_meta.build_wheel(target)
"""


def repository_files() -> list[str]:
    """Files that are committed or about to be. Others (builds, caches) are no part of a distribution."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in filter(None, listed.split("\0")) if (ROOT / name).is_file())


def build(target: Path) -> None:
    """Put wheel and sdist into a directory, which replaces what was there."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in repository_files():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
        command = [sys.executable, "-c", _BUILD, str(target.absolute())]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
    sys.stdout.writelines(f"{path}\n" for path in sorted(Path(sys.argv[1]).iterdir()))
