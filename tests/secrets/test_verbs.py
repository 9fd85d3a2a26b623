"""Storage options go to pylance and to executors, and are seen nowhere else: every verb, and every way it can fail."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import pennon
from pennon.cli import main
from pennon.engine import SparkEngine
from pennon.errors import CommitConflict, DamagedIndexWarning, PennonError, TaskFailed
from pennon.format import commit
from pennon.index.cache import SHARED_CACHE
from pennon.index.vector.vectors import to_lists
from tests.support.object_store import BUCKET

MARK = "q7Xw9marker"
FAST = {"client_max_retries": "0", "download_retry_count": "0", "request_timeout": "5s", "connect_timeout": "1s"}


@pytest.fixture
def secrets(storage_options: dict[str, str]) -> dict[str, str]:
    key = json.dumps(
        {"type": "service_account", "private_key": f"-----BEGIN\n{MARK}/pem\n", "private_key_id": f"{MARK}id"}
    )
    return {
        **storage_options,
        **FAST,
        "aws_secret_access_key": f"{MARK}/+=secret",
        "aws_session_token": f"{MARK}token",
        "azure_storage_account_key": f"{MARK}azure",
        "azure_storage_sas_key": f"sv=2020&sig={MARK}%2Bsas",
        "google_service_account_key": key,
        "headers.x-authorization": f"Bearer {MARK}header",
    }


@pytest.fixture
def uri(secrets: dict[str, str], request: pytest.FixtureRequest) -> str:
    """The address has a password and a signature, too; pylance passes over both."""
    place = f"s3://user:{MARK}pw@{BUCKET}/{request.node.name}.lance?X-Amz-Signature={MARK}sig"
    vectors = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    rows = pa.table({"id": range(300), "v": to_lists(vectors), "t": ["some words"] * 300})
    lance.write_dataset(rows, place, max_rows_per_file=100, storage_options=secrets)
    return place


def everything(error: BaseException | None) -> str:
    """All that can be read of an error and of those it came from."""
    said = ""
    while error is not None:
        said += f"{error!s} {error!r} {error.args!r} {getattr(error, '__notes__', '')} {vars(error)}"
        said += "".join(traceback.format_exception(error))
        error = error.__cause__ or error.__context__
    return said


@pytest.mark.usefixtures("engine")
def test_verbs_and_what_they_tell(
    uri: str, secrets: dict[str, str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[Any] = []

    class Listener:
        def stage_started(self, *event: object) -> None:
            told.append(event)

        stage_advanced = stage_finished = stage_started

    table = pennon.open(uri, storage_options=secrets, progress=Listener())
    told += [table.plan_index("id"), table.plan_index("id").to_dict(), table.create_index("id", ranges=2)]
    told += [table.create_index("v", "IVF_FLAT", num_partitions=2)]
    told += [table.plan_index("t", "INVERTED"), table.create_index("t", "INVERTED")]
    lance.dataset(uri, storage_options=secrets).delete("id = 7")
    told += [table.refresh(), table.uri, table.indices(), table.explain("id = 3", analyze=True)]
    told += [table.explain("id = 3").to_dict(), table.plan_optimize(), table.optimize_indices(), table.plan_compact()]
    told += [
        table.plan_compact().to_dict(),
        table.explain_search("v", np.zeros(8), 3),
        table.update_column("id", "id + 1"),
    ]
    told += [table.plan_near_duplicates("v", 0.1), table.plan_near_duplicates("v", 0.1).to_dict()]
    told += [table.tune("v", 0.5, 3, sample=20, store=True), table.explain_search("v", np.ones(8), 3, recall=0.5)]
    told += [lance.dataset(uri, storage_options=secrets).config(), table.warm(), table.cache_statistics()]
    cached = pennon.open(uri, storage_options=secrets, disk_cache=tmp_path / "copies")
    told += [cached.scan("id = 3"), cached.cache_statistics(), sorted(map(str, (tmp_path / "copies").rglob("*")))]
    some = lance.dataset(uri, storage_options=secrets).to_table(filter="id < 3")
    told += [table.plan_merge(some, "id"), table.merge(some, "id"), table.merge(some, "id", dry_run=True).to_dict()]
    told += [table.update({"id": "id + 100"}, where="id = 2"), table.delete("id = 102"), table.plan_delete("id = 1")]
    told += [table.maintain(dry_run=True), table.maintain(dry_run=True).to_dict(), table.audit(recall_queries=2)]
    told += [
        table.report(),
        table.clean_orphans(dry_run=True),
        table.drop_index("id_idx"),
        vars(table),
        table._engine,
    ]
    told += [table._snapshot.pin(), vars(table._snapshot)]  # pyright: ignore[reportPrivateUsage]
    assert MARK not in "\n".join(f"{item!s} {item!r}" for item in told)
    assert MARK not in caplog.text


def test_failures_of_opening(uri: str, secrets: dict[str, str]) -> None:
    dead = {**secrets, "aws_endpoint": f"http://user:{MARK}end@127.0.0.1:9"}
    attempts: list[tuple[str, dict[str, str]]] = [
        (uri.replace(BUCKET, "nobody-has-this"), secrets),
        (uri.replace("test_failures", "nothing"), secrets),
        (uri, dead),
        (uri, {**secrets, "aws_session_token": f"{MARK}\nx"}),
        (
            uri.replace("s3://", "az://"),
            {**dead, "azure_storage_account_name": "a", "azure_storage_endpoint": dead["aws_endpoint"]},
        ),
        (uri.replace("s3://", "gs://"), {"google_service_account_key": f'{{"private_key": "-----BEGIN {MARK}"}}'}),
        (uri.replace("s3://", "nothing://"), secrets),
    ]
    for place, options in attempts:
        with pytest.raises(PennonError) as caught:
            pennon.open(place, storage_options=options)
        assert MARK not in everything(caught.value), place
        given = [part for key, value in options.items() for part in ("--storage-option", f"{key}={value}")]
        done = CliRunner().invoke(main, ["indices", place, *given, "--debug"])
        assert (done.exit_code in (1, 75), MARK in done.output) == (True, False), done.output


def test_failures_of_jobs(
    uri: str, secrets: dict[str, str], engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pennon.open(uri, storage_options=secrets)
    pin = table._snapshot.pin()  # pyright: ignore[reportPrivateUsage]

    def refused(*_: object) -> None:
        raise OSError(f"signed with {dict(pin.location.options)} at {pin.location.uri}")

    with pytest.raises(TaskFailed) as failed:
        engine.map("fail", refused, [1])
    assert "***" in str(failed.value)
    assert MARK not in everything(failed.value)

    def conflict(*_: object, **__: object) -> None:
        raise OSError(f"Incompatible transaction at {uri} with {MARK}/+=secret")

    with monkeypatch.context() as patched:
        patched.setattr(commit.lance.LanceDataset, "commit", conflict)
        with pytest.raises(CommitConflict) as lost:
            table.create_index("id")
    assert MARK not in everything(lost.value)
    index = table.create_index("id").index
    session = lance.dataset(uri, storage_options=secrets).new_file_session()
    session.delete_file(f"_indices/{index.segments[0].uuid}/page_lookup.lance")
    SHARED_CACHE.clear()
    with pytest.warns(DamagedIndexWarning) as warned:
        assert pennon.open(uri, storage_options=secrets).count("id < 10") == 10
    assert MARK not in str(warned[0].message)


def test_commands(uri: str, secrets: dict[str, str], tmp_path: Path) -> None:
    given = [part for key, value in secrets.items() for part in ("--storage-option", f"{key}={value}")]
    page = tmp_path / "report.html"
    commands: dict[str, Callable[[], list[str]]] = {
        "indices": list,
        "scan": lambda: ["--count"],
        "explain": lambda: ["--filter", "id = 3"],
        "maintain": lambda: ["--dry-run"],
        "optimize": lambda: ["--dry-run"],
        "compact": lambda: ["--dry-run"],
        "fragment-reuse": list,
        "report": lambda: ["-o", str(page)],
    }
    for name, more in commands.items():
        for form in ((), ("--output", "json"))[: 1 if name == "report" else 2]:
            done = CliRunner().invoke(main, [name, uri, *given, *more(), *form])
            assert (done.exit_code, MARK in done.output) == (0, False), done.output
    assert MARK not in page.read_text("utf-8")
    for wrong in (["drop-index", uri, "none"], ["scan", uri, "--filter", "nope = 1"], ["create-index", uri, "nope"]):
        for more in ((), ("--debug",)):
            done = CliRunner().invoke(main, [*wrong, *given, *more])
            assert (done.exit_code in (1, 75), MARK in done.output) == (True, False), done.output
