"""Every kind of index that pylance builds outlives every verb: nothing it covers is lost, and no answer changes.

The outcomes are the tables of docs/reference/kinds-and-verbs.md. PENNON_DOCS_UPDATE=1 writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.kind_matrix import LAYOUTS, Matrix, groups, laid_out, make, markdown, outcomes
from tests.support.pylance_kinds import KINDS

pytestmark = pytest.mark.usefixtures("process_engine")

Bases = dict[tuple[tuple[str, ...], bool], Matrix]
PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "kinds-and-verbs.md"


@pytest.fixture(scope="module")
def bases() -> Bases:
    """Tables that every layout starts from."""
    return {}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_index_is_left_behind(
    layout: str, bases: Bases, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found: dict[str, dict[str, str]] = {}
    stable = layout == "stable row ids"
    for kinds in groups(stable):
        if (kinds, stable) not in bases:
            bases[kinds, stable] = make(tmp_path_factory.mktemp("base") / "t.lance", kinds, stable=stable)
        directory = tmp_path / str(len(found))
        directory.mkdir()
        found |= outcomes(laid_out(bases[kinds, stable], layout, directory), layout)
    text = PAGE.read_text("utf-8")
    pattern = re.compile(
        rf"(?<=^<!-- outcomes: {layout} -->\n\n).*?(?=\n\n<!-- end of outcomes -->$)", re.MULTILINE | re.DOTALL
    )
    assert pattern.search(text), "the page has no place for it"
    made = pattern.sub(lambda _: markdown(found), text)
    if os.environ.get("PENNON_DOCS_UPDATE"):
        PAGE.write_text(made, "utf-8")
    else:
        assert text == made, "make the tables again with PENNON_DOCS_UPDATE=1"


@pytest.mark.heavy
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_by_itself(kind: str, layout: str, tmp_path: Path) -> None:
    """In a table of its own, where no other index decides how the table is compacted."""
    stable = layout == "stable row ids"
    if stable and not KINDS[kind].stable_row_ids:
        pytest.skip("pylance does not build it on stable row ids")
    base = make(tmp_path / "base.lance", [kind], stable=stable)
    outcomes(laid_out(base, layout, tmp_path), layout)
