"""Every kind of index that pylance builds outlives every verb: nothing it covers is lost, and no answer changes.

The outcomes are the tables of docs/reference/kinds-and-verbs.md. PENNON_DOCS_UPDATE=1 writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.kind_matrix import LAYOUTS, groups, laid_out, make, markdown, outcomes
from tests.support.pylance_kinds import KINDS

pytestmark = pytest.mark.usefixtures("process_engine")

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "kinds-and-verbs.md"
ORDINARY, STABLE, *SHARING = LAYOUTS
# One kind of each family; the others are `heavy` on these layouts.
SAMPLE = ("BTREE", "LABEL_LIST", "ZONEMAP", "NGRAM", "RTREE", "INVERTED", "IVF_PQ", "IVF_PQ, legacy files")


@pytest.mark.parametrize("layout", [ORDINARY, STABLE])
def test_no_index_is_left_behind(layout: str, tmp_path: Path) -> None:
    found: dict[str, dict[str, str]] = {}
    for number, kinds in enumerate(groups(stable=layout == STABLE)):
        found |= outcomes(make(tmp_path / f"{number}.lance", kinds, stable=layout == STABLE), layout)
    text, pattern = PAGE.read_text("utf-8"), place_of(layout)
    assert pattern.search(text), "the page has no place for it"
    made = pattern.sub(lambda _: markdown(found), text)
    if os.environ.get("PENNON_DOCS_UPDATE"):
        PAGE.write_text(made, "utf-8")
    else:
        assert text == made, "make the tables again with PENNON_DOCS_UPDATE=1"


@pytest.mark.parametrize("layout", SHARING)
def test_tables_that_share_files_with_another(layout: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base.lance", SAMPLE, stable=False)
    before = base.views()
    found = outcomes(laid_out(base, layout, tmp_path), layout)
    assert set(markdown(found).splitlines()) <= set(PAGE.read_text("utf-8").splitlines()), "not as on ordinary tables"
    assert base.views() == before


@pytest.mark.heavy
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_by_itself(kind: str, layout: str, tmp_path: Path) -> None:
    """In a table of its own, where no other index decides how the table is compacted."""
    if layout == STABLE and not KINDS[kind].stable_row_ids:
        pytest.skip("pylance does not build it on stable row ids")
    base = make(tmp_path / "base.lance", [kind], stable=layout == STABLE)
    found = outcomes(laid_out(base, layout, tmp_path), layout)
    listed = place_of(STABLE if layout == STABLE else ORDINARY).search(PAGE.read_text("utf-8"))
    assert listed is not None
    assert markdown(found).splitlines()[-1] in listed[0].splitlines()


def place_of(layout: str) -> re.Pattern[str]:
    """Where the outcomes of a layout are on the page."""
    place = rf"(?<=^<!-- outcomes: {layout} -->\n\n).*?(?=\n\n<!-- end of outcomes -->$)"
    return re.compile(place, re.MULTILINE | re.DOTALL)
