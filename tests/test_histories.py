"""The answer of an indexed query equals that of a full scan, whatever came before: Pennon's and pylance's alike."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.histories import StableTableHistory, TableHistory
from tests.vector_histories import StableVectorHistory, VectorHistory

SCALAR, VECTORS = (TableHistory, StableTableHistory), (VectorHistory, StableVectorHistory)
# What leads old values astray, without what only makes it rarer.
IN_PLACE = {
    "create",
    "append",
    "change_in_place",
    "change_in_place_and_move",
    "update_column",
    "build",
    "build_delta",
    "optimize",
    "maintain",
    "compact_deferred",
    "stock_compact_deferred",
    "stock_optimize",
    "catch_up",
    "trim",
    "restore",
    "forget_versions",
}
SHORT = settings(
    max_examples=int(os.environ.get("PENNON_HISTORIES", "12")),
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
LONG = settings(SHORT, stateful_step_count=20, derandomize=False)
Machine = type[RuleBasedStateMachine]


def changing_in_place(machine: Machine) -> Machine:
    """The same history with the rules on changes in place only; hypothesis passes over attributes that are None."""
    others = {name: None for name, member in vars_of(machine).items() if name not in IN_PLACE and is_rule(member)}
    return type(f"InPlace{machine.__name__}", (machine,), others)


def vars_of(machine: Machine) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in dir(machine)}


def is_rule(member: Any) -> bool:
    return hasattr(member, "hypothesis_stateful_rule")


CHANGING = [changing_in_place(machine) for machine in (*SCALAR, *VECTORS)]


@pytest.mark.parametrize("machine", SCALAR)
@pytest.mark.usefixtures("process_engine")
def test_random_histories(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.parametrize("machine", VECTORS)
@pytest.mark.usefixtures("process_engine")
def test_random_histories_of_vectors(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(SHORT, max_examples=8, stateful_step_count=10))


@pytest.mark.parametrize("machine", CHANGING)
@pytest.mark.usefixtures("process_engine")
def test_random_histories_of_changes_in_place(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.parametrize("machine", [*SCALAR, *VECTORS])
@pytest.mark.usefixtures("engine")
def test_random_histories_on_spark(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(SHORT, max_examples=3, stateful_step_count=10))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", SCALAR)
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=200))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", VECTORS)
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories_of_vectors(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=100))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", CHANGING)
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories_of_changes_in_place(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=100))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [*SCALAR, *VECTORS])
@pytest.mark.usefixtures("engine")
def test_many_random_histories_on_spark(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=40))
