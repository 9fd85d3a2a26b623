"""The metadata of a segment whose files are written, for the commit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pyroaring import BitMap, FrozenBitMap

from pennon.format.index_metadata import IndexFile, IndexSegment
from pennon.format.segment_contents import write_contents
from pennon.format.snapshot import Snapshot


def describe_new_segment(
    snapshot: Snapshot,
    uuid: str,
    files: Iterable[IndexFile],
    *,
    name: str,
    field_id: int,
    fragments: Iterable[int],
    type_url: str,
    index_version: int,
    recorded: bool = True,
) -> IndexSegment:
    """Record the source of a segment in a file next to its own, and describe it. Its kind has no details. It is not
    `recorded` if the files may hold what their writer did not read from the table."""
    covered = BitMap(fragments)
    contents = [write_contents(snapshot.store, uuid, covered, snapshot.manifest.next_row_id)] if recorded else []
    return IndexSegment(
        uuid=uuid,
        name=name,
        fields=(field_id,),
        dataset_version=snapshot.version,
        fragments=FrozenBitMap(covered),
        type_url=type_url,
        details=b"",
        index_version=index_version,
        files=(*files, *contents),
        created_at=datetime.now(UTC),
    )
