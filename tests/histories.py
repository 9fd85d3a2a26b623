"""Random histories of a table: writers, stock maintenance and Pennon's verbs, checked after every step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

import pennon
from pennon.errors import InvalidArgument
from tests.in_place import WAYS, change_in_place
from tests.maintenance import Maintenance
from tests.tables import full_scan, stock_answer

CHECKS = [
    "k = 7",
    "k < 5",
    "k between 10 and 12",
    "k is null",
    "k != 3",
    "k in (1, 2, 19, 400)",
    "s = 's3'",
    "s like 's1%' and k > 4",
    "s is null or k = 7",
    "not (k > 3)",
]
REUSE = "__lance_frag_reuse"
THEN = ["nothing", "delta", "optimize", "add a delta", "maintain"]
HEALERS = ["audit", "maintain", "optimize"]


class TableHistory(Maintenance):
    """Two indexed columns: `k` (int64) and `s` (string); `id` names the rows."""

    stable_row_ids = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pennon-history-"))
        self.uri = str(self.directory / "t.lance")
        self.next_id = 0
        self.changed_in_place = False

    def teardown(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def rows(self, count: int, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        start, self.next_id = self.next_id, self.next_id + count
        k = [None if v == 0 else int(v) for v in rng.integers(0, 20, count)]
        s = [None if v == 0 else f"s{v}" for v in rng.integers(0, 15, count)]
        return pa.table(
            {
                "id": pa.array(range(start, start + count), pa.int64()),
                "k": pa.array(k, pa.int64()),
                "s": pa.array(s, pa.string()),
            }
        )

    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    def has_reuse(self) -> bool:
        return any(i.name == REUSE for i in self.dataset().describe_indices())

    @initialize(fragments=st.integers(1, 8), seed=st.integers(0, 1000), indexed=st.sampled_from(["", "k", "ks"]))
    def create(self, fragments: int, seed: int, indexed: str) -> None:
        lance.write_dataset(
            self.rows(fragments * 25, seed),
            self.uri,
            max_rows_per_file=25,
            enable_stable_row_ids=self.stable_row_ids,
        )
        for column in indexed:
            self.build(column, 2, exchanged=False)

    @rule(count=st.integers(1, 60), seed=st.integers(0, 1000))
    def append(self, count: int, seed: int) -> None:
        lance.write_dataset(self.rows(count, seed), self.uri, mode="append")

    @rule(modulus=st.integers(3, 9), rest=st.integers(0, 8))
    def delete(self, modulus: int, rest: int) -> None:
        self.dataset().delete(f"id % {modulus} = {rest}")

    @rule(low=st.integers(0, 19))
    def delete_values(self, low: int) -> None:
        self.dataset().delete(f"k = {low} or k = {low + 1}")

    @rule(data=st.data())
    def delete_fragment(self, data: st.DataObject) -> None:
        fragments = self.dataset().get_fragments()
        if len(fragments) > 1:
            chosen = data.draw(st.sampled_from(range(len(fragments))))
            ids = fragments[chosen].to_table(columns=["id"])["id"].to_pylist()
            self.dataset().delete(f"id in ({', '.join(map(str, [-1, *ids]))})")

    @rule(modulus=st.integers(3, 9))
    def update_rows(self, modulus: int) -> None:
        self.dataset().update({"k": "k + 1"}, where=f"id % {modulus} = 1")

    @rule(first=st.integers(0, 5), count=st.integers(1, 3), value=st.integers(0, 30), way=st.sampled_from(WAYS))
    def change_in_place(self, first: int, count: int, value: int, way: str) -> None:
        for fragment in self.dataset().get_fragments()[first : first + count]:
            rows = fragment.scanner(columns=["k"], with_row_id=True).to_table()
            some = rows["_rowid"][:5]
            if some:
                changed = pa.table({"_rowid": some, "k": pa.array([value] * len(some), pa.int64())})
                change_in_place(self.uri, fragment, changed, way)
        self.changed_in_place = True

    @rule(modulus=st.integers(2, 9), upper=st.integers(1, 200))
    def update_column(self, modulus: int, upper: int) -> None:
        pennon.open(self.uri).update_column("k", "k + 3", where=f"id % {modulus} = 0 and id < {upper}")
        self.changed_in_place = True

    @precondition(lambda self: not self.stable_row_ids)
    @rule(
        first=st.integers(0, 5),
        value=st.integers(0, 30),
        rows=st.sampled_from([60, 100, 1000]),
        ours=st.booleans(),
        then=st.sampled_from(THEN),
    )
    def change_in_place_and_move(self, first: int, value: int, rows: int, ours: bool, then: str) -> None:
        """Old values are now at addresses that no segment was written with, and someone covers those."""
        self.change_in_place(first, 2, value, "update")  # one fragment alone is not compacted
        if ours:
            self.compact_deferred(rows, 0.1)
        else:
            self.stock_compact_deferred(rows)
        if then == "delta":
            self.build_delta("k")
        else:
            self.cover(then)

    @rule(modulus=st.integers(3, 9), seed=st.integers(0, 1000))
    def merge_insert_one_column(self, modulus: int, seed: int) -> None:
        """pylance chooses between new rows and new values in place."""
        ids = [v for v in self.dataset().to_table(columns=["id"])["id"].to_pylist() if v % modulus == 0]
        ids = list(dict.fromkeys(ids))
        values = np.random.default_rng(seed).integers(0, 20, len(ids))
        incoming = pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array(values, pa.int64())})
        self.dataset().merge_insert("id").when_matched_update_all().execute(incoming)
        self.changed_in_place = True

    @rule(count=st.integers(1, 20), seed=st.integers(0, 1000))
    def merge_insert(self, count: int, seed: int) -> None:
        incoming = self.rows(count, seed)
        shifted = pa.array([max(0, v.as_py() - 10) for v in incoming["id"]], pa.int64())
        incoming = incoming.set_column(0, "id", shifted)
        incoming = incoming.group_by("id").aggregate([("k", "max"), ("s", "max")]).rename_columns(["id", "k", "s"])
        self.dataset().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(incoming)

    @rule(column=st.sampled_from(["k", "s"]), ranges=st.integers(1, 4), exchanged=st.booleans())
    def build(self, column: str, ranges: int, exchanged: bool) -> None:
        table = pennon.open(self.uri)
        table.create_index(column, ranges=ranges, batch_size=8, rows_per_task=50 if exchanged else None)
        assert table.indices()[-1].coverage == 1.0

    @rule(column=st.sampled_from(["k", "s"]))
    def build_delta(self, column: str) -> None:
        table = pennon.open(self.uri)
        index = next((i for i in table.indices() if i.name == f"{column}_idx"), None)
        if index is not None and index.uncovered_fragments:
            try:
                table.create_index(column, batch_size=8, fragment_ids=index.uncovered_fragments)
            except InvalidArgument as error:
                if "old values" not in str(error):
                    raise
                # Another segment holds old values of such a fragment, so the whole index is built anew.
                table.create_index(column, batch_size=8)

    @rule(column=st.sampled_from(["k", "s"]))
    def drop(self, column: str) -> None:
        table = pennon.open(self.uri)
        if any(i.name == f"{column}_idx" for i in table.indices()):
            table.drop_index(f"{column}_idx")

    @rule(column=st.sampled_from(["k", "s"]))
    def stock_build(self, column: str) -> None:
        self.dataset().create_scalar_index(column, "BTREE", name=f"{column}_idx", replace=True)

    @rule(merge=st.sampled_from([None, 0, 1, 2, 9]), heal=st.sampled_from(HEALERS))
    def stock_optimize(self, merge: int | None, heal: str) -> None:
        options = {} if merge is None else {"num_indices_to_merge": merge}
        self.dataset().optimize.optimize_indices(**options)
        if self.changed_in_place:
            self.heal(heal)

    def heal(self, how: str) -> None:
        """pylance puts new segments beside old values; whenever it answers wrongly for that, an audit finds it."""
        wrong = [f for f in CHECKS if stock_answer(self.uri, f)[0] != full_scan(self.uri, f)]
        table = pennon.open(self.uri)
        if table.audit(recall_queries=0).ok:
            assert not wrong
            return
        if how == "audit":
            table.audit(repair=True, recall_queries=0)
        elif how == "maintain":
            table.maintain()
        else:
            table.optimize()

    # Stock corrupts B-trees when it compacts at once while moves are outstanding, so it is kept from doing that.
    @precondition(lambda self: not self.has_reuse())
    @rule(rows=st.sampled_from([60, 100, 1000]))
    def stock_compact(self, rows: int) -> None:
        self.dataset().optimize.compact_files(target_rows_per_fragment=rows)

    @precondition(lambda self: not self.stable_row_ids)
    @rule(rows=st.sampled_from([60, 100, 1000]))
    def stock_compact_deferred(self, rows: int) -> None:
        self.dataset().optimize.compact_files(target_rows_per_fragment=rows, defer_index_remap=True)

    @invariant()
    def answers_equal_a_full_scan(self) -> None:
        if not Path(self.uri).exists():
            return
        table = pennon.open(self.uri)
        note(f"version {table.version}, indices {[(i.name, i.coverage) for i in table.indices()]}")
        for filter in CHECKS:
            expected = full_scan(self.uri, filter)
            assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
            assert table.count(filter) == len(expected), filter
            assert stock_answer(self.uri, filter)[0] == expected, f"stock: {filter}"


class StableTableHistory(TableHistory):
    stable_row_ids = True
