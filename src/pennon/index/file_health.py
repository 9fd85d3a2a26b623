"""Whether the files of a segment are there, as long as the manifest records them."""

from __future__ import annotations

from pennon.format.index_metadata import IndexSegment
from pennon.format.store import Store


def file_damage(store: Store, segment: IndexSegment) -> str | None:
    """The first file that is missing or has another size than recorded, None where there is none. Object stores report
    no sizes, so that a file of theirs with another size is found only when it is read."""
    present = {path.rpartition("/")[2] for path in store.list(segment.directory)}
    for file in segment.files:
        path = f"{segment.directory}/{file.path}"
        if file.path not in present:
            return f"{store.describe(path)} is missing"
        size = store.size(path)
        if size is not None and file.size_bytes and size != file.size_bytes:
            return f"{store.describe(path)} has {size:,} bytes, its index recorded {file.size_bytes:,}"
    return None
