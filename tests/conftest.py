"""Fixtures every test may use, what runs where, and the count of what was tried."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

from pennon import secrets
from pennon.engine import SparkEngine
from pennon.testing.engines import in_process

# The S3 server of tests on object stores.
pytest_plugins = ("tests.support.object_store",)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
# A test with one of these fixtures needs a Spark session, or a server in a process of its own.
SPARK_FIXTURES = {"engine", "spark"}
PROCESS_FIXTURES = {"storage_options"}
# The modules that take longest come first, so that the processes of a run end at about the same time.
LONGEST_FIRST = (
    "jobs/vector/test_build.py",
    "docs/test_examples.py",
    "jobs/btree/test_merge.py",
    "faults/test_crashes.py",
    "test_histories.py",
    "hostile/test_fuzz.py",
    "test_store_failures.py",
    "jobs/vector/test_optimize.py",
    "jobs/btree/test_interop.py",
    "engine/test_session.py",
)
# Modules whose tests share no fixture but the session: each test goes to whichever process is free.
SPLIT = ("test_histories.py", "faults/test_crashes.py", "engine/test_session.py")

_tried: Counter[str] = Counter()
_without_processes: list[str] = []


@pytest.fixture(autouse=True)
def secrets_of_one_test() -> Iterator[None]:
    """Secrets are hidden for the rest of the process. A test that uses 'key' as a password must not change the texts
    that later tests compare."""
    with secrets.remembered():
        yield


@pytest.fixture(scope="session")
def engine() -> Iterator[SparkEngine]:
    """One embedded Spark session for the whole run; tables attach to it by themselves."""
    attached = SparkEngine.attach()
    yield attached
    attached.stop()


@pytest.fixture(scope="session")
def spark(engine: SparkEngine) -> SparkSession:
    """The same session, with Pennon's data source and functions."""
    session: Any = engine._cluster._spark  # pyright: ignore[reportPrivateUsage]
    if session.version < "4":
        return session  # which has no Python data sources
    import pennon.spark

    pennon.spark.register(session)
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    return session


@pytest.fixture
def process_engine() -> Iterator[None]:
    """Tables work in this process, where what is tested is not how work is distributed."""
    with in_process():
        yield


@pytest.fixture(scope="session")
def tally() -> Callable[[str, int], None]:
    """Counts what a test has tried, for the summary at the end: `tally("crashes", 12)`."""

    def count(what: str, number: int) -> None:
        _tried[what] += number

    return count


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make check` leaves out tests with the markers `spark` and `process`. Their fixtures add them; a test that starts
    a process by itself has the marker `process`."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & SPARK_FIXTURES:
            item.add_marker("spark")
        if fixtures & PROCESS_FIXTURES:
            item.add_marker("process")
    order = {HERE / name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


class ByFile(LoadFileScheduling):
    """The tests of a file share fixtures and stay together, except those of `SPLIT`."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if file.endswith(SPLIT) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test of `make check` that starts a process fails, and names the marker it lacks."""
    allowed = any(item.iter_markers("spark")) or any(item.iter_markers("process"))
    if not allowed:
        _without_processes.append(item.nodeid)
    try:
        return (yield)
    finally:
        _without_processes.clear()


def _watch_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if not _without_processes or event not in {"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system"}:
        return
    # The rules about the repository ask git which files are in it.
    if arguments and arguments[0] != "git":
        raise RuntimeError(f"{_without_processes[0]} starts a process ({arguments[0]}): mark it `process`")


sys.addaudithook(_watch_processes)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _tried:
        failed = len(terminalreporter.stats.get("failed", ())) + len(terminalreporter.stats.get("error", ()))
        terminalreporter.section(f"tried, {failed} tests failed" if failed else "tried, with nothing lost")
        for what, number in sorted(_tried.items()):
            terminalreporter.write_line(f"{number:>8,} {what}")
