"""What Pennon does to the rows of a table, as rules of random histories. pylance does the same to a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import rule

from pennon.jobs.merge.clauses import Delete, Update
from pennon.table import Table
from pennon.testing.maintenance import Maintenance
from pennon.testing.writers import SEEDS

ROW_ID = "_rowid"
# The clauses of a merge for Pennon, and the same for pylance's builder.
Merge = tuple[dict[str, Any], Callable[[Any], Any]]
MERGES: dict[str, Merge] = {
    "upsert": ({}, lambda builder: builder.when_matched_update_all().when_not_matched_insert_all()),
    "insert": ({"when_matched": None}, lambda builder: builder.when_not_matched_insert_all()),
    "update": ({"when_not_matched": None}, lambda builder: builder.when_matched_update_all()),
    "delete": ({"when_matched": "delete", "when_not_matched": None}, lambda builder: builder.when_matched_delete()),
    "some": (
        {"when_matched": Update(condition="target.id % 2 = 0")},
        lambda builder: builder.when_matched_update_all("target.id % 2 = 0").when_not_matched_insert_all(),
    ),
    "by source": (
        {"when_not_matched_by_source": Delete("target.id % 5 = 0")},
        lambda builder: (
            builder.when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete("id % 5 = 0")
        ),
    ),
}


class Changes(Maintenance):
    """Rows deleted, updated and merged by Pennon; the table is compared with what pylance made of a copy."""

    @rule(modulus=st.integers(3, 9), rest=st.integers(0, 8), upper=st.integers(1, 300))
    def pennon_delete(self, modulus: int, rest: int, upper: int) -> None:
        """Some rows of the first fragments."""
        filter = f"id % {modulus} = {rest} and id < {upper}"
        self.change_alike(lambda table: table.delete(filter), lambda dataset: dataset.delete(filter))

    @rule(number=st.integers(0, 19), data=st.data())
    def pennon_delete_values(self, number: int, data: st.DataObject) -> None:
        """All rows with some value of a column, found through its index."""
        conditions = [column.condition for column in self.columns.values() if column.condition]
        if conditions:
            filter = data.draw(st.sampled_from(conditions))(number)
            self.change_alike(lambda table: table.delete(filter), lambda dataset: dataset.delete(filter))

    @rule(modulus=st.integers(2, 9), maintain=st.booleans(), data=st.data())
    def pennon_update(self, modulus: int, maintain: bool, data: st.DataObject) -> None:
        """The rows get new addresses in new fragments, which are covered or not."""
        name, change = data.draw(st.sampled_from(self.changes()))
        where = f"id % {modulus} = 1"
        self.change_alike(
            lambda table: table.update({name: change}, where=where, maintain=maintain),
            lambda dataset: dataset.update({name: change}, where=where),
        )

    @rule(
        known=st.integers(0, 40),
        count=st.integers(1, 30),
        seed=SEEDS,
        kind=st.sampled_from(sorted(MERGES)),
        maintain=st.booleans(),
    )
    def pennon_merge(self, known: int, count: int, seed: int, kind: str, maintain: bool) -> None:
        """Rows of which the first are in the table already."""
        incoming = self.rows(count, seed)
        ids = pa.array([number.as_py() - known for number in incoming["id"]], pa.int64())
        incoming = incoming.set_column(0, "id", ids)
        ours, theirs = MERGES[kind]
        self.change_alike(
            lambda table: table.merge(incoming, "id", maintain=maintain, **ours),
            lambda dataset: theirs(dataset.merge_insert("id")).execute(incoming),
        )

    def change_alike(self, ours: Callable[[Table], Any], theirs: Callable[[lance.LanceDataset], Any]) -> None:
        """Change the table by Pennon and a copy by pylance, and compare all rows. Rows that stay keep stable row
        ids."""
        copy = str(self.directory / "copy.lance")
        shutil.copytree(self.uri, copy)
        before = self._row_ids()
        ours(self.open())
        theirs(lance.dataset(copy))
        found, expected = (lance.dataset(uri).to_table().sort_by("id") for uri in (self.uri, copy))
        assert found.equals(expected) or found.to_pylist() == expected.to_pylist()
        after = self._row_ids()
        assert {number: after[number] for number in after.keys() & before.keys()} == {
            number: before[number] for number in after.keys() & before.keys()
        }
        self.dataset().validate()
        shutil.rmtree(copy)

    def _row_ids(self) -> dict[int, int]:
        if not self.stable_row_ids:
            return {}
        rows = self.dataset().to_table(columns=["id"], with_row_id=True)
        return dict(zip(rows["id"].to_pylist(), rows[ROW_ID].to_pylist(), strict=True))
