"""What notebooks and terminals show: tables of plain cells, whatever names and values hold."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from pennon.display import fields_table, text_table
from pennon.engine.interactive import LineProgress
from pennon.engine.progress import ProgressListener
from pennon.index.registry import index_types
from tests.hostile_names.names import NAMES, STEERING
from tests.support.geometries import geometries
from tests.support.html import Reader

HOSTILE = NAMES["html"]
ROWS = 60


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("notebook") / "<i>t&.lance")
    values = {name: range(ROWS) for name in (HOSTILE, NAMES["escape"], NAMES["right to left"])}
    words = [f"{HOSTILE} {number}" for number in range(ROWS)]
    vectors = pa.array([[float(number)] * 8 for number in range(ROWS)], pa.list_(pa.float32(), 8))
    lists = pa.array([[number] for number in range(ROWS)])
    rows = pa.table({"id": range(ROWS), **values, "words": words, "v": vectors, "l": lists})
    points = geometries(ROWS, seed=1)
    field = pa.field("p", points.type, metadata={"ARROW:extension:name": "geoarrow.point"})
    lance.write_dataset(rows.append_column(field, points), path)
    lance.dataset(path).create_scalar_index(HOSTILE, "BTREE", name=HOSTILE)
    return path


@pytest.fixture
def table(uri: str) -> pennon.Table:
    return pennon.open(uri, engine="local")


def html_of(value: Any) -> Reader:
    page = value._repr_html_()
    read = Reader(page)
    assert {tag for tag, _ in read.tags} <= {"div", "strong", "table", "tr", "th", "td"}
    assert not [name for _, attributes in read.tags for name in attributes if name != "style"]
    assert not [sign for sign in STEERING if sign in page]
    return read


def shown(table: pennon.Table) -> Iterator[Any]:
    filter = f"`{HOSTILE}` = 3"
    yield from (table, table.indices(), table.indices()[0], table.explain(filter), table.explain(filter, analyze=True))
    yield table.explain_search("v", [1.0] * 8, filter=filter)
    yield from (table.plan_index(HOSTILE), table.plan_drop_index(HOSTILE), table.plan_optimize(), table.plan_compact())
    yield from (table.plan_catch_up(), table.plan_trim(), table.plan_update_column(HOSTILE, "1"))
    yield from (table.audit(), table.maintain(dry_run=True), table.clean_orphans(dry_run=True))


def test_everything_that_a_verb_returns_is_shown_as_text_in_cells(table: pennon.Table) -> None:
    for value in shown(table):
        read = html_of(value)
        assert read.text, value
    assert HOSTILE in html_of(table).text
    assert HOSTILE in html_of(table.indices()).text
    assert HOSTILE in html_of(table.explain(f"`{HOSTILE}` = 3")).text


def test_results_are_shown(table: pennon.Table) -> None:
    result = table.create_index(NAMES["escape"], name="<b>x</b>")
    assert "<b>x</b>" in html_of(result).text
    assert "IndexResult" in html_of(table.drop_index("<b>x</b>")).text


@pytest.mark.parametrize("kind", index_types())
def test_the_plan_of_every_index_type_is_shown(kind: str, table: pennon.Table) -> None:
    column = "v" if kind.startswith("IVF") else {"LABEL_LIST": "l", "RTREE": "p"}.get(kind, "words")
    options: dict[str, Any] = {"num_partitions": 1, "num_sub_vectors": 1} if kind == "IVF_PQ" else {}
    read = html_of(table.plan_index(column, kind, **options))
    assert f"{column}_idx" in read.text


def test_every_public_value_with_fields_is_shown_in_notebooks() -> None:
    values = [getattr(pennon, name) for name in pennon.__all__]
    lacking = [
        value.__name__
        for value in values
        if isinstance(value, type) and hasattr(value, "to_dict") and not hasattr(value, "_repr_html_")
        if not getattr(value, "_is_protocol", False)  # whose classes are shown
    ]
    assert lacking == []


def test_every_public_dataclass_is_shown_in_notebooks() -> None:
    values = [getattr(pennon, name) for name in pennon.__all__]
    plain = [value for value in values if isinstance(value, type) and dataclasses.is_dataclass(value)]
    # Arguments that users pass as keywords.
    internal = {"HybridOptions", "ScanOptions", "SearchOptions", "TextOptions"}
    lacking = {value.__name__ for value in plain if not hasattr(value, "_repr_html_")}
    assert lacking <= internal


def test_options_segments_selections_and_figures_are_shown(table: pennon.Table) -> None:
    assert "num sub vectors" in html_of(pennon.IvfPq(num_sub_vectors=4)).text
    assert table.indices()[0].segments[0].uuid in html_of(table.indices()[0].segments[0]).text
    assert HOSTILE in html_of(table.where(f"`{HOSTILE}` = 3")).text
    figures = table.report_data()
    assert HOSTILE in html_of(figures).text
    assert json.loads(json.dumps(figures)) == figures


def test_indices_print_as_a_table_and_are_a_list(table: pennon.Table) -> None:
    found = table.indices()
    assert isinstance(found, list)
    assert [index.name for index in found] == [HOSTILE]
    head, line = str(found).splitlines()
    assert head.split() == ["name", "type", "columns", "segments", "coverage", "rows", "size", "created"]
    assert "BTREE" in line.upper()
    assert " 100% " in line
    assert repr(found) == str(found)


def test_an_ipython_prompt_shows_what_print_does(table: pennon.Table) -> None:
    class Printer:
        def text(self, text: str) -> None:
            written.append(text)

    written: list[str] = []
    values: list[Any] = [table.plan_index("id"), table.create_index("id"), table.explain("id = 3"), pennon.IvfPq()]
    for value in values:
        value._repr_pretty_(Printer(), False)
    assert written == [str(value) for value in values]


def test_a_report_is_shown_in_a_frame_without_scripts(table: pennon.Table) -> None:
    report: Any = table.report()
    ((tag, attributes),) = Reader(report._repr_html_()).tags
    assert tag == "iframe"
    assert attributes["sandbox"] == ""
    assert attributes["srcdoc"] == report


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    lines = text_table(["name", "rows"], [["a", "1"], ["longer\x1b", "1,000"]]).splitlines()
    assert lines == ["name         rows", "a               1", r"longer\x1b  1,000"]


def test_values_are_written_by_their_meaning() -> None:
    read = Reader(
        fields_table(
            {
                "version_after": 1234,
                "rows": 1234,
                "size_bytes": 2048,
                "seconds": 0.5,
                "ok": True,
                "left": None,
                "fragments": list(range(1000)),
                "steps": [{"a": 1}, {"b": [2]}],
                "empty": [],
            }
        )
    )
    for text in ("1234", "1,234", "2.0 KiB", "0.500", "yes", "... 1,000 in all"):
        assert text in read.text


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `import IPython` leaves in a process with a kernel."""
    module = ModuleType("IPython")
    module.get_ipython = object  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "IPython", module)


def build(uri: str, progress: ProgressListener | bool | None) -> None:
    pennon.open(uri, engine="local", progress=progress).create_index("id", name="progress")


@pytest.mark.usefixtures("kernel")
def test_a_notebook_shows_progress_on_the_error_stream(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    build(uri, None)
    output, errors = capsys.readouterr()
    assert output == ""
    assert "task" in errors
    assert errors.endswith("\r"), "the line is removed at the end"


@pytest.mark.usefixtures("kernel")
def test_progress_can_be_silenced(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    build(uri, False)
    assert capsys.readouterr() == ("", "")


def test_a_script_shows_nothing_unless_it_asks(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    build(uri, None)
    assert capsys.readouterr() == ("", "")
    build(uri, True)
    output, errors = capsys.readouterr()
    assert output == ""
    assert "of 1 task" in errors


def test_progress_of_another_type_is_refused(uri: str) -> None:
    with pytest.raises(pennon.errors.InvalidArgument, match="stage_started"):
        pennon.open(uri, progress="yes")  # pyright: ignore[reportArgumentType]


def test_the_line_is_as_wide_as_the_one_before(capsys: pytest.CaptureFixture[str]) -> None:
    listener = LineProgress(clock=lambda: 0.0)
    listener.stage_started("a long name of a stage", 10, 1000)
    listener.stage_started("short", 1)
    listener.stage_finished("short")
    listener.stage_finished("a long name of a stage")
    _, first, second, third, cleared, _ = capsys.readouterr().err.split("\r")
    assert len(second) == len(first) == len(third) == len(cleared)
    assert not cleared.strip()


@pytest.mark.process
def test_a_python_prompt_in_a_terminal_shows_progress(uri: str) -> None:
    """A real terminal, where the error stream goes; the output stream is a pipe and gets nothing."""
    ours, theirs = pty.openpty()
    code = f"import pennon\npennon.open({uri!r}, engine='local').create_index('id', name='prompt') and None\n"
    command = [sys.executable, "-i", "-q"]
    done = subprocess.run(command, input=code.encode(), stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=300)
    os.close(theirs)
    drawn = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "0 of 1 task, 0 of 60 rows" in drawn
    assert done.stdout == b""
