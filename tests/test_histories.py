"""The answer of an indexed query equals that of a full scan, whatever came before: Pennon's and pylance's alike."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from pennon.testing.cases import (
    bitmap,
    bloom_filter,
    btree,
    integers,
    label_list,
    labels,
    points,
    rtree,
    scalar_index,
    strings,
    texts,
    zone_map,
)
from pennon.testing.histories import History, only, with_stable_row_ids
from pennon.testing.neighbors import BITS, SEVERAL, vector_index, vectors
from pennon.testing.words import inverted_index, words

TRIANGLE = "st_geomfromtext('POLYGON((0 0, 5 0, 0 5, 0 0))')"
VECTOR_TYPES = ("IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ")


class ScalarHistory(History):
    """Every kind of scalar index joins with a line in `indices`."""

    columns: ClassVar = {"k": integers("k"), "s": strings("s")}
    indices = (
        btree("k", filters=("k = 7", "k < 5", "k between 10 and 12", "k is null", "k in (1, 2, 19, 400)", "k != 3")),
        btree("s", filters=("s = 's3'",)),
    )
    filters = ("s like 's1%' and k > 4", "s is null or k = 7", "not (k > 3)")


class ZonesHistory(History):
    """Zone maps and Bloom filters, on columns of their own and on one together with a B-tree."""

    columns: ClassVar = {"k": integers("k"), "s": strings("s")}
    indices = (
        zone_map("k", filters=("k = 7", "k < 5", "k between 10 and 12", "k is null", "k is not null", "k != 3")),
        bloom_filter("s", filters=("s = 's3'", "s in ('s1', 's14', 'x')", "s is null")),
        bloom_filter("k", filters=("k in (1, 2, 19, 400)",), name="k_bloom"),
        zone_map("s", filters=("s < 's2'", "s like 's1%'"), name="s_zones"),
        btree("k", name="k_tree"),
    )
    filters = ("s like 's1%' and k > 4", "s is null or k = 7", "not (k > 3)")


class BitmapHistory(History):
    """Built in one task and with an exchange."""

    columns: ClassVar = {"k": integers("k"), "s": strings("s"), "l": labels("l")}
    indices = (
        bitmap("k", filters=("k = 7", "k < 5", "k between 10 and 12", "k is null", "k in (1, 2, 19, 400)", "k != 3")),
        label_list(
            "l",
            filters=(
                "array_has(l, 'a')",
                "array_has_any(l, ['b', NULL])",
                "array_has_all(l, ['a', 'c'])",
                "NOT array_has_any(l, ['a', 'z'])",
                "NOT array_has_all(l, ['a', 'b'])",
                "l IS NULL",
                "l IS NOT NULL",
            ),
        ),
        bitmap("s", filters=("s = 's3'", "s like 's1%'")),
    )
    filters = ("s is null or k = 7", "not (k > 3)", "array_has(l, 'a') and k > 4")


class TextHistory(History):
    """Parts of texts, found by n-grams, and points, found by an R-tree."""

    columns: ClassVar = {
        "t": texts("t", ("range", "Index", "straße", "x9", "日本語", "aab")),
        "k": integers("k"),
        "p": points("p"),
    }
    indices = (
        scalar_index(
            "t",
            "NGRAM",
            filters=(
                "contains(t, 'range')",
                "t like '%moved%'",
                "t ilike '%STRAß%' or contains(t, 'x9 x9')",
                "contains(t, 'Index') and k < 5",
                "t like 'range%'",
                "starts_with(t, 'moved') or t = 'aab'",
            ),
            options={"rows_per_task": st.sampled_from([None, 50])},
        ),
        rtree("p", filters=(f"st_intersects(p, {TRIANGLE}) or p is null",)),
        btree("k"),
    )


class BoxHistory(History):
    """Points, found by R-trees; `k` has a B-tree at times."""

    # The NULL that a row had before an update, under the same row id.
    keeps_updated = True
    columns: ClassVar = {"p": points("p"), "k": integers("k")}
    indices = (
        rtree(
            "p",
            filters=(
                f"st_intersects(p, {TRIANGLE})",
                "st_within(p, st_geomfromtext('POLYGON((1 1, 8 1, 8 3, 1 3, 1 1))')) and k < 9",
                "p is null",
                f"st_intersects({TRIANGLE}, p) or p is null",
            ),
        ),
        btree("k"),
    )


class WordHistory(History):
    """Words of texts; `k` has a B-tree at times."""

    columns: ClassVar = {"k": integers("k"), "t": words("t")}
    indices = (inverted_index("t"), btree("k", filters=("k = 7",)))


class KeyHistory(History):
    """Rows are found by an index on their key at times, and change by all writers."""

    columns: ClassVar = {"k": integers("k"), "s": strings("s")}
    indices = (btree("id", filters=("id < 40", "id = 7", "id in (3, 60, 61)")), btree("k", filters=("k = 7",)))


class VectorHistory(History):
    """`k` has a B-tree at times, for filtered searches."""

    columns: ClassVar = {"k": integers("k", 10, nulls=False), "v": vectors()}
    indices = (
        vector_index(
            "v",
            VECTOR_TYPES,
            options={"IVF_PQ": {"num_sub_vectors": 4}},
            prefilters=(None, "k < 4", "id % 3 = 0"),
        ),
        btree("k"),
    )
    # pylance cannot remap graphs whose rows it does not know.
    pylance_follows_reuse = False
    # Candidates are measured again by the vectors of the table: pylance returns no old distance.
    heals = False


class BitsHistory(VectorHistory):
    """Vectors of bits. pylance builds graphs over them, and panics when it optimizes such an index."""

    columns: ClassVar = {"k": integers("k", 10, nulls=False), "v": vectors(BITS)}
    indices = (vector_index("v", ("IVF_FLAT",), prefilters=(None, "k < 4"), shape=BITS), btree("k"))


class SeveralHistory(VectorHistory):
    """Several vectors a row."""

    columns: ClassVar = {"k": integers("k", 10, nulls=False), "v": vectors(SEVERAL)}
    indices = (
        vector_index(
            "v",
            VECTOR_TYPES,
            options={"IVF_PQ": {"num_sub_vectors": 4}},
            prefilters=(None, "k < 4"),
            shape=SEVERAL,
        ),
        btree("k"),
    )


SCALAR = tuple(
    machine
    for each in (KeyHistory, ScalarHistory, ZonesHistory, BitmapHistory, TextHistory, WordHistory)
    for machine in (each, with_stable_row_ids(each))
)
# Drawn by the heavy tests alone; the others have an R-tree next to texts.
BOXES = (BoxHistory, with_stable_row_ids(BoxHistory))
VECTORS = (VectorHistory, with_stable_row_ids(VectorHistory))
# Vectors of other types; on Spark, what differs is the same tasks.
OTHER_VECTORS = tuple(
    machine for each in (BitsHistory, SeveralHistory) for machine in (each, with_stable_row_ids(each))
)
# What leads to old values in an index, without what only makes it rarer.
IN_PLACE = {
    "create",
    "append",
    "change_in_place",
    "change_in_place_and_compact",
    "update_column",
    "build",
    "build_delta",
    "optimize",
    "maintain",
    "compact_deferred",
    "pylance_compact_deferred",
    "pylance_optimize",
    "catch_up",
    "trim",
    "restore",
    "forget_versions",
}
# What changes rows, by Pennon and by pylance, and what indices then need.
ROWS = {
    "create",
    "append",
    "delete_values",
    "update_rows",
    "merge_insert",
    "pennon_delete",
    "pennon_delete_values",
    "pennon_update",
    "pennon_merge",
    "update_column",
    "build",
    "optimize",
    "compact",
    "compact_deferred",
    "pylance_compact_deferred",
    "pylance_optimize",
    "restore",
}
CHANGED = [only(machine, ROWS) for machine in (KeyHistory, with_stable_row_ids(KeyHistory))]
CHANGING = [only(machine, IN_PLACE) for machine in (*SCALAR, *VECTORS)]
# How many histories a test draws; `make check` draws fewer.
HISTORIES = int(os.environ.get("PENNON_HISTORIES", "3"))
SHORT = settings(
    max_examples=HISTORIES,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
LONG = settings(SHORT, stateful_step_count=20, derandomize=False)
Machine = type[History]


@pytest.mark.parametrize("machine", SCALAR)
@pytest.mark.usefixtures("process_engine")
def test_random_histories(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.parametrize("machine", [*VECTORS, *OTHER_VECTORS])
@pytest.mark.usefixtures("process_engine")
def test_random_histories_of_vectors(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(SHORT, stateful_step_count=10))


@pytest.mark.parametrize("machine", CHANGING)
@pytest.mark.usefixtures("process_engine")
def test_random_histories_of_changes_in_place(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.parametrize("machine", CHANGED)
@pytest.mark.usefixtures("process_engine")
def test_random_histories_of_changed_rows(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(SHORT, max_examples=2 * HISTORIES))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", CHANGED)
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories_of_changed_rows(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=200))


@pytest.mark.parametrize("machine", [*SCALAR, *VECTORS])
@pytest.mark.usefixtures("engine")
def test_random_histories_on_spark(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(SHORT, max_examples=min(2, HISTORIES), stateful_step_count=10))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [*SCALAR, *BOXES])
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=200))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [*VECTORS, *OTHER_VECTORS])
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories_of_vectors(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=100))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [*CHANGING, *(only(machine, IN_PLACE) for machine in BOXES)])
@pytest.mark.usefixtures("process_engine")
def test_many_random_histories_of_changes_in_place(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=100))


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [*SCALAR, *BOXES, *VECTORS])
@pytest.mark.usefixtures("engine")
def test_many_random_histories_on_spark(machine: Machine) -> None:
    run_state_machine_as_test(machine, settings=settings(LONG, max_examples=40))
