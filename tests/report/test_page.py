"""The page says what the facts say, whatever names a table has, and fetches nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import pytest
from click.testing import CliRunner
from pyroaring import FrozenBitMap

import pennon
from pennon.cli import main
from pennon.format.snapshot import Snapshot
from pennon.format.store import Location
from pennon.report.facts import collect
from pennon.report.layout_svg import short
from pennon.report.page import page as render
from pennon.secrets import redact
from pennon.wording import percent
from tests.report.tables import HOSTILE, append, defer, rows, write
from tests.support.html import Reader


def page(uri: str) -> Reader:
    return Reader(pennon.open(uri).report())


def test_the_page_of_a_table_in_every_state(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance")
    lance.dataset(uri).create_index("v", "IVF_FLAT", num_partitions=2)
    defer(uri)
    lance.dataset(uri).delete("id % 5 = 0")
    append(uri, 400)
    read = page(uri)
    for text in (
        "0 of 2 indices cover all rows",
        "k_idx",
        "IVF_FLAT",
        "1 compaction behind",
        "2 partitions by size",
        "13.5%",
    ):
        assert text in read.text
    classes = {attributes.get("class") for _, attributes in read.tags}
    assert {"live", "deleted", "segment a", "uncovered", "moved"} <= classes


@pytest.mark.parametrize("count", [0, 5])
def test_tables_without_indices_have_a_page_too(tmp_path: Path, count: int) -> None:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, count), uri)
    assert "no indices" in page(uri).text


def test_segments_that_overlap_are_framed_and_long_lists_folded(tmp_path: Path) -> None:
    pinned = Snapshot.open(Location.of(write(tmp_path / "t.lance")))
    [segment] = pinned.manifest.segments
    lost = [replace(segment, uuid=str(UUID(int=n)), fragments=FrozenBitMap([0, n % 4])) for n in range(30)]
    pinned.manifest = replace(pinned.manifest, segments=(segment, segment, *lost))
    read = Reader(render(collect(pinned)))
    classes = [attributes.get("class") for _, attributes in read.tags]
    assert {"overlap", "damaged", "damaged thread", "mark"} <= set(classes)
    assert "several segments cover the same 4 fragments" in read.text
    assert "20 more" in read.text
    assert "30 segments cannot be read" in read.text


def test_numbers_are_short() -> None:
    counts = {
        0: "0",
        999: "999",
        1_000: "1k",
        12_345: "12.3k",
        999_999: "1,000k",
        7_654_321: "7.65M",
        10**13: "10,000G",
    }
    assert {count: short(count) for count in counts} == counts
    assert [percent(share) for share in (0, 1e-9, 0.5, 0.99999, 1)] == [
        "0%",
        "<0.001%",
        "50.0%",
        "99.999%",
        "100%",
    ]
    shares = {0.9999: "99.99%", 0.99949: "99.9%", 0.0001: "0.01%", 0.9999999: ">99.999%"}
    assert {share: percent(share) for share in shares} == shares


def test_hostile_names_are_text(tmp_path: Path) -> None:
    uri = write(tmp_path / "<b>'\"&.lance", name=HOSTILE.replace(".", ""))
    lance.dataset(uri).create_scalar_index("id", "BTREE", name=HOSTILE)
    append(uri, 400, name=HOSTILE.replace(".", ""))
    read = page(uri)
    assert HOSTILE in read.text
    assert uri in read.text
    assert not {"script", "b", "img", "iframe"} & {tag for tag, _ in read.tags}
    assert not any(name.startswith("on") for _, attributes in read.tags for name in attributes)
    known = {
        "class",
        "id",
        "href",
        "title",
        "name",
        "content",
        "http-equiv",
        "charset",
        "lang",
        "rel",
        "role",
        "d",
        "r",
    }
    known |= {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "aria-label", "aria-hidden"}
    known |= {"patternunits", "patterntransform"}
    assert {name for _, attributes in read.tags for name in attributes} <= known


def test_nothing_is_fetched(tmp_path: Path) -> None:
    report = pennon.open(write(tmp_path / "t.lance")).report()
    assert not re.search(r"https?:|@import|src=|srcset=|//", report)
    targets = [attributes["href"] for _, attributes in Reader(report).tags if "href" in attributes]
    assert all(target and target.startswith(("#", "data:")) for target in targets)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", report))


def test_secrets_do_not_show(tmp_path: Path) -> None:
    uri = write(tmp_path / "t.lance")
    options = {"aws_secret_access_key": "hunter2hunter2", "region": "eu-central-1"}
    assert "hunter2" not in pennon.open(uri, storage_options=options).report()
    Location.of("https://me:pass@host/t.lance?sig=abc", options)
    said = redact("cannot read https://me:pass@host/t.lance?sig=abc/_indices with hunter2hunter2 in eu-central-1")
    assert said == "cannot read https://me:***@host/t.lance?***/_indices with *** in eu-central-1"
    assert redact("abfss://box@account") == Location.of("abfss://box@account").shown == "abfss://box@account"


@pytest.mark.process
def test_the_command_writes_a_file_and_starts_no_spark(tmp_path: Path) -> None:
    uri, out = write(tmp_path / "t.lance"), tmp_path / "report.html"
    lines = [
        "import sys; from pennon.cli import main",
        f"main(['report', {uri!r}, '-o', {str(out)!r}], standalone_mode=False)",
        "assert 'pyspark' not in sys.modules",
    ]
    ran = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert "The only index covers all rows" in Reader(out.read_text("utf-8")).text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "use -o FILE or --serve"),
        (("-o", "x.html", "--serve"), "use -o FILE or --serve"),
        (("-o", "x.html", "--port", "80"), "--port requires --serve"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(main, ["report", write(tmp_path / "t.lance"), *arguments])
    assert (result.exit_code, problem in result.output) == (2, True)


def test_a_table_that_is_not_there_leaves_the_file_alone(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("before")
    result = CliRunner().invoke(main, ["report", str(tmp_path / "no.lance"), "-o", str(out)])
    assert (result.exit_code, out.read_text()) == (1, "before")
