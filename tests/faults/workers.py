"""Faults in Spark's Python workers: a control file says at which point of a task what happens, once."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.faults.points import Points, watching

CONTROL = "PENNON_TEST_FAULTS"
# A worker dies, a task fails, a task is slow; and, where executors have processes of their own, one of them dies.
MODES = ("kill", "raise", "slow", "lose")
# Long enough for Spark to think of a task as slow and to start another attempt at it.
SLOW_SECONDS = 3.0

_installed: list[Any] = []


def install() -> None:
    """Watch the points of this worker for good."""
    control = Path(os.environ[CONTROL])
    seen: dict[str, Any] = {"token": "", "passed": 0}

    def reached(_number: int, _name: str) -> None:
        wanted = _read(control)
        if wanted is None:
            return
        if seen["token"] != wanted["token"]:
            seen.update(token=wanted["token"], passed=0)
        number = seen["passed"]
        seen["passed"] += 1
        if number == wanted["point"] and _first(control, wanted["token"]):
            _fail(wanted["mode"])

    watch = watching(Points(reached))
    watch.__enter__()
    _installed.append(watch)


def ask(control: Path, token: str, point: int, mode: str) -> None:
    """The next worker that reaches the point of this number, counted from now on, fails there."""
    draft = control.with_suffix(".draft")
    draft.write_text(json.dumps({"token": token, "point": point, "mode": mode}))
    draft.replace(control)


def happened(control: Path, token: str) -> bool:
    return _mark(control, token).exists()


def _fail(mode: str) -> None:
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "lose":
        executor = next(p for p in psutil.Process().parents() if p.name() == "java")
        executor.kill()
        time.sleep(60)
    elif mode == "raise":
        raise OSError("the disk is on fire, once")
    else:
        time.sleep(SLOW_SECONDS)


def _read(control: Path) -> dict[str, Any] | None:
    with suppress(FileNotFoundError):
        return json.loads(control.read_text())
    return None


def _first(control: Path, token: str) -> bool:
    try:
        os.close(os.open(_mark(control, token), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _mark(control: Path, token: str) -> Path:
    return control.with_name(f"{token}.happened")
