"""Create an index: build the files of a segment, then commit it."""

from __future__ import annotations

from collections.abc import Callable

from pennon.engine import Engine
from pennon.errors import IndexExists
from pennon.format.snapshot import Snapshot
from pennon.jobs.build_btree import BTreePlan, build_btree
from pennon.jobs.publish import add_segment, check_name_free, publish


def create_index(
    engine: Callable[[], Engine], snapshot: Snapshot, plan: BTreePlan, *, replace: bool, whole: bool
) -> Snapshot:
    """Build what was planned on `snapshot` and commit it, in place of the whole index or as one segment of it."""
    if whole and not replace and any(s.name == plan.name for s in snapshot.manifest.user_segments):
        raise IndexExists(
            f"table {snapshot.uri} has an index {plan.name!r} already", "Choose another name, or replace=True"
        )
    check_name_free(snapshot, plan.name, (plan.field_id,))
    segment = build_btree(engine, snapshot, plan)
    try:
        committed = publish(snapshot, add_segment(segment, replace_whole=whole, may_replace=replace))
    except BaseException:
        snapshot.store.delete_directory(segment.directory)
        raise
    # Attempts that Spark gave up on may have left files that nothing names.
    snapshot.store.delete_directory(segment.directory, keep=segment.file_sizes)
    return committed
