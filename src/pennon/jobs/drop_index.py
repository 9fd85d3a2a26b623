"""Drop an index: its segments leave the newest version, their files stay until old versions are cleaned up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pennon.display import Displayed
from pennon.format.snapshot import Snapshot
from pennon.jobs.shared.changes import DropIndex
from pennon.jobs.shared.commit import commit_change
from pennon.query.inventory import Index, list_indices
from pennon.wording import human_bytes, in_line, plural


@dataclass(frozen=True)
class DropPlan(Displayed):
    """The index that would leave the table."""

    version: int
    index: Index

    def to_dict(self) -> dict[str, Any]:
        return {"version": self.version, "index": self.index.to_dict()}

    def __str__(self) -> str:
        index = self.index
        size = f"{plural(len(index.segments), 'segment')}, {human_bytes(index.size_bytes)}"
        return in_line(f"would drop {index.name}: {index.type} on {', '.join(index.columns)}, {size}")


def plan_drop(snapshot: Snapshot, name: str) -> DropPlan:
    """Raises:
    IndexNotFound: the table has no index of this name.
    """
    DropIndex(name).on(snapshot)
    return DropPlan(snapshot.version, next(index for index in list_indices(snapshot) if index.name == name))


def drop_index(snapshot: Snapshot, plan: DropPlan) -> Snapshot:
    """The version without the index."""
    return commit_change(snapshot, DropIndex(plan.index.name))
