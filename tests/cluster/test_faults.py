"""An executor or a whole worker is killed in the middle of a build: the index is right, and nothing is left over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.conftest import Store
from tests.cluster.tables import rows
from tests.support.standalone import StandaloneCluster

BUILDS: dict[str, tuple[str, dict[str, Any]]] = {
    "BTREE": ("k", {"ranges": 4}),
    "IVF_PQ": ("v", {"num_partitions": 4, "num_sub_vectors": 4}),
}


class KillOnce:
    """A listener that kills when the first tasks of a stage have ended, and others have not."""

    def __init__(self, stage: str, kill: Callable[[], object]) -> None:
        self._stage, self._kill, self._total = stage, kill, 0
        self.killed_at: tuple[int, int] | None = None

    def stage_started(self, name: str, total_tasks: int, total_rows: int | None = None) -> None:
        if name == self._stage:
            self._total = total_tasks

    def stage_advanced(self, name: str, done_tasks: int) -> None:
        if name == self._stage and self.killed_at is None and 0 < done_tasks < self._total:
            self._kill()
            self.killed_at = done_tasks, self._total

    def stage_finished(self, name: str) -> None:
        pass


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("victim", ["executor", "worker"])
def test_a_process_is_killed_in_the_middle_of_a_build(
    store: Store, cluster: StandaloneCluster, kind: str, victim: str
) -> None:
    name = f"{victim}-{kind}.lance".lower()
    store.write(name, rows(6000), max_rows_per_file=500)
    kill = cluster.kill_worker if victim == "worker" else cluster.kill_executor
    listener = KillOnce("build: map", kill)
    table = store.table(name, progress=listener)
    column, options = BUILDS[kind]
    try:
        done = table.create_index(column, kind, rows_per_task=500, **options)
    finally:
        if victim == "worker":
            cluster.add_worker()
    assert listener.killed_at is not None, "nothing was killed in the middle"
    assert done.index.coverage == 1.0
    assert table.audit().ok
    if kind == "BTREE":
        for filter in ("k = 77", "k > 500 and k < 600", "k is null"):
            assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == store.scan(name, filter)
    # Files of attempts that were lost are not among those of the index.
    assert [index.name for index in table.indices()] == [f"{column}_idx"]
    named = {segment.uuid for index in table.indices() for segment in index.segments}
    session = store.dataset(name).new_file_session()
    assert {path.split("/")[1] for path in session.list("_indices")} == named
