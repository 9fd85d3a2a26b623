"""Create an index: build the files of a segment, then commit it."""

from __future__ import annotations

from collections.abc import Callable

from pennon.engine import Engine
from pennon.errors import IndexExists
from pennon.format.index_metadata import IndexSegment
from pennon.format.snapshot import Snapshot
from pennon.format.store import Store
from pennon.jobs.build_btree import BTreePlan, build_btree
from pennon.jobs.publish import add_segment, publish


def create_index(
    engine: Callable[[], Engine], snapshot: Snapshot, plan: BTreePlan, *, replace: bool, whole: bool
) -> Snapshot:
    """Build what was planned on `snapshot` and commit it: in place of the whole index of that name, or as one segment."""
    if whole and not replace and any(s.name == plan.name for s in snapshot.manifest.user_segments):
        raise IndexExists(f"table {snapshot.uri} has an index {plan.name!r} already", "Choose another name, or replace=True")
    segment = build_btree(engine, snapshot, plan)
    try:
        committed = publish(snapshot, add_segment(segment, replace_whole=whole, may_replace=replace))
    except BaseException:
        _remove_files(snapshot.store, segment, keep=())
        raise
    # Attempts that Spark gave up on may have left files that nothing names.
    _remove_files(snapshot.store, segment, keep=tuple(f.path for f in segment.files))
    return committed


def _remove_files(store: Store, segment: IndexSegment, keep: tuple[str, ...]) -> None:
    for path in store.list(segment.directory):
        if path.rpartition("/")[2] not in keep:
            store.delete(path)
