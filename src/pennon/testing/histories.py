"""Random histories of a table: writers, pylance and Pennon in any order, every answer checked after every step.

A history is a hypothesis state machine. Subclass `History` with the columns of the table and the indices it draws from,
and run it in the process or on Spark:

    class BitmapHistory(History):
        columns: ClassVar = {"k": integers("k")}
        indices = (scalar_index("k", "BITMAP", filters=("k = 7", "k is null", "k in (1, 2, 400)")),)

    def test_histories_of_bitmaps() -> None:
        with in_process():
            run_state_machine_as_test(BitmapHistory, settings=settings(max_examples=20, deadline=None))

The oracle of a filter is a scan of pylance without any index; pylance's own answer through the index must agree too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import lance
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pennon.errors import InvalidArgument
from pennon.query.inventory import Index
from pennon.testing.cases import IndexCase
from pennon.testing.changes import Changes
from pennon.testing.oracles import full_scans, pylance_rows
from pennon.testing.writers import SEEDS, TARGET_ROWS

ROWS_PER_FRAGMENT = 25
THEN = st.sampled_from(["nothing", "delta", "optimize", "add a delta", "maintain"])
HEALERS = st.sampled_from(["audit", "maintain", "optimize"])


class History(Changes):
    """Set `columns` and `indices`; set `stable_row_ids` for a table that has them."""

    filters: ClassVar[tuple[str, ...]] = ()
    """Asked after every step, after the filters of each index; such as those over several columns."""
    pylance_follows_reuse: ClassVar[bool] = True
    """Whether pylance may optimize the indices while deferred compactions are outstanding."""
    heals: ClassVar[bool] = True
    """Whether an audit follows pylance's optimize where values have changed in place: it puts new segments next to old
    values, and answers wrongly until Pennon repairs that."""
    keeps_updated: ClassVar[bool] = False
    """Whether pylance's optimize does the same where rows were updated on a table with stable row ids."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn_filters: list[str] = []
        self.checked_files: dict[str, int] = {}

    @initialize(fragments=st.integers(1, 8), seed=SEEDS, indexed=st.integers(0, 11), data=st.data())
    def create(self, fragments: int, seed: int, indexed: int, data: st.DataObject) -> None:
        """A table of several fragments, with none, some or all of the indices."""
        rows = self.rows(fragments * ROWS_PER_FRAGMENT, seed)
        lance.write_dataset(
            rows, self.uri, max_rows_per_file=ROWS_PER_FRAGMENT, enable_stable_row_ids=self.stable_row_ids
        )
        for case in self.indices:
            if case.drawn_filters is not None:
                self.drawn_filters += data.draw(st.lists(case.drawn_filters, min_size=2, max_size=2))
        for case in self.indices[: indexed % (len(self.indices) + 1)]:
            self.build_case(case, *data.draw(case.builds))

    @rule(data=st.data())
    def build(self, data: st.DataObject) -> None:
        """An index over all fragments, in place of one of its name."""
        case = data.draw(st.sampled_from(self.indices))
        self.build_case(case, *data.draw(case.builds))

    @rule(data=st.data())
    def build_delta(self, data: st.DataObject) -> None:
        """A segment over what an index does not cover."""
        self.add_delta(data.draw(st.sampled_from(self.indices)), data)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """The index and its files' names in the manifest are gone."""
        case = data.draw(st.sampled_from(self.indices))
        if self.index_of(case):
            self.open().drop_index(case.name)

    @rule(modulus=st.integers(2, 9), upper=st.integers(1, 200), data=st.data())
    def update_column(self, modulus: int, upper: int, data: st.DataObject) -> None:
        """New values in place, by Pennon."""
        name, change = data.draw(st.sampled_from(self.changes()))
        self.open().update_column(name, change, where=f"id % {modulus} = 0 and id < {upper}")
        self.changed_in_place = True

    @precondition(lambda self: not self.stable_row_ids)
    @rule(first=st.integers(0, 5), seed=SEEDS, rows=TARGET_ROWS, ours=st.booleans(), then=THEN, data=st.data())
    def change_in_place_and_compact(
        self, first: int, seed: int, rows: int, ours: bool, then: str, data: st.DataObject
    ) -> None:
        """Old values are now at addresses that no segment was written with, and someone covers those."""
        case = data.draw(st.sampled_from([case for case in self.indices if case.column in self.columns]))
        self.change_column(case.column, first, 2, seed, "update")  # one fragment alone is not compacted
        if ours:
            self.compact_deferred(rows, 0.1)
        else:
            self.pylance_compact_deferred(rows)
        if then == "delta":
            self.add_delta(case, data)
        else:
            self.cover(then)

    @precondition(lambda self: self.pylance_follows_reuse or not self.has_reuse())
    @rule(merge=st.sampled_from([None, 0, 1, 2, 9]), heal=HEALERS)
    def pylance_optimize(self, merge: int | None, heal: str) -> None:
        """Segments merged and added by pylance."""
        options = {} if merge is None else {"num_indices_to_merge": merge}
        self.dataset().optimize.optimize_indices(**options)
        self.heal_if_needed(heal)

    @rule(back=st.integers(1, 4), heal=HEALERS)
    def restore(self, back: int, heal: str) -> None:
        """It may be one that pylance had not been healed in."""
        self.restore_version(back)
        self.heal_if_needed(heal)

    @invariant()
    def answers_are_right(self) -> None:
        """Filters are answered as by a scan, by Pennon and by pylance; other questions as their case checks."""
        # A step that leaves the files as they were, such as an optimize with nothing to do, changes no answer.
        files = {str(path): path.stat().st_mtime_ns for path in Path(self.uri).rglob("*") if path.is_file()}
        if files == self.checked_files:
            return
        self.checked_files = files
        table = self.open()
        note(f"version {table.version}, {[(index.name, index.type, index.coverage) for index in table.indices()]}")
        dataset = self.dataset()
        for filter, expected in full_scans(dataset, self.asked()).items():
            assert sorted(table.scan(filter, ["id"])["id"].to_pylist()) == expected, filter
            assert table.count(filter) == len(expected), filter
            assert pylance_rows(dataset, filter) == expected, f"pylance: {filter}"
        for case in self.indices:
            if case.check:
                case.check(self)

    def asked(self) -> list[str]:
        """The filters that are asked after every step."""
        of_cases = [filter for case in self.indices for filter in case.filters]
        return list(dict.fromkeys([*self.filters, *of_cases, *self.drawn_filters]))

    def index_of(self, case: IndexCase) -> Index | None:
        """The index of a case, if it is built."""
        return next((index for index in self.open().indices() if index.name == case.name), None)

    def build_case(self, case: IndexCase, index_type: str, options: Mapping[str, Any]) -> None:
        """Builds an index over all fragments; too few rows are a reason to refuse."""
        try:
            self.open().create_index(case.column, index_type, case.name, **options)
        except InvalidArgument as error:
            if not any(text in str(error) for text in case.refusals):
                raise
            return
        index = self.index_of(case)
        assert index is not None
        assert index.coverage == 1.0, index

    def add_delta(self, case: IndexCase, data: st.DataObject) -> None:
        """A segment over what the index of a case does not cover; the whole index where another segment has old values
        of those fragments."""
        index = self.index_of(case)
        if index is None or not index.uncovered_fragments:
            return
        options: dict[str, Any] = dict(case.delta_options(self.dataset()))
        try:
            self.open().create_index(
                case.column, index.type, case.name, fragment_ids=index.uncovered_fragments, **options
            )
        except InvalidArgument as error:
            if "old values" not in str(error):
                raise
            self.build_case(case, *data.draw(case.builds))

    def heal_if_needed(self, how: str) -> None:
        if self.heals and (self.changed_in_place or (self.keeps_updated and self.stable_row_ids)):
            self.heal(how)

    def heal(self, how: str) -> None:
        """Whenever pylance's answers are wrong, Pennon's are right, an audit finds it, and each of three verbs repairs
        it."""
        dataset = self.dataset()
        expected = full_scans(dataset, self.asked())
        for filter, rows in expected.items():
            assert sorted(self.open().scan(filter, ["id"])["id"].to_pylist()) == rows, f"before it is healed: {filter}"
        wrong = [filter for filter, rows in expected.items() if pylance_rows(dataset, filter) != rows]
        table = self.open()
        if table.audit(recall_queries=0).ok:
            assert not wrong
        elif how == "audit":
            table.audit(repair=True, recall_queries=0)
        elif how == "maintain":
            table.maintain()
        else:
            table.optimize_indices()


def only(machine: type[History], rules: set[str]) -> type[History]:
    """The same history with some of its rules: shorter ways to what they lead to together.

    Args:
        machine: A history.
        rules: The names of the rules that stay; `create` must be among them.
    """
    members = {name: getattr(machine, name) for name in dir(machine)}
    others = {
        # hypothesis passes over attributes that are None.
        name: None
        for name, member in members.items()
        if name not in rules and hasattr(member, "hypothesis_stateful_rule")
    }
    return type(f"Only{machine.__name__}", (machine,), others)


def with_stable_row_ids(machine: type[History]) -> type[History]:
    """The same history on a table with stable row ids."""
    return type(f"Stable{machine.__name__}", (machine,), {"stable_row_ids": True})
