"""A person recognises Pennon's jobs on Spark's pages, and results count what was read and exchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from pennon.engine import SparkEngine
from pennon.work import Work

ROWS = 4000


def write(path: Path) -> str:
    values = np.random.default_rng(0).integers(0, 1 << 40, ROWS)
    lance.write_dataset(pa.table({"id": values, "word": values.astype(str)}), str(path), max_rows_per_file=1000)
    return str(path)


class Pages:
    """What Spark's pages show of the jobs started since."""

    def __init__(self, engine: SparkEngine) -> None:
        self._context: Any = engine.session.sparkContext
        jobs = self._listed()
        self._last: int = jobs.apply(0).jobId() if jobs.size() else -1

    def descriptions(self) -> list[str]:
        return [description for _, (description, _) in sorted(self._jobs().items())]

    def stage_names(self) -> set[str]:
        return {name for _, names in self._jobs().values() for name in names}

    def _listed(self) -> Any:
        """The newest job first."""
        # Spark tells its listeners of a job's end before it is stored.
        self._context._jsc.sc().listenerBus().waitUntilEmpty()
        return self._context._jsc.sc().statusStore().jobsList(None)

    def _jobs(self) -> dict[int, tuple[str, set[str]]]:
        """Asks about the new jobs only: other tests of the session have run thousands."""
        jobs = self._listed()
        found: dict[int, tuple[str, set[str]]] = {}
        for number in range(jobs.size()):
            job = jobs.apply(number)
            if job.jobId() <= self._last:
                break
            description = job.description().get() if job.description().isDefined() else ""
            info = self._context.statusTracker().getJobInfo(job.jobId())
            stages = [self._context.statusTracker().getStageInfo(stage) for stage in (info.stageIds if info else ())]
            found[job.jobId()] = description, {stage.name for stage in stages if stage}
        return found


def test_jobs_are_named_by_verb_column_type_and_stage(engine: SparkEngine, tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance")
    table, pages = pennon.open(uri), Pages(engine)
    table.create_index("id", rows_per_task=1000)
    assert set(pages.descriptions()) == {"pennon create_index id BTREE: build"}
    assert pages.stage_names() == {"pennon create_index id BTREE: build"}

    table.create_index("word", pennon.Bitmap())
    lance.write_dataset(lance.dataset(uri).to_table(limit=300), uri, mode="append")
    pages = Pages(engine)
    table.optimize_indices(num_indices_to_merge=1)
    assert {each.rpartition(":")[0] for each in pages.descriptions()} == {
        "pennon optimize_indices > id_idx",
        "pennon optimize_indices > word_idx",
    }
    lance.write_dataset(lance.dataset(uri).to_table(limit=300), uri, mode="append")
    pages = Pages(engine)
    assert table.maintain().status == "done"
    assert "pennon maintain > optimize > id_idx" in {each.rpartition(":")[0] for each in pages.descriptions()}


def test_the_users_own_description_comes_back(engine: SparkEngine, tmp_path: Path) -> None:
    context: Any = engine.session.sparkContext
    context.setJobGroup("nightly", "my own job")
    try:
        pages = Pages(engine)
        pennon.open(write(tmp_path / "t.lance")).create_index("id", rows_per_task=1000)
        mine = {key: context.getLocalProperty(key) for key in ("spark.job.description", "spark.jobGroup.id")}
        assert mine == {"spark.job.description": "my own job", "spark.jobGroup.id": "nightly"}
        assert context.getLocalProperty("callSite.short") is None
        engine.session.range(3).collect()
        assert pages.descriptions()[-1] == "my own job"
        assert "pennon create_index id BTREE: build" in pages.descriptions()
        assert not [tag for tag in context.getJobTags() if tag.startswith("pennon")]
    finally:
        for key in ("spark.job.description", "spark.jobGroup.id"):
            context.setLocalProperty(key, None)


@pytest.mark.parametrize("name", ["spark", "local"])
def test_a_result_counts_its_work(engine: SparkEngine, tmp_path: Path, name: str) -> None:
    uri = write(tmp_path / "t.lance")
    table = pennon.open(uri, engine=name)
    done = table.create_index("id", rows_per_task=1000)
    work = done.work
    assert work.rows_read == ROWS
    assert work.tasks > 4
    # Every value goes through the exchange, 8 bytes, with its address, 3 or more; blocks add headers.
    assert 11 * ROWS <= work.shuffle_bytes < 3 * 16 * ROWS
    # Every task reads the column's pages; the other column is not read.
    assert 8 * ROWS * 0.5 < work.bytes_read < 20 * 8 * ROWS
    assert work.reads >= 4
    assert done.to_dict()["work"] == work.to_dict()
    again = table.create_index("id", name="other", rows_per_task=1000)
    assert again.work.rows_read == ROWS, "each call counts its own"
    report = table.audit()
    assert report.work.rows_read >= ROWS
    assert report.to_dict()["work"] == report.work.to_dict()


def test_a_dry_run_and_an_idle_pass_do_no_work(process_engine: None, tmp_path: Path) -> None:
    table = pennon.open(write(tmp_path / "t.lance"))
    table.create_index("id", dry_run=True)
    report = table.maintain()
    assert (report.work.tasks, report.work.shuffle_bytes) == (0, 0)


def test_work_adds_up() -> None:
    assert Work(1, 2, 3, 4, 5) + Work(tasks=1, shuffle_bytes=1) == Work(2, 2, 3, 4, 6)
    assert str(Work(2, 1000, 4096, 12, 2048)).startswith("2 tasks, 1,000 rows")
