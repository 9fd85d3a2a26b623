"""What writers and pylance do to a table, as rules of random histories."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import lance
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from pennon.testing.cases import Column, IndexCase
from pennon.testing.in_place import WAYS, change_in_place

REUSE = "__lance_frag_reuse"
SEEDS = st.integers(0, 1000)
TARGET_ROWS = st.sampled_from([60, 100, 1000])


class Writers(RuleBasedStateMachine):
    """A table at `uri` with a column `id` and those of `columns`, in a directory of its own."""

    columns: ClassVar[Mapping[str, Column]] = {}
    indices: ClassVar[tuple[IndexCase, ...]] = ()
    stable_row_ids: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pennon-history-"))
        self.uri = str(self.directory / "t.lance")
        self.next_id = 0
        self.changed_in_place = False
        self.compacted_by_pylance = False

    def teardown(self) -> None:
        """Remove the table."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def rows(self, count: int, seed: int) -> pa.Table:
        """New rows, with ids that no row has had."""
        rng = np.random.default_rng(seed)
        start, self.next_id = self.next_id, self.next_id + count
        ids = pa.array(range(start, start + count), pa.int64())
        return pa.table({"id": ids, **{name: column.values(rng, count) for name, column in self.columns.items()}})

    def dataset(self) -> lance.LanceDataset:
        """The table as pylance opens it."""
        return lance.dataset(self.uri)

    def has_reuse(self) -> bool:
        """Whether deferred compactions are outstanding."""
        return any(index.name == REUSE for index in self.dataset().describe_indices())

    @rule(count=st.integers(1, 60), seed=SEEDS)
    def append(self, count: int, seed: int) -> None:
        """New rows in new fragments."""
        lance.write_dataset(self.rows(count, seed), self.uri, mode="append")

    @rule(modulus=st.integers(3, 9), rest=st.integers(0, 8))
    def delete(self, modulus: int, rest: int) -> None:
        """Some rows of every fragment."""
        self.dataset().delete(f"id % {modulus} = {rest}")

    @rule(number=st.integers(0, 19), data=st.data())
    def delete_values(self, number: int, data: st.DataObject) -> None:
        """All rows with some value of a column."""
        conditions = [column.condition for column in self.columns.values() if column.condition]
        if conditions:
            self.dataset().delete(data.draw(st.sampled_from(conditions))(number))

    @rule(data=st.data())
    def delete_fragment(self, data: st.DataObject) -> None:
        """All rows of a fragment, and the fragment with them."""
        fragments = self.dataset().get_fragments()
        if len(fragments) > 1:
            chosen = data.draw(st.sampled_from(range(len(fragments))))
            ids = fragments[chosen].to_table(columns=["id"])["id"].to_pylist()
            self.dataset().delete(f"id in ({', '.join(map(str, [-1, *ids]))})")

    @rule(modulus=st.integers(3, 9), data=st.data())
    def update_rows(self, modulus: int, data: st.DataObject) -> None:
        """The rows get new addresses in new fragments."""
        name, change = data.draw(st.sampled_from(self.changes()))
        self.dataset().update({name: change}, where=f"id % {modulus} = 1")

    @rule(known=st.integers(0, 20), count=st.integers(1, 20), seed=SEEDS)
    def merge_insert(self, known: int, count: int, seed: int) -> None:
        """Rows of which the first are in the table already."""
        incoming = self.rows(count, seed)
        ids = pa.array([number.as_py() - known for number in incoming["id"]], pa.int64())
        incoming = incoming.set_column(0, "id", ids)
        self.dataset().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(incoming)

    @rule(modulus=st.integers(3, 9), seed=SEEDS, data=st.data())
    def merge_insert_one_column(self, modulus: int, seed: int, data: st.DataObject) -> None:
        """pylance chooses between new rows and new values in place."""
        name, _ = data.draw(st.sampled_from(self.changes()))
        found = self.dataset().to_table(columns=["id"])["id"].to_pylist()
        ids = list(dict.fromkeys(number for number in found if number % modulus == 0))
        values = self.columns[name].values(np.random.default_rng(seed), len(ids))
        incoming = pa.table({"id": pa.array(ids, pa.int64()), name: values})
        self.dataset().merge_insert("id").when_matched_update_all().execute(incoming)
        self.changed_in_place = True

    @rule(first=st.integers(0, 5), count=st.integers(1, 3), seed=SEEDS, way=st.sampled_from(WAYS), data=st.data())
    def change_in_place(self, first: int, count: int, seed: int, way: str, data: st.DataObject) -> None:
        """The rows keep their addresses; indices hold their old values."""
        self.change_column(data.draw(st.sampled_from(self._indexed())), first, count, seed, way)

    def change_column(self, name: str, first: int, count: int, seed: int, way: str) -> None:
        """New values for a few rows of each of `count` fragments."""
        rng = np.random.default_rng(seed)
        for fragment in self.dataset().get_fragments()[first : first + count]:
            some = fragment.scanner(columns=["id"], with_row_id=True).to_table()["_rowid"][:6]
            if some:
                changed = pa.table({"_rowid": some, name: self.columns[name].values(rng, len(some))})
                change_in_place(self.uri, fragment, changed, way)
        self.changed_in_place = True

    @rule(number=st.integers(0, 9), data=st.data())
    def pylance_build(self, number: int, data: st.DataObject) -> None:
        """An index by pylance, in place of one of its name."""
        cases = [case for case in self.indices if case.pylance_build]
        if cases:
            case = data.draw(st.sampled_from(cases))
            assert case.pylance_build
            case.pylance_build(self.dataset(), number)

    # pylance corrupts B-trees when it remaps at once while deferred compactions are outstanding.
    @precondition(lambda self: not self.has_reuse())
    @rule(rows=TARGET_ROWS)
    def pylance_compact(self, rows: int) -> None:
        """A compaction that remaps the indices at once."""
        self.dataset().optimize.compact_files(target_rows_per_fragment=rows)

    @precondition(lambda self: not self.stable_row_ids)
    @rule(rows=TARGET_ROWS)
    def pylance_compact_deferred(self, rows: int) -> None:
        """A compaction that leaves the remapping to readers."""
        self.dataset().optimize.compact_files(target_rows_per_fragment=rows, defer_index_remap=True)
        self.compacted_by_pylance = self.compacted_by_pylance or self.has_reuse()

    def restore_version(self, back: int) -> None:
        """An older version becomes the newest, with its indices."""
        dataset = self.dataset()
        versions = [version["version"] for version in dataset.versions()]
        dataset.checkout_version(versions[max(0, len(versions) - 1 - back)]).restore()

    @rule()
    def forget_versions(self) -> None:
        """Nothing records any longer what segments once covered."""
        self.dataset().cleanup_old_versions(older_than=timedelta(0))

    def _indexed(self) -> list[str]:
        return list(dict.fromkeys(case.column for case in self.indices if case.column in self.columns))

    def changes(self) -> list[tuple[str, str]]:
        """The columns that SQL can change, each with its expression; a history needs one."""
        return [(name, column.change) for name, column in self.columns.items() if column.change]
