"""Options of a compaction."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pennon.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class CompactionOptions:
    """Which fragments to rewrite and how; None leaves the choice to pylance.

    The `max_source_*` limits take the oldest fragments first, for a table that is compacted in several runs.
    """

    target_rows_per_fragment: int = 1_048_576
    max_bytes_per_file: int | None = None
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    num_threads: int | None = None
    batch_size: int | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if option.name == "materialize_deletions_threshold":
                continue  # with 0, in pylance too, a fragment with any deleted row is rewritten
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise InvalidArgument(f"{option.name} must be positive, not {value}")
        if not 0 <= self.materialize_deletions_threshold <= 1:
            raise InvalidArgument(
                f"materialize_deletions_threshold is a share of the rows, not {self.materialize_deletions_threshold}",
                "Give a number between 0 and 1",
            )

    def to_lance(self) -> dict[str, Any]:
        """The options as pylance names them."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
