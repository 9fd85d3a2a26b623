"""The answer of an indexed query equals that of a full scan, whatever came before."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.histories import StableTableHistory, TableHistory
from tests.vector_histories import StableVectorHistory, VectorHistory

SHORT = settings(
    max_examples=int(os.environ.get("PENNON_HISTORIES", "12")),
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
LONG = settings(SHORT, max_examples=150, stateful_step_count=20, derandomize=False)


@pytest.mark.parametrize("machine", [TableHistory, StableTableHistory])
@pytest.mark.usefixtures("engine")
def test_random_histories(machine: type[TableHistory]) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [TableHistory, StableTableHistory])
@pytest.mark.usefixtures("engine")
def test_many_random_histories(machine: type[TableHistory]) -> None:
    run_state_machine_as_test(machine, settings=LONG)


@pytest.mark.parametrize("machine", [VectorHistory, StableVectorHistory])
@pytest.mark.usefixtures("engine")
def test_random_histories_of_vectors(machine: type[VectorHistory]) -> None:
    run_state_machine_as_test(machine, settings=settings(SHORT, max_examples=8, stateful_step_count=10))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [VectorHistory, StableVectorHistory])
@pytest.mark.usefixtures("engine")
def test_many_random_histories_of_vectors(machine: type[VectorHistory]) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=60))
