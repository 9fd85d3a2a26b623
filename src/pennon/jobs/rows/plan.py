"""What a change of rows does, counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pennon.display import Displayed
from pennon.wording import in_lines, plural


@dataclass(frozen=True)
class RowsPlan(Displayed):
    """How many rows are deleted, updated and inserted, in which fragments rows go, and how they are found."""

    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    fragments: tuple[int, ...] = ()
    how: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> int:
        """All of them."""
        return self.rows_deleted + self.rows_updated + self.rows_inserted

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rows_deleted": self.rows_deleted,
            "rows_updated": self.rows_updated,
            "rows_inserted": self.rows_inserted,
            "fragments": list(self.fragments),
            "how": list(self.how),
        }

    @property
    def summary(self) -> str:
        """One line."""
        counts = {"deleted": self.rows_deleted, "updated": self.rows_updated, "inserted": self.rows_inserted}
        changed = [(verb, count) for verb, count in counts.items() if count]
        if not changed:
            return "no rows would change"
        (first, number), *others = changed
        listed = [f"{plural(number, 'row')} would be {first}", *(f"{count:,} {verb}" for verb, count in others)]
        where = f" in {plural(len(self.fragments), 'fragment')}" if self.fragments else ""
        return f"{', '.join(listed)}{where}"

    def __str__(self) -> str:
        return in_lines([self.summary, *(f"  {line}" for line in self.how)])
