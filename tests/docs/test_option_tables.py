"""The tables of options in the pages are those of the options classes. PENNON_DOCS_UPDATE=1 writes them instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pennon.index.registry import index_types
from tests.docs.option_tables import types_in, with_tables
from tests.docs.pages import PAGES

LISTING = [page for page in PAGES if types_in(page.read_text("utf-8"))]


def test_every_index_type_has_its_options_on_one_page() -> None:
    listed = [name for page in LISTING for name in types_in(page.read_text("utf-8"))]
    assert sorted(listed) == sorted(index_types())


@pytest.mark.parametrize("page", LISTING, ids=lambda page: page.stem)
def test_a_page_lists_the_options_as_they_are(page: Path) -> None:
    text = page.read_text("utf-8")
    made = with_tables(text, index_types())
    if os.environ.get("PENNON_DOCS_UPDATE"):
        page.write_text(made, "utf-8")
    else:
        assert text == made, "make the tables again with PENNON_DOCS_UPDATE=1"
