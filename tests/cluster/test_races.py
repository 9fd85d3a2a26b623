"""Sixteen writers at once on a store with conditional writes: all that is reported as committed is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from pennon.errors import CommitConflict, IndexExists
from tests.cluster.conftest import Store
from tests.cluster.tables import rows

WRITERS = 16


def race(*writers: Callable[[], object]) -> list[BaseException | None]:
    """Start them at the same moment; the error of each, or None."""
    together = Barrier(len(writers))

    def run(writer: Callable[[], object]) -> None:
        together.wait()
        writer()

    with ThreadPoolExecutor(len(writers)) as pool:
        return [each.exception() for each in [pool.submit(run, writer) for writer in writers]]


def test_index_commits_and_appends(store: Store) -> None:
    """Half of them build an index on the cluster, half append."""
    name = "races.lance"
    store.write(name, rows(800), max_rows_per_file=200)
    half = WRITERS // 2

    def build(number: int) -> None:
        store.table(name).create_index("k", "BTREE", f"index{number}")

    def append(number: int) -> None:
        store.write(name, rows(50, 10_000 + 50 * number), mode="append")

    builders = [lambda number=number: build(number) for number in range(half)]
    appenders = [lambda number=number: append(number) for number in range(half)]
    assert race(*builders, *appenders) == [None] * WRITERS
    table = store.table(name)
    assert {index.name for index in table.indices()} == {f"index{number}" for number in range(half)}
    ids = store.dataset(name).to_table(columns=["id"])["id"].to_pylist()
    assert sorted(ids) == [*range(800), *range(10_000, 10_000 + 50 * half)]
    for filter in ("k = 77", "k < 100"):
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == store.scan(name, filter)
    table.optimize_indices()
    assert all(index.coverage == 1.0 for index in table.indices())
    assert table.audit().ok


def test_one_name_has_one_winner(store: Store) -> None:
    name = "winner.lance"
    store.write(name, rows(400), max_rows_per_file=200)
    tables = [store.table(name, engine="local") for _ in range(WRITERS)]
    outcomes = race(*(lambda table=table: table.create_index("k", name="one", replace=False) for table in tables))
    assert outcomes.count(None) == 1
    losers = [error for error in outcomes if error is not None]
    assert all(isinstance(error, CommitConflict | IndexExists) for error in losers), losers
    [index] = store.table(name).indices()
    assert (index.name, len(index.segments)) == ("one", 1)
    # The losers removed what they had written.
    session = store.dataset(name).new_file_session()
    assert {path.split("/")[1] for path in session.list("_indices")} == {index.segments[0].uuid}


@pytest.mark.parametrize("stable", [False, True])
def test_maintainers_race(store: Store, stable: bool) -> None:
    """Four passes of maintenance, twelve appends."""
    name = f"maintainers-{stable}.lance".lower()
    store.write(name, rows(600), max_rows_per_file=100, enable_stable_row_ids=stable)
    store.table(name, engine="local").create_index("k")
    maintainers = [lambda: store.table(name, engine="local").maintain() for _ in range(4)]
    appenders = [
        lambda number=number: store.write(name, rows(20, 10_000 + 20 * number), mode="append") for number in range(12)
    ]
    assert race(*maintainers, *appenders) == [None] * WRITERS
    table = store.table(name, engine="local")
    ids = sorted(store.dataset(name).to_table(columns=["id"])["id"].to_pylist())
    assert ids == [*range(600), *range(10_000, 10_240)]
    for filter in ("k = 77", "k < 100"):
        assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == store.scan(name, filter)
    assert table.maintain().failed == ()
    assert table.audit().ok
