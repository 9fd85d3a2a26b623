"""An older pylance reads what Pennon writes: it opens every layout, uses the index where it knows the
layout, and answers as a scan does."""

from __future__ import annotations

import pytest

from tests.support.tables import FILTERS
from tests.versions.conftest import Tables
from tests.versions.layouts import CHANGES, FORMS, SCALARS, VECTOR_FORMS, histories, indexed
from tests.versions.verdicts import USES, Verdict, all_are, expected_of_trees, on_filters, on_neighbors
from tests.versions.versions import Stock

TREES = [(form, history) for form in FORMS for history in (*histories(form), *CHANGES)]
VECTOR_TABLES = [(form, history) for form in VECTOR_FORMS for history in histories(form)]


def test_the_other_version_is_the_one_that_answers(stock: Stock, installed: Stock) -> None:
    assert stock.ask({"verb": "version"}) == [stock.version]
    assert installed.ask({"verb": "version"}) == [installed.version]
    assert installed.version > stock.version


@pytest.mark.parametrize(("form", "history"), TREES, ids=lambda part: part)
def test_filters(stock: Stock, tables: Tables, form: str, history: str) -> None:
    found = on_filters(stock, tables.scalars(form, history), {column: FILTERS[column] for column in SCALARS})
    all_are(expected_of_trees(stock, form), found)


def test_moves_in_a_file_of_their_own(stock: Stock, tables: Tables) -> None:
    all_are(Verdict(USES), on_filters(stock, tables.external_moves(), {"i64": FILTERS["i64"]}))


@pytest.mark.parametrize(("form", "history"), VECTOR_TABLES, ids=lambda part: part)
def test_neighbors(stock: Stock, installed: Stock, tables: Tables, form: str, history: str) -> None:
    all_are(Verdict(USES), on_neighbors(stock, installed, tables.vectors(form, history), indexed(history)))
