"""Delete index files that no version names, once they are too old to be those of a running job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pennon.errors import InvalidArgument
from pennon.format.housekeeping import Orphan, delete_orphans, is_old, orphans
from pennon.format.snapshot import Snapshot
from pennon.jobs.describe import human_age, human_bytes, plural

# No age below this is taken as a sign that a job is over: what it has written first may wait for the rest all day.
LEAST_AGE = timedelta(days=1)


@dataclass(frozen=True)
class CleanedOrphans:
    """What was deleted, or in a dry run would be, and what stays because a running job may have written it."""

    uri: str
    older_than: timedelta
    deleted: tuple[Orphan, ...]
    kept: tuple[Orphan, ...]
    dry_run: bool = False

    @property
    def size_bytes(self) -> int | None:
        """Of what was deleted; None where the store does not tell."""
        sizes = [orphan.size_bytes for orphan in self.deleted]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def to_dict(self) -> dict[str, object]:
        return {
            "table": self.uri,
            "dry_run": self.dry_run,
            "older_than_seconds": self.older_than.total_seconds(),
            "size_bytes": self.size_bytes,
            "deleted": [_to_dict(orphan) for orphan in self.deleted],
            "kept": [_to_dict(orphan) for orphan in self.kept],
        }

    def __str__(self) -> str:
        size = "" if not self.deleted or self.size_bytes is None else f", {human_bytes(self.size_bytes)}"
        lines = [f"{_directories(self.deleted)} {'would be deleted' if self.dry_run else 'deleted'}{size}"]
        lines += map(_line, self.deleted)
        if self.kept:
            age = human_age(self.older_than.total_seconds())
            lines.append(f"{_directories(self.kept)} kept, not known to be older than {age}")
            lines += map(_line, self.kept)
        return "\n".join(lines)


def clean_orphans(snapshot: Snapshot, older_than: timedelta, *, no_jobs_running: bool, dry_run: bool) -> CleanedOrphans:
    """With `no_jobs_running` the user vouches for what age stands for otherwise: that nobody will commit them."""
    if older_than < timedelta(0):
        raise InvalidArgument(f"older_than must not be negative, but is {older_than}")
    seconds = older_than.total_seconds()
    if not (no_jobs_running or dry_run):
        refuse_young(seconds, "say that no job is running on this table (no_jobs_running, --no-jobs-running)")
    found = orphans(snapshot)
    if dry_run:
        gone = [orphan for orphan in found if is_old(orphan, seconds, unknown_age=no_jobs_running)]
    else:
        gone = delete_orphans(snapshot, seconds, unknown_age=no_jobs_running)
    names = {orphan.directory for orphan in gone}
    kept = tuple(orphan for orphan in found if orphan.directory not in names)
    return CleanedOrphans(snapshot.uri, older_than, tuple(gone), kept, dry_run)


def refuse_young(seconds: float, otherwise: str) -> None:
    """InvalidArgument where orphans would be deleted at an age that says nothing."""
    least = LEAST_AGE.total_seconds()
    if seconds < least:
        raise InvalidArgument(
            f"what is only {human_age(seconds)} old may be what a running job is about to commit",
            f"Give at least {human_age(least)}, or {otherwise}",
        )


def _directories(found: tuple[Orphan, ...]) -> str:
    return plural(len(found), "index directory", "index directories")


def _line(orphan: Orphan) -> str:
    age = "age unknown" if orphan.age is None else f"{human_age(orphan.age)} old"
    size = "" if orphan.size_bytes is None else f", {human_bytes(orphan.size_bytes)}"
    return f"  {orphan.directory}  {age}{size}"


def _to_dict(orphan: Orphan) -> dict[str, object]:
    age = None if orphan.age is None else round(orphan.age)
    return {"directory": orphan.directory, "age_seconds": age, "size_bytes": orphan.size_bytes}
