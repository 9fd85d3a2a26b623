"""The other versions, and the tables they are tried on.

`make test-versions` installs other versions of pylance and pyspark and says where; other runs leave these tests out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pennon.engine import SparkEngine
from tests.versions import layouts
from tests.versions.versions import INSTALLED, PYLANCES, PYSPARK, Stock, installed_pylance, other

# A process has one pyspark, so each of the others has a run of its own.
collect_ignore_glob = [
    *([] if INSTALLED else ["test_other_pylance*"]),
    *([] if PYSPARK else ["test_other_pyspark*"]),
]


# Tests that need what PySpark 3.5 lacks, and why.
NOT_ON_35 = {
    "test_a_given_session_is_used_and_left_as_it_was": "PySpark 3.5 does not list the settings of a session",
    "test_a_driver_without_its_jvm_does_not_wait_for_it": "Spark 3.5 warns about the name of the host as it starts",
}


def pytest_configure(config: pytest.Config) -> None:
    if _leaves_sockets():
        # PySpark up to 4.1 leaves the socket of every result to the garbage collector.
        config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")
    if (PYSPARK or "").startswith("pyspark-3.5."):
        # It compares versions by a module that Python was about to remove.
        config.addinivalue_line("filterwarnings", "ignore:.*distutils:DeprecationWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the whole run, not of this directory: what another pyspark lacks is said where it is chosen."""
    for item in items:
        if _leaves_sockets() and item.name == "test_an_embedded_session_is_silent_from_start_to_exit":
            item.add_marker(pytest.mark.skip("PySpark up to 4.1 leaves sockets open, and Python reports them if asked"))

        if (PYSPARK or "").startswith("pyspark-3.5.") and item.name in NOT_ON_35:
            item.add_marker(pytest.mark.skip(NOT_ON_35[item.name]))


def _leaves_sockets() -> bool:
    return (PYSPARK or "").startswith(("pyspark-3.5.", "pyspark-4.0.", "pyspark-4.1."))


@pytest.fixture(scope="session")
def installed() -> Stock:
    return installed_pylance()


@pytest.fixture(scope="session", params=PYLANCES)
def stock(request: pytest.FixtureRequest) -> Stock:
    return other(request.param)


class Tables:
    """Tables of Pennon's, each made when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, str] = {}

    def scalars(self, form: str, history: str) -> str:
        base = self._once(form, lambda path: layouts.scalar_table(path, **layouts.FORMS[form]))
        return self._once(f"{form}, {history}", lambda path: layouts.after(history, base, path, layouts.scalar_rows))

    def vectors(self, form: str, history: str) -> str:
        base = self._once(f"vectors, {form}", lambda path: layouts.vector_table(path, **layouts.VECTOR_FORMS[form]))
        return self._once(
            f"vectors, {form}, {history}", lambda path: layouts.after(history, base, path, layouts.vector_rows)
        )

    def external_moves(self) -> str:
        return self._once("external moves", layouts.external_moves)

    def _once(self, name: str, make: Callable[[Path], str]) -> str:
        if name not in self._made:
            self._made[name] = make(self._directory / f"{len(self._made)}.lance")
        return self._made[name]


@pytest.fixture(scope="session")
def tables(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("versions"))
