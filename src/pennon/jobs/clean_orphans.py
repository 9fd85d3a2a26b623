"""Delete index directories and data files that no version names, once too old to be those of a running job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pennon.display import Displayed
from pennon.errors import InvalidArgument
from pennon.format.cleanup import DeletedOrphans, Orphan, OrphanKind, delete_orphans, is_old, orphans
from pennon.format.snapshot import Snapshot
from pennon.wording import human_age, human_bytes, plural

# No age below this is taken as a sign that a job is over: what it has written first may wait for the rest all day.
LEAST_AGE = timedelta(days=1)
NOUNS = {OrphanKind.INDEX: ("index directory", "index directories"), OrphanKind.DATA: ("data file", "data files")}


@dataclass(frozen=True)
class CleanedOrphans(Displayed):
    """What was deleted, or in a dry run would be, and what stays because a running job may have written it.

    Ages are by the store's clock. A dry run writes nothing to ask for it, and takes this machine's.
    """

    uri: str
    older_than: timedelta
    deleted: tuple[Orphan, ...]
    kept: tuple[Orphan, ...]
    dry_run: bool = False

    @property
    def size_bytes(self) -> int | None:
        """Of what was deleted; None where the store does not report sizes."""
        sizes = [orphan.size_bytes for orphan in self.deleted]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "dry_run": self.dry_run,
            "clock": "this machine" if self.dry_run else "store",
            "older_than_seconds": self.older_than.total_seconds(),
            "size_bytes": self.size_bytes,
            "deleted": [_to_dict(orphan) for orphan in self.deleted],
            "kept": [_to_dict(orphan) for orphan in self.kept],
        }

    def __str__(self) -> str:
        size = "" if not self.deleted or self.size_bytes is None else f", {human_bytes(self.size_bytes)}"
        lines = [f"{counted(self.deleted)} {'would be deleted' if self.dry_run else 'deleted'}{size}"]
        lines += map(_line, self.deleted)
        if self.kept:
            age = human_age(self.older_than.total_seconds())
            lines.append(f"{counted(self.kept)} kept, not known to be older than {age}")
            lines += map(_line, self.kept)
        if self.dry_run and any(orphan.age is not None for orphan in (*self.deleted, *self.kept)):
            lines.append("Ages are measured with this machine's clock; a run that deletes uses the store's clock")
        return "\n".join(lines)


def clean_orphans(snapshot: Snapshot, older_than: timedelta, *, no_jobs_running: bool, dry_run: bool) -> CleanedOrphans:
    """With `no_jobs_running` the caller confirms what otherwise follows from age: that no job will commit them."""
    if older_than < timedelta(0):
        raise InvalidArgument(f"older_than must not be negative, but is {older_than}")
    seconds = older_than.total_seconds()
    if not (no_jobs_running or dry_run):
        refuse_young(seconds, "confirm that no job is running on this table (no_jobs_running, --no-jobs-running)")
    clean = _planned if dry_run else delete_orphans
    done = clean(snapshot, seconds, unknown_age=no_jobs_running)
    return CleanedOrphans(snapshot.uri, older_than, done.deleted, done.kept, dry_run)


def counted(found: Sequence[Orphan]) -> str:
    """How many there are of each kind."""
    kinds = Counter(orphan.kind for orphan in found)
    return " and ".join(plural(kinds[kind], *NOUNS[kind]) for kind in NOUNS if kinds[kind]) or "0 orphans"


def refuse_young(seconds: float, otherwise: str) -> None:
    """InvalidArgument where orphans would be deleted at an age that proves nothing."""
    least = LEAST_AGE.total_seconds()
    if seconds < least:
        raise InvalidArgument(
            f"what is only {human_age(seconds)} old may be what a running job is about to commit",
            f"Give at least {human_age(least)}, or {otherwise}",
        )


def _planned(snapshot: Snapshot, seconds: float, *, unknown_age: bool) -> DeletedOrphans:
    found = [(orphan, is_old(orphan, seconds, unknown_age=unknown_age)) for orphan in orphans(snapshot)]
    return DeletedOrphans(tuple(o for o, old in found if old), tuple(o for o, old in found if not old))


def _line(orphan: Orphan) -> str:
    age = "age unknown" if orphan.age is None else f"{human_age(orphan.age)} old"
    size = "" if orphan.size_bytes is None else f", {human_bytes(orphan.size_bytes)}"
    return f"  {orphan.path}  {age}{size}"


def _to_dict(orphan: Orphan) -> dict[str, object]:
    age = None if orphan.age is None else round(orphan.age)
    return {"path": orphan.path, "kind": orphan.kind.value, "age_seconds": age, "size_bytes": orphan.size_bytes}
