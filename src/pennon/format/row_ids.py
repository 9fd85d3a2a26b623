"""Stable row ids: the id of every row of a fragment, and the conversion between ids and addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pennon.deferred import deferred
from pennon.errors import DamagedTable
from pennon.format.addresses import OFFSET_BITS, Addresses, split_by_fragment
from pennon.format.fragments import Fragment
from pennon.format.protobuf_wire import fields
from pennon.format.store import translate_read_errors

if TYPE_CHECKING:
    import lance
    from lance.fragment import RowIdSequence
else:
    RowIdSequence = deferred("lance.fragment", "RowIdSequence")

RowIds = npt.NDArray[np.uint64]


def read_row_ids(dataset: lance.LanceDataset, fragment: Fragment) -> RowIds:
    """The stable id of each physical row of a fragment, by offset."""
    with translate_read_errors(f"the row ids of fragment {fragment.id} of {dataset.uri}"):
        ids = _read(dataset, fragment)
    if len(ids) != fragment.physical_rows:
        raise DamagedTable(
            f"fragment {fragment.id} of {dataset.uri} has {fragment.physical_rows} rows but {len(ids)} row ids"
        )
    return ids.to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)


def _read(dataset: lance.LanceDataset, fragment: Fragment) -> pa.Array:
    lance_fragment = dataset.get_fragment(fragment.id)
    if lance_fragment is None:
        raise ValueError("the fragment does not exist")
    inline = lance_fragment.metadata.row_id_meta
    if fragment.inline_row_ids is not None and inline is not None:
        check_sequence(fragment.inline_row_ids, fragment.physical_rows)
        return RowIdSequence.from_inline_metadata(inline).to_pyarrow()
    scanner = lance_fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True)
    return scanner.to_table()["_rowid"].combine_chunks().fill_null(0)


def check_sequence(content: bytes, rows: int) -> None:
    """Raises ValueError if a sequence of row ids spans more than a fragment of `rows` rows can have; a few bytes can
    encode a huge span. Message: 1 repeated segment, of which 1 to 3 are ranges (1 start, 2 end), with the missing
    values listed or as a bitmap."""
    for number, segment in fields(content):
        if number != 1 or not isinstance(segment, bytes):
            continue
        for form, range_ in fields(segment):
            if form in (1, 2, 3) and isinstance(range_, bytes):
                ends = {key: value for key, value in fields(range_) if isinstance(value, int)}
                span = ends.get(2, 0) - ends.get(1, 0)
                if not 0 <= span <= rows + 8 * len(content):
                    raise ValueError(f"{span} row ids for {rows} rows")


def ids_of(addresses: Addresses, row_ids: Callable[[int], RowIds]) -> RowIds:
    """The stable id of each (ascending) address."""
    parts = [row_ids(fragment)[offsets] for fragment, offsets in split_by_fragment(addresses).items()]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


class AddressOfId:
    """Stable id -> address of its live row. The id of a moved row also remains in the old fragment, marked deleted."""

    def __init__(
        self,
        fragments: Iterable[Fragment],
        row_ids: Callable[[int], RowIds],
        deleted: Callable[[int], npt.NDArray[np.uint32]],
    ) -> None:
        ids: list[RowIds] = []
        addresses: list[Addresses] = []
        for fragment in fragments:
            own = row_ids(fragment.id)  # first: checks that the fragment has as many rows as the manifest records
            offsets = live_offsets(fragment, deleted(fragment.id))
            ids.append(own[offsets])
            addresses.append(offsets | (np.uint64(fragment.id) << OFFSET_BITS))
        all_ids = np.concatenate(ids) if ids else np.empty(0, dtype=np.uint64)
        all_addresses = np.concatenate(addresses) if addresses else np.empty(0, dtype=np.uint64)
        order = np.argsort(all_ids)
        self._ids, self._addresses = all_ids[order], all_addresses[order]

    def __call__(self, ids: RowIds) -> Addresses:
        """Addresses of the ids that are still alive; the others are left out."""
        addresses, alive = self.locate(ids)
        return addresses[alive]

    def locate(self, ids: RowIds) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The address of each id, and whether it is still alive; the address of a dead id is meaningless."""
        if len(self._ids) == 0:
            return np.zeros(len(ids), dtype=np.uint64), np.zeros(len(ids), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._addresses[at], self._ids[at] == ids


def live_offsets(fragment: Fragment, deleted: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Offsets of the rows of a fragment that are not deleted, ascending."""
    offsets = np.arange(fragment.physical_rows, dtype=np.uint64)
    return np.delete(offsets, deleted) if len(deleted) else offsets
