"""The file that holds the remappings of a Fragment Reuse Index when they are too large for the manifest."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from pennon.errors import DamagedFile
from pennon.format.index_metadata import IndexSegment, is_plain_path
from pennon.format.pb import lance_pb2 as pb
from pennon.format.store import Store


def read_content(store: Store, segment: IndexSegment) -> bytes:
    """The remappings of an entry, from the manifest or from its file."""
    details = _details(store, segment)
    if details.WhichOneof("content") != "external":
        return details.inline.SerializeToString()
    file, path = details.external, _path(store, segment, details.external)
    raw = store.read(path)
    if file.offset + file.size > len(raw):
        raise DamagedFile(f"{store.describe(path)} is shorter than recorded")
    return raw[file.offset : file.offset + file.size]


def check_external(store: Store, segment: IndexSegment) -> None:
    """Raises DamagedFile if an entry has a file and it is missing or shorter than recorded."""
    details = _details(store, segment)
    if details.WhichOneof("content") != "external":
        return
    file, path = details.external, _path(store, segment, details.external)
    try:
        size = store.size(path)
    except DamagedFile as error:
        raise DamagedFile(f"{store.describe(path)} is missing") from error
    if size is not None and file.offset + file.size > size:
        raise DamagedFile(f"{store.describe(path)} is shorter than recorded")


def _details(store: Store, segment: IndexSegment) -> pb.FragmentReuseDetails:
    try:
        return pb.FragmentReuseDetails.FromString(segment.details)
    except DecodeError as error:
        raise DamagedFile(f"the Fragment Reuse Index of {store.location.uri} cannot be read: {error}") from error


def _path(store: Store, segment: IndexSegment, file: pb.ExternalFile) -> str:
    if "/" in file.path or not is_plain_path(file.path):
        where = f"the Fragment Reuse Index of {store.location.uri}"
        raise DamagedFile(f"{where} names a file outside its directory: {file.path[:200]!r}")
    return f"{segment.directory}/{file.path}"
