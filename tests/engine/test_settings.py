"""An embedded session is set up for this machine; a given one is only advised."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pennon.engine.settings import SPEEDUPS, advice, embedded_settings
from pennon.errors import InvalidArgument


def advised(settings: dict[str, str], master: str | None) -> set[str]:
    return {line.partition("=")[0].partition(" ")[0] for line in advice(settings.get, master)}


def test_a_plain_cluster_is_advised_of_all_but_what_only_helps_locally() -> None:
    assert advised({}, "yarn") == {
        "spark.python.unix.domain.socket.enabled",
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "spark.shuffle.sort.bypassMergeThreshold",
    }
    assert advised({}, None) == advised({}, "yarn")


@pytest.mark.parametrize("master", ["local", "local[*]", "local[8]"])
def test_a_local_session_is_advised_of_more(master: str) -> None:
    assert advised({}, master) >= {"spark.shuffle.compress", "spark.shuffle.checksum.enabled", "master"}
    assert "master" not in advised({}, "local[8,4]")


def test_a_session_set_up_like_the_embedded_one_needs_no_advice() -> None:
    settings = embedded_settings()
    assert advice(settings.get, settings["spark.master"]) == []


@pytest.mark.parametrize(
    ("value", "wrong"), [("512k", False), ("1048576", False), ("1MB", False), ("2147483647", True)]
)
def test_sizes_are_compared_as_sizes(value: str, wrong: bool) -> None:
    key = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert (key in advised({key: value}, None)) is wrong


def test_every_advice_says_why() -> None:
    assert all(speedup.gain for speedup in SPEEDUPS)
    assert all(": " in line for line in advice(lambda _, default: default, "local"))


def test_cores_and_memory_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENNON_LOCAL_CORES", "3")
    assert embedded_settings()["spark.master"] == "local[3,4]"
    assert embedded_settings()["spark.driver.memory"] == "2g"
    monkeypatch.setenv("PENNON_LOCAL_CORES", "32")
    assert embedded_settings()["spark.driver.memory"] == "8g"
    monkeypatch.setenv("PENNON_DRIVER_MEMORY", "700m")
    assert embedded_settings()["spark.driver.memory"] == "700m"


@pytest.mark.parametrize("cores", ["none", "0", "-2", "1.5"])
def test_nonsense_cores_are_refused(monkeypatch: pytest.MonkeyPatch, cores: str) -> None:
    monkeypatch.setenv("PENNON_LOCAL_CORES", cores)
    with pytest.raises(InvalidArgument, match="PENNON_LOCAL_CORES"):
        embedded_settings()


def test_files_go_to_the_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = embedded_settings()
    assert settings["spark.local.dir"] == str(tmp_path)
    assert f"-Djava.io.tmpdir={tmp_path}" in settings["spark.driver.extraJavaOptions"]


def test_sockets_stay_where_their_path_is_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    settings = embedded_settings()
    assert settings["spark.local.dir"] == str(deep)
    assert len(settings["spark.python.unix.domain.socket.dir"]) <= 60


def test_an_archive_of_classes_is_made_once_and_then_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setenv("PENNON_CLASS_ARCHIVE", str(archive))
    assert f'"-XX:ArchiveClassesAtExit={archive}"' in embedded_settings()["spark.driver.extraJavaOptions"]
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in embedded_settings()["spark.driver.extraJavaOptions"]
