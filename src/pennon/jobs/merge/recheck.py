"""Whether other writers have added or changed rows with the keys of a source since they were matched.

Only fragments that are new, whose keys were changed in place, or of which rows were restored, can hold such rows. They
are looked at before every attempt to commit, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pyroaring import BitMap

from pennon.engine import Engine
from pennon.format.row_set import bitmap_of
from pennon.format.snapshot import Pin, Snapshot
from pennon.index.cache import SHARED_CACHE
from pennon.jobs.merge.source import Staged, StagedSlice
from pennon.jobs.rows.change import RowsChanged
from pennon.query.catalog import Catalog
from pennon.query.lookup.find import Lookup

# Keys that this process looks up; more are looked up by tasks.
FEW_KEYS = 200_000
# Rows of changed fragments beyond which matching again costs no more than looking.
MANY_ROWS = 20_000_000


@dataclass
class KeyCheck:
    """Checks newer versions than the one that the source was matched with."""

    engine: Engine
    read: Snapshot
    staged: Staged
    on: tuple[str, ...]
    _checked: dict[int, object] = field(default_factory=dict[int, object])

    def __call__(self, base: Snapshot) -> None:
        """Raises RowsChanged if a changed fragment has a key of the source."""
        changed = self._changed(base)
        if not changed:
            return
        fragments = BitMap(changed)
        if base.manifest.rows_in(fragments) > MANY_ROWS or self._any(base, fragments):
            raise RowsChanged(
                f"another writer added or changed rows of {base.uri} with keys of the source in the meantime",
                "Nothing was committed; run the merge again",
            )
        self._checked |= changed

    def _changed(self, base: Snapshot) -> dict[int, object]:
        fields = [base.column(key).field_id for key in self.on]
        before, now = self.read.manifest, base.manifest
        found: dict[int, object] = {}
        for fragment in now.fragments:
            files = tuple(str(now.column_files(fragment, each)) for each in fields)
            known = tuple(str(before.column_files(fragment, each)) for each in fields)
            state = (files, now.fragments[fragment].deletion_file)
            if (files != known or self._revived(base, fragment)) and self._checked.get(fragment) != state:
                found[fragment] = state
        return found

    def _revived(self, base: Snapshot, fragment: int) -> bool:
        """Whether rows that were deleted are there again: an older version was restored."""
        before, now = self.read.manifest.fragments[fragment], base.manifest.fragments[fragment]
        if before.deletion_file in (None, now.deletion_file):
            return False
        deleted = bitmap_of(self.read.deleted_offsets(fragment))
        return bool(deleted - bitmap_of(base.deleted_offsets(fragment)))

    def _any(self, base: Snapshot, fragments: BitMap) -> bool:
        look = partial(_has_keys, base.pin(), self.staged, self.on, fragments.serialize())
        if self.staged.rows <= FEW_KEYS:
            return any(map(look, self.staged.slices()))
        return any(self.engine.map("check keys again", look, self.staged.slices(), rows=self.staged.rows))


def _has_keys(pin: Pin, staged: Staged, on: tuple[str, ...], fragments: bytes, part: StagedSlice) -> bool:
    """Task."""
    lookup = Lookup(Catalog.read(pin.open(), SHARED_CACHE), on, float_bits=True)
    for batch in staged.read(part, on):
        keys = lookup.read_keys([batch.column(key) for key in on])
        if next(lookup.find(keys, BitMap.deserialize(fragments)), None) is not None:
            return True
    return False
