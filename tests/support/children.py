"""Processes that a test starts and that end with it, whatever becomes of the test."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Seconds between the request to end and the end by force.
GRACE = 10


def start(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process with its output in a file. On Linux the kernel kills it when the process of the tests dies, so
    that not even a killed test run leaves servers behind."""
    setpriv = shutil.which("setpriv")
    guarded = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
    with log.open("ab") as output:
        return subprocess.Popen(
            guarded, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End them, by force if they take longer than some seconds."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, for the error of a server that did not start."""
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:]) if log.exists() else "no log"
