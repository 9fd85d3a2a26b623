"""Random histories find an index that answers wrongly, and accept any kind that is registered."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from pennon.index import registry
from pennon.jobs.registry import JOBS
from pennon.table import Table
from pennon.testing.cases import btree, integers, scalar_index
from pennon.testing.histories import History, only
from pennon.testing.neighbors import vector_index, vectors
from tests.support.toy_kind import TOY, ToyJobs

pytestmark = pytest.mark.usefixtures("process_engine")

FEW = settings(
    max_examples=4,
    stateful_step_count=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
FILTERS = ("k = 7", "k < 5", "k is null", "k != 3")


class Trees(History):
    columns: ClassVar = {"k": integers("k")}
    indices = (btree("k", filters=FILTERS),)


class Vectors(History):
    columns: ClassVar = {"k": integers("k"), "v": vectors()}
    indices = (vector_index("v", ("IVF_FLAT",)),)


class Toys(History):
    """pylance neither builds this kind nor merges it, and remaps it only where that is deferred."""

    columns: ClassVar = {"k": integers("k")}
    drawn = st.sampled_from(["k > 2", "k in (1, 2)"])
    indices = (scalar_index("k", "TOY", filters=FILTERS, drawn_filters=drawn, pylance=False),)


PENNON_ONLY = {
    *("create", "append", "delete", "build", "build_delta", "drop"),
    *("optimize", "compact_deferred", "catch_up", "trim"),
}


@pytest.mark.parametrize(("machine", "verb"), [(Trees, "scan"), (Vectors, "search"), (Vectors, "search_batch")])
def test_a_lost_row_is_found(machine: type[History], verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Any = getattr(Table, verb)
    monkeypatch.setattr(Table, verb, lambda *arguments, **options: right(*arguments, **options).slice(1))
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=FEW)


def test_a_kind_joins_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", (*registry.KINDS, TOY))
    monkeypatch.setitem(JOBS, TOY, ToyJobs)
    run_state_machine_as_test(only(Toys, PENNON_ONLY), settings=FEW)
