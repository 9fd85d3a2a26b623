"""Spark settings: those of an embedded session, and those recommended for a given session."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pennon.errors import InvalidArgument

CORES = "PENNON_LOCAL_CORES"
DRIVER_MEMORY = "PENNON_DRIVER_MEMORY"
CLASS_ARCHIVE = "PENNON_CLASS_ARCHIVE"

# The path of a unix socket is limited to about 100 bytes, and Spark appends a name of 42.
LONGEST_SOCKET_DIRECTORY = 60
# Attempts of a task before its job fails; a local session makes only one unless configured.
ATTEMPTS = 4


@dataclass(frozen=True)
class Speedup:
    """A setting that makes the exchange faster, Spark's default, and the gain."""

    key: str
    value: str
    default: str
    gain: str
    # Useful only if no network is between the executors.
    local_only: bool = False
    # The oldest Spark that has it.
    since: tuple[int, int] = (3, 5)


SPEEDUPS = (
    Speedup(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "false",
        "a third of the overhead of a Python task",
        since=(4, 1),
    ),
    Speedup(
        "spark.python.worker.reuse",
        "true",
        "true",
        "Python workers are started once, not for every task",
    ),
    Speedup(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "1m",
        "64m",
        "blocks reach the reducers in small batches that stay in the processor's cache",
        since=(4, 1),
    ),
    Speedup(
        "spark.shuffle.sort.bypassMergeThreshold",
        "0",
        "200",
        "blocks are written to disk once, not once for each destination and again to merge",
    ),
    Speedup(
        "spark.shuffle.compress",
        "false",
        "true",
        "blocks that never cross a network are not compressed",
        local_only=True,
    ),
    Speedup(
        "spark.shuffle.checksum.enabled",
        "false",
        "true",
        "blocks that never cross a network are not checksummed",
        local_only=True,
    ),
)


def advice(setting: Callable[[str, str], str], master: str | None, version: tuple[int, int] | None = None) -> list[str]:
    """Recommendations for a session with these settings; `setting` takes a key and Spark's default for it, `version` is
    Spark's. Default: any version."""
    local = master is not None and master.startswith("local")
    advised = [
        f"{speedup.key}={speedup.value}: {speedup.gain}"
        for speedup in SPEEDUPS
        if (local or not speedup.local_only)
        and (version is None or version >= speedup.since)
        and _exceeds(setting(speedup.key, speedup.default), speedup.value)
    ]
    if master is not None and re.fullmatch(r"local(\[(\d+|\*)\])?", master):
        advised.append(f"master local[N,{ATTEMPTS}]: with {master}, the first failure of a task fails its job")
    return advised


def embedded_settings() -> dict[str, str]:
    """All settings of a session that Pennon starts itself."""
    cores = local_cores()
    temporary = tempfile.gettempdir()
    sockets = _socket_directory(temporary)
    settings = {speedup.key: speedup.value for speedup in SPEEDUPS}
    settings |= {
        "spark.master": f"local[{cores},{ATTEMPTS}]",
        "spark.app.name": "pennon",
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY) or f"{max(2, cores // 4)}g",
        "spark.driver.extraJavaOptions": " ".join(_java_options(temporary)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": temporary,
        "spark.sql.warehouse.dir": str(Path(temporary) / "spark-warehouse"),
        "spark.buffer.size": "1048576",
        "spark.shuffle.file.buffer": "1m",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "pennon_daemon",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(_worker_path()),
        "spark.python.unix.domain.socket.enabled": "true" if sockets else "false",
    }
    if sockets:
        settings["spark.python.unix.domain.socket.dir"] = sockets
    return settings


def local_cores() -> int:
    wanted = os.environ.get(CORES)
    if not wanted:
        return os.cpu_count() or 1
    if not wanted.isdecimal() or int(wanted) == 0:
        raise InvalidArgument(f"{CORES} is {wanted!r}, not a number of cores", "Set it to 1 or more, or unset it")
    return int(wanted)


def _java_options(temporary: str) -> list[str]:
    options = [
        "-XX:+UseParallelGC",
        # Most of the JVM's code here runs briefly: the optimizing compiler costs more than it gains.
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f'"-Djava.io.tmpdir={temporary}"',
    ]
    archive = os.environ.get(CLASS_ARCHIVE)
    if archive:
        # The JVM checks that an archive fits its version and class path, and starts without it if not.
        use = "SharedArchiveFile" if Path(archive).exists() else "ArchiveClassesAtExit"
        options.append(f'"-XX:{use}={archive}"')
    return options


def _worker_path() -> list[str]:
    """The module path of workers: that of the driver, so that they can import what it can."""
    installed = {Path(path) for path in sysconfig.get_paths().values()}
    directories = [Path(entry).absolute() for entry in sys.path]
    package_home = Path(__file__).parents[2]
    extra = [path for path in [*directories, package_home] if path.is_dir() and path not in installed]
    return [str(path) for path in dict.fromkeys([Path(__file__).parent / "daemon", *extra])]


def _socket_directory(temporary: str) -> str | None:
    if os.name == "nt":
        return None
    candidates = (temporary, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp")
    fitting = (
        path for path in candidates if path and len(path) <= LONGEST_SOCKET_DIRECTORY and os.access(path, os.W_OK)
    )
    return next(fitting, None)


def _exceeds(current: str, advised: str) -> bool:
    """Whether a setting differs from the advised value; a size counts only if it is larger."""
    sizes = _bytes(current), _bytes(advised)
    if sizes[0] is None or sizes[1] is None:
        return current.strip().lower() != advised
    return sizes[0] > sizes[1]


def _bytes(value: str) -> int | None:
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", value.strip().lower())
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]] if match else None
