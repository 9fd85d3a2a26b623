"""Fixtures every test may use, what runs where, and the count of what was tried."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from pennon import secrets
from pennon.engine import SparkEngine
from pennon.engine.settings import CLASS_ARCHIVE
from pennon.query.search.tuning import resolve
from pennon.testing.engines import in_process
from tests.support.class_archive import archive_path
from tests.support.long_tests import LONG_TESTS

# The S3 server of tests on object stores.
pytest_plugins = ("tests.support.object_store",)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No example fails because the machine is busy.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

HERE = Path(__file__).parent
# A test with one of these fixtures needs a Spark session, or a process of its own: a server, another pylance.
SPARK_FIXTURES = {"engine", "spark"}
# Set by `make test-versions`, which runs some modules with other releases of PySpark.
OTHER_SPARK = "PENNON_TEST_SPARK"
PROCESS_FIXTURES = {"storage_options", "stock"}
# `make check` runs one case of so many, of each test of the modules that take longest in it, and no test that is long.
SAMPLE = int(os.environ.get("PENNON_TEST_SAMPLE", "1"))
SAMPLED = (
    *("cli/", "faults/", "format/", "hostile/", "index/", "jobs/", "query/", "spark/"),
    *("test_histories.py", "test_local_tables.py"),
)
# The modules that take longest come first, so that the processes of a run end at about the same time.
LONGEST_FIRST = (
    "docs/test_examples.py",
    "jobs/lookup_join/test_join.py",
    "jobs/tune/test_tune.py",
    "engine/test_worker_python.py",
    "spark/test_streams.py",
    "spark/test_sql.py",
    "spark/test_read.py",
    "test_store_failures.py",
    "jobs/knn_join/test_join.py",
    "jobs/vector/test_build.py",
    "jobs/test_kinds_and_verbs.py",
    "query/filter/test_parse_agreement.py",
    "jobs/test_zones.py",
    "jobs/btree/test_merge.py",
    "jobs/inverted/test_life.py",
    "jobs/bitmap/test_interop.py",
    "jobs/btree/test_interop.py",
    "jobs/test_branches.py",
    "index/vector/hnsw/test_pylance.py",
    "spark/test_dataframe.py",
    "spark/test_write.py",
    "test_local_tables.py",
    "hostile/test_fuzz.py",
    "query/search/test_batch.py",
    "jobs/shared/test_stale_values.py",
    "query/text/test_pylance.py",
    "cli/test_join.py",
    "hostile_names/test_spark.py",
    "jobs/vector/test_several.py",
    "test_object_store.py",
    "secrets/test_verbs.py",
    "jobs/vector/test_optimize.py",
    "docs/test_site.py",
    "query/lookup/test_find.py",
    "jobs/rtree/test_interop.py",
    "jobs/ngram/test_interop.py",
    "index/vector/test_kmeans.py",
    "query/search/test_filter.py",
)
# Modules whose tests share no more than a session: they come last, and each test goes to whichever process is free.
SPLIT = ("faults/test_crashes.py", "test_histories.py", "engine/test_session.py")

# Tables of tests are small, and what is tested on Spark must run on Spark; `test_placement.py` tests the rule.
os.environ.setdefault("PENNON_IN_PROCESS_BYTES", "0")

# Modules and collected tests stay until the end: the collector of cycles need not go through them again and again.
gc.disable()
# New objects before the collector looks for cycles among them.
GARBAGE = 20_000

_tried: Counter[str] = Counter()
_without_processes: list[str] = []


@pytest.fixture(autouse=True)
def secrets_of_one_test() -> Iterator[None]:
    """Secrets are hidden for the rest of the process. A test that uses 'key' as a password must not change the texts
    that later tests compare."""
    with secrets.remembered():
        yield


@pytest.fixture(scope="session", autouse=True)
def few_turns() -> Iterator[None]:
    """Tests compare the recall of settings, not their times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "FEW_TURNS", 3)
        patch.setattr(resolve, "FINAL_TURNS", 3)
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


@pytest.fixture
def any_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tables work on Spark where a release of PySpark is tested, otherwise in this process."""
    if OTHER_SPARK in os.environ:
        request.getfixturevalue("engine")
        yield
        return
    with in_process():
        yield


@pytest.fixture(scope="session")
def tally() -> Callable[[str, int], None]:
    """Counts what a test has tried, for the summary at the end: `tally("crashes", 12)`."""

    def count(what: str, number: int) -> None:
        _tried[what] += number

    return count


def pytest_configure() -> None:
    """Every session of the run starts from one archive of classes, if `make` has made it. Other processes inherit the
    variable. Interrupts are not ignored, as a shell has it for what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if CLASS_ARCHIVE not in os.environ:
        archive = archive_path()
        if archive and archive.exists():
            os.environ[CLASS_ARCHIVE] = str(archive)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make check` leaves out tests with the markers `spark` and `process`. Their fixtures add them; a test that starts
    a process by itself has the marker `process`."""
    spark = SPARK_FIXTURES | ({"any_engine"} if OTHER_SPARK in os.environ else set())
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & spark:
            item.add_marker("spark")
        if fixtures & PROCESS_FIXTURES:
            item.add_marker("process")
    order = {HERE / name: number for number, name in enumerate(LONGEST_FIRST)}
    order |= {HERE / name: len(LONGEST_FIRST) + 1 for name in SPLIT}
    items.sort(key=lambda item: order.get(item.path, len(LONGEST_FIRST)))
    left_out = _beyond_sample(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """From here on, cycles are looked for, but among what tests make alone, and not at every 700 objects."""
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()


def _beyond_sample(items: list[pytest.Item]) -> set[pytest.Item]:
    """The first case of every test that is not long stays, and each `SAMPLE`th after it."""
    if SAMPLE <= 1:
        return set()
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    left_out: set[pytest.Item] = set()
    for item in items:
        file = item.path.relative_to(HERE).as_posix()
        if getattr(item, "originalname", None) in LONG_TESTS.get(file, ()):
            left_out.add(item)
        elif file.startswith(SAMPLED):
            cases.setdefault((item.path, item.nodeid.partition("[")[0]), []).append(item)
    return left_out | {item for each in cases.values() for number, item in enumerate(each) if number % SAMPLE}


class ByFile(LoadFileScheduling):
    """The tests of a file share fixtures and stay together, except those of `SPLIT`. Tests that break the same job in
    several ways share what that job does when nothing disturbs it."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if not file.endswith(SPLIT):
            return file
        case = re.search(r"\[(.+?)(-KeyboardInterrupt|-OSError)?\]$", nodeid) if file.endswith(SPLIT[0]) else None
        return nodeid if case is None else f"{file}: {case[1]}"


@pytest.hookimpl(optionalhook=True)
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
