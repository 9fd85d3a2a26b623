"""What Pennon does to keep a table's indices, as rules of random histories."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any
from unittest import mock

import lance
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import pennon
from pennon.errors import CompactionWarning
from pennon.jobs.shared import commit as publish
from pennon.table import Table


class Crash(Exception):
    """The process dies between writing files and committing them."""


class Maintenance(RuleBasedStateMachine):
    stable_row_ids: bool
    uri: str

    def open(self) -> Table:
        return pennon.open(self.uri)

    @rule(merge=st.sampled_from([None, None, 0, 1, 2, 9]))
    def optimize(self, merge: int | None) -> None:
        table = self.open()
        table.optimize(num_indices_to_merge=merge)
        for index in table.indices():
            assert index.coverage == 1.0, index

    def cover(self, how: str) -> None:
        """What is not covered, by one of the verbs that do so; any other word leaves it."""
        if how == "optimize":
            self.optimize(None)
        elif how == "add a delta":
            self.optimize(0)
        elif how == "maintain":
            self.maintain("deferred", 60)

    @rule(which=st.integers(0, 1))
    def retrain(self, which: int) -> None:
        table = self.open()
        names = [index.name for index in table.indices()]
        if names:
            name = names[which % len(names)]
            table.optimize(index_names=[name], retrain=True)
            [index] = [index for index in table.indices() if index.name == name]
            assert (len(index.segments), index.coverage) == (1, 1.0)

    @rule(rows=st.sampled_from([60, 100, 1000]), threshold=st.sampled_from([0.0, 0.1]))
    def compact(self, rows: int, threshold: float) -> None:
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        table.compact(remap="immediate", target_rows_per_fragment=rows, materialize_deletions_threshold=threshold)
        for index in table.indices():
            assert index.coverage == 1.0 or before[index.name] < 1.0, index

    @precondition(lambda self: not self.stable_row_ids)
    @rule(rows=st.sampled_from([60, 100, 1000]), threshold=st.sampled_from([0.0, 0.1]))
    def compact_deferred(self, rows: int, threshold: float) -> None:
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompactionWarning)
            table.compact(remap="deferred", target_rows_per_fragment=rows, materialize_deletions_threshold=threshold)
        for index in table.indices():
            assert index.coverage == 1.0 or before[index.name] < 1.0, index

    @rule(rows=st.sampled_from([60, 1000]))
    def compact_dropping(self, rows: int) -> None:
        self.open().compact(remap="drop", target_rows_per_fragment=rows)

    @rule()
    def catch_up(self) -> None:
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        table.catch_up_indices()
        assert {index.name: index.coverage for index in table.indices()} == before
        assert table.catch_up_indices() == 0

    @rule(caught_up=st.booleans())
    def trim(self, caught_up: bool) -> None:
        table = self.open()
        before = {index.name: index.coverage for index in table.indices()}
        if caught_up:
            table.catch_up_indices()
        table.trim_fragment_reuse()
        assert {index.name: index.coverage for index in table.indices()} == before
        assert table.trim_fragment_reuse() == 0
        if caught_up:
            assert table.fragment_reuse() is None

    @rule(remap=st.sampled_from(["immediate", "deferred"]), rows=st.sampled_from([60, 1000]))
    def maintain(self, remap: str, rows: int) -> None:
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

    @rule(back=st.integers(1, 4))
    def restore(self, back: int) -> None:
        """An older version, as far as there is one; its indices come with it."""
        dataset = lance.dataset(self.uri)
        versions = [v["version"] for v in dataset.versions()]
        dataset.checkout_version(versions[max(0, len(versions) - 1 - back)]).restore()

    @rule()
    def forget_versions(self) -> None:
        """Nothing tells any more what segments once covered."""
        lance.dataset(self.uri).cleanup_old_versions(older_than=timedelta(0))

    @rule(verb=st.sampled_from(["optimize", "compact", "catch_up_indices", "trim_fragment_reuse"]))
    def crash(self, verb: str) -> None:
        table = self.open()
        version = table.version
        options: dict[str, Any] = {"target_rows_per_fragment": 1000} if verb == "compact" else {}
        with (
            mock.patch.object(publish, "commit_segments", side_effect=Crash),
            mock.patch("pennon.jobs.compact.commit_remapped", side_effect=Crash),
            mock.patch("pennon.jobs.compact.commit_dropping", side_effect=Crash),
            warnings.catch_warnings(),
        ):
            try:
                getattr(table, verb)(**options)
            except Crash:
                assert self.open().version == version
