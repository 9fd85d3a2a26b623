"""Every error Pennon raises on purpose. A message states the problem, the place and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pennon.secrets import redact
from pennon.wording import escape_controls


class PennonError(Exception):
    """Base of all Pennon errors; `remedy` is the sentence that describes what to do."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        problem, remedy = escape_controls(redact(problem)), escape_controls(redact(remedy))
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[PennonError], tuple[Any, ...]]:
        # Errors travel from Spark workers to the driver by pickle.
        return type(self), (self.problem, self.remedy)


class InvalidArgument(PennonError, ValueError):
    """An argument is invalid for any table."""


class TableNotFound(PennonError):
    """The store answered, but there is no Lance table at the address, or the table lacks the requested version."""


class StoreUnavailable(PennonError, OSError):
    """The store did not answer: it could not be reached, refused, failed, or broke off in the middle. What it holds is
    unknown. `retryable` is true if the same call may succeed later without any change."""

    def __init__(self, problem: str, remedy: str = "", retryable: bool = True) -> None:
        super().__init__(problem, remedy)
        self.retryable = retryable

    def __reduce__(self) -> tuple[type[PennonError], tuple[Any, ...]]:
        return type(self), (self.problem, self.remedy, self.retryable)


class ColumnNotFound(PennonError):
    """The table has no such column."""


class UnsupportedColumn(PennonError):
    """The column exists, but its type does not support this kind of index, or pylance cannot read it."""


class UnsupportedTable(PennonError):
    """The table uses a format feature that this version of Pennon does not support."""


class IndexNotFound(PennonError):
    """The table has no index of that name."""

    @classmethod
    def among(cls, known: Iterable[str], name: str, table: str) -> IndexNotFound:
        """The error for a name that is not one of the known ones."""
        names = sorted(set(known))
        remedy = f"Its indices are: {', '.join(names)}" if names else "It has none"
        return cls(f"table {table} has no index {name!r}", remedy)


class IndexExists(PennonError):
    """An index of that name exists and may not be replaced."""


class UnknownIndexType(PennonError, ValueError):
    """Pennon cannot build the requested index type."""


class InvalidFilter(PennonError, ValueError):
    """The filter does not parse, or does not fit the table's schema."""


class RecallUnknown(PennonError):
    """The requested recall was never measured, and the table is too large to measure it for one search."""


class DamagedFile(PennonError):
    """A file of the table or of an index is missing, truncated or inconsistent."""


class DamagedTable(DamagedFile):
    """The table itself is damaged, so a scan cannot replace the damaged file."""


class BuildFailed(PennonError):
    """The result of a job failed its validation; nothing was committed."""


class CommitConflict(PennonError):
    """Another writer changed the table so that this work can no longer be committed."""


class StoreReadOnly(PennonError):
    """A file of the table cannot be deleted."""


class JavaNotFound(PennonError):
    """Spark needs Java, and no suitable version was found."""


class SparkUnavailable(PennonError):
    """No Spark session is available, or it is too old."""


class TaskFailed(PennonError):
    """A task failed, on Spark after all its attempts; nothing was committed."""


class PennonWarning(UserWarning):
    """A condition that the user should know about; results are still correct."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(escape_controls(redact(item)) if isinstance(item, str) else item for item in arguments))


class DamagedIndexWarning(PennonWarning):
    """An index segment is damaged; its fragments were scanned instead."""


class CoverageWarning(PennonWarning):
    """Fragments changed while an index was built and were left out of its coverage."""


class CompactionWarning(PennonWarning):
    """Fragments were left out of a compaction."""


class DoubtfulRecallWarning(PennonWarning):
    """The table changed since the settings for a recall were measured and stored."""


class IgnoredOptionWarning(PennonWarning):
    """An option has no effect on an index of this type, or together with the other given options."""
