"""Write a Fragment Reuse Index with fewer versions than it had.

Its content, a `FragmentReuseContent` message, is in the manifest entry up to `INLINE_BYTES`, as pylance does, else in
the file `details.binpb` of the entry's directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from pyroaring import BitMap, FrozenBitMap

from pennon.format.index_metadata import IndexSegment, segment_directory
from pennon.format.pb import lance_pb2 as pb
from pennon.format.snapshot import Snapshot
from pennon.index.fragment_reuse.reading import FragmentReuse

INLINE_BYTES = 204_800
EXTERNAL_FILE = "details.binpb"


def write_kept_versions(base: Snapshot, reuse: FragmentReuse, kept: Sequence[bool]) -> IndexSegment | None:
    """The entry of `reuse`, which was read from `base`, with the versions that are kept; None where none is."""
    versions = [version for version, stays in zip(reuse.content.versions, kept, strict=True) if stays]
    old = base.manifest.reuse_segment
    if not versions or old is None:
        return None
    content = pb.FragmentReuseContent(versions=versions)
    uuid, raw = str(uuid4()), content.SerializeToString()
    details = pb.FragmentReuseDetails(inline=content)
    if len(raw) > INLINE_BYTES:
        base.store.write(f"{segment_directory(uuid)}/{EXTERNAL_FILE}", raw)
        details = pb.FragmentReuseDetails(external=pb.ExternalFile(path=EXTERNAL_FILE, offset=0, size=len(raw)))
    fragments = BitMap(d.id for version in versions for group in version.groups for d in group.new_fragments)
    return replace(
        old,
        uuid=uuid,
        dataset_version=base.version,
        fragments=FrozenBitMap(fragments & base.manifest.live),
        details=details.SerializeToString(),
        files=(),
        base_id=None,  # the new file is in this table, even where a branch or a clone took the old one from another
        created_at=datetime.now(UTC),
    )
