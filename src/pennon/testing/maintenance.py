"""What Pennon does to maintain the indices of a table, as rules of random histories."""

from __future__ import annotations

import warnings
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

import pennon
from pennon.errors import CompactionWarning
from pennon.jobs.shared import commit
from pennon.table import Table
from pennon.testing.writers import TARGET_ROWS, Writers


class Crash(Exception):
    """The process dies between writing files and delete_if_refused them."""


class Maintenance(Writers):
    """Every verb that keeps indices, in every mode, with what must hold after it."""

    def open(self) -> Table:
        """The table as Pennon opens it."""
        return pennon.open(self.uri)

    @rule(merge=st.sampled_from([None, None, 0, 1, 2, 9]))
    def optimize(self, merge: int | None) -> None:
        """Merges segments and covers what is not covered."""
        table = self.open()
        table.optimize_indices(num_indices_to_merge=merge)
        for index in table.indices():
            assert index.coverage == 1.0, index

    def cover(self, how: str) -> None:
        """Cover all fragments by "optimize", "add a delta" or "maintain"; do nothing for any other word."""
        if how == "optimize":
            self.optimize(None)
        elif how == "add a delta":
            self.optimize(0)
        elif how == "maintain":
            self.maintain("deferred", 60)

    @rule(which=st.integers(0, 1))
    def retrain(self, which: int) -> None:
        """Builds an index again from all rows."""
        table = self.open()
        names = [index.name for index in table.indices()]
        if names:
            name = names[which % len(names)]
            table.optimize_indices(index_names=[name], retrain=True)
            [index] = [index for index in table.indices() if index.name == name]
            assert (len(index.segments), index.coverage) == (1, 1.0)

    @rule(rows=TARGET_ROWS, threshold=st.sampled_from([0.0, 0.1]))
    def compact(self, rows: int, threshold: float) -> None:
        """A compaction that remaps the indices at once."""
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        table.compact(remap="immediate", target_rows_per_fragment=rows, materialize_deletions_threshold=threshold)
        for index in table.indices():
            assert index.coverage == 1.0 or before[index.name] < 1.0, index

    @precondition(lambda self: not self.stable_row_ids)
    @rule(rows=TARGET_ROWS, threshold=st.sampled_from([0.0, 0.1]))
    def compact_deferred(self, rows: int, threshold: float) -> None:
        """A compaction that leaves the remapping to readers; indices cover what they covered."""
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompactionWarning)
            table.compact(remap="deferred", target_rows_per_fragment=rows, materialize_deletions_threshold=threshold)
        for index in table.indices():
            assert index.coverage == 1.0 or before[index.name] < 1.0, index

    @rule(rows=st.sampled_from([60, 1000]))
    def compact_dropping(self, rows: int) -> None:
        """A compaction after which indices cover less."""
        self.open().compact(remap="drop", target_rows_per_fragment=rows)

    @rule()
    def catch_up(self) -> None:
        """Writes segments with the new addresses of their rows."""
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        table.catch_up_indices()
        assert {index.name: index.coverage for index in table.indices()} == before
        assert table.catch_up_indices().segments_written == 0

    @rule(caught_up=st.booleans())
    def trim(self, caught_up: bool) -> None:
        """Removes compactions that no index needs any longer."""
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        if caught_up:
            table.catch_up_indices()
        table.trim_fragment_reuse()
        assert {index.name: index.coverage for index in table.indices()} == before
        assert table.trim_fragment_reuse().versions_removed == 0
        if caught_up:
            assert table.fragment_reuse() is None

    @rule(remap=st.sampled_from(["immediate", "deferred"]), rows=st.sampled_from([60, 1000]))
    def maintain(self, remap: str, rows: int) -> None:
        """All of it by one policy."""
        policy = pennon.MaintenancePolicy(
            remap="immediate" if self.stable_row_ids else remap, target_rows_per_fragment=rows
        )
        table = self.open()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompactionWarning)
            report = table.maintain(policy)
        assert not [decision for decision in report.decisions if decision.outcome.startswith("failed")]
        for index in table.indices():
            assert index.coverage == 1.0, index

    @rule(verb=st.sampled_from(["optimize_indices", "compact", "catch_up_indices", "trim_fragment_reuse"]))
    def crash(self, verb: str) -> None:
        """The process ends before the commit: the table is as before."""
        table = self.open()
        version = table.version
        options: dict[str, Any] = {"target_rows_per_fragment": 1000} if verb == "compact" else {}
        with (
            mock.patch.object(commit, "commit_segments", side_effect=Crash),
            mock.patch("pennon.jobs.compact.compact.commit_remapped", side_effect=Crash),
            mock.patch("pennon.jobs.compact.compact.commit_dropping", side_effect=Crash),
            warnings.catch_warnings(),
        ):
            try:
                getattr(table, verb)(**options)
            except Crash:
                assert self.open().version == version
