"""Manifests and moves that parse and cannot be true: absurd counts, ids and lengths, names that lead elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyroaring import BitMap, BitMap64

from pennon.format.pb import lance_pb2 as pb

Rng = np.random.Generator

ABSURD = (0, 1, 299, 301, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
PATHS = (
    "../../secret",
    "/etc/hostname",
    "..",
    ".",
    "",
    "a/../../../x",
    "..\\..\\x",
    "file:///etc/hostname",
    "s3://bucket/x",
    "x\0y",
    "x" * 5000,
    "%2e%2e/%2e%2e/x",
)


def forge_manifest(manifest: pb.Manifest, indices: pb.IndexSection, rng: Rng) -> tuple[str, bool]:
    """What was changed, and whether the table may well be meant so."""
    names = [*_MANIFEST] + [*_INDEX] * 2 + ["moves"] * 6
    name = names[rng.integers(len(names))]
    reuse = [index for index in indices.indices if index.name == "__lance_frag_reuse"]
    if name == "moves" and reuse:
        return _forge_entry(reuse[0], rng), True
    if name in _MANIFEST:
        _MANIFEST[name](manifest, rng)
        return name, True
    if name not in _INDEX or not indices.indices:
        name = [*_INDEX][rng.integers(len(_INDEX))]
    if indices.indices:
        _INDEX[name](indices.indices[rng.integers(len(indices.indices))], indices, rng)
    return f"index {name}", name in LYING


def _forge_entry(entry: pb.IndexMetadata, rng: Rng) -> str:
    details = pb.FragmentReuseDetails.FromString(entry.index_details.value)
    if details.WhichOneof("content") == "external":
        file = details.external
        which = rng.integers(3)
        if which == 0:
            file.path = str(rng.choice(PATHS))
        elif which == 1:
            file.offset = _absurd(rng)
        else:
            file.size = _absurd(rng)
        said = "external file of moves"
    elif rng.random() < 0.1:
        details.external.path, details.external.size = str(rng.choice(PATHS)), 10
        said = "external file of moves"
    else:
        said = forge_reuse(details.inline, rng)
    entry.index_details.value = details.SerializeToString()
    return said


def forge_reuse(content: pb.FragmentReuseContent, rng: Rng) -> str:
    if not content.versions:
        return "no moves"
    version = content.versions[rng.integers(len(content.versions))]
    group = version.groups[rng.integers(len(version.groups))]
    digests = [*group.old_fragments, *group.new_fragments]
    digest = digests[rng.integers(len(digests))]
    which = int(rng.integers(12))
    match which:
        case 0:
            digest.id = _absurd(rng)
        case 1:
            digest.physical_rows = _absurd(rng)
        case 2:
            digest.num_deleted_rows = _absurd(rng)
        case 3:
            group.changed_row_addrs = _flipped(group.changed_row_addrs, rng)
        case 4:
            group.changed_row_addrs = group.changed_row_addrs[: rng.integers(len(group.changed_row_addrs))]
        case 5:
            group.changed_row_addrs = rng.bytes(int(rng.integers(200)))
        case 6:
            content.versions.add().CopyFrom(version)
        case 7:
            version.groups.add().CopyFrom(group)
        case 8:
            old, new = [*group.old_fragments], [*group.new_fragments]
            del group.old_fragments[:], group.new_fragments[:]
            group.old_fragments.extend(new)
            group.new_fragments.extend(old)
        case 9:
            _everything_moves(group, rng)
        case 10:
            group.old_fragments.add().CopyFrom(digest)
        case _:
            transition = content.transitions.add()
            transition.sources.add(id=_absurd(rng), physical_rows=_absurd(rng))
            transition.destinations.add(id=_absurd(rng), physical_rows=_absurd(rng))
    return f"moves {which}"


def _everything_moves(group: pb.ReuseGroup, rng: Rng) -> None:
    """As many rows as can be told in few bytes: runs of 65536."""
    rows = int(rng.choice([2**20, 2**28, 2**31, 2**32 - 1]))
    survivors, start = BitMap64(), group.old_fragments[0].id << 32
    survivors.add_range(start, start + rows // 2)
    survivors.run_optimize()
    group.changed_row_addrs = survivors.serialize()
    del group.old_fragments[1:], group.new_fragments[1:]
    group.old_fragments[0].physical_rows = rows
    group.new_fragments[0].physical_rows = rows // 2


def _absurd(rng: Rng) -> int:
    return ABSURD[rng.integers(len(ABSURD))]


def _int32(rng: Rng) -> int:
    return int(rng.choice([-(2**31), -2, -1, 0, 1, 2, 3, 9, 2**31 - 1]))


def _flipped(content: bytes, rng: Rng) -> bytes:
    array = np.frombuffer(content, dtype=np.uint8).copy()
    for _ in range(int(rng.integers(1, 4))):
        array[rng.integers(len(array))] ^= np.uint8(1 << rng.integers(8))
    return array.tobytes()


def _fragment(manifest: pb.Manifest, rng: Rng) -> pb.DataFragment:
    return manifest.fragments[rng.integers(len(manifest.fragments))]


def _set(name: str, draw: Callable[[Rng], Any]) -> Callable[[pb.Manifest, Rng], None]:
    return lambda manifest, rng: setattr(manifest, name, draw(rng))


def _set_fragment(name: str, draw: Callable[[Rng], Any]) -> Callable[[pb.Manifest, Rng], None]:
    return lambda manifest, rng: setattr(_fragment(manifest, rng), name, draw(rng))


def _set_deletion(name: str, draw: Callable[[Rng], Any]) -> Callable[[pb.Manifest, Rng], None]:
    return lambda manifest, rng: setattr(_fragment(manifest, rng).deletion_file, name, draw(rng))


def _twice(manifest: pb.Manifest, rng: Rng) -> None:
    manifest.fragments.add().CopyFrom(_fragment(manifest, rng))


def _data_path(manifest: pb.Manifest, rng: Rng) -> None:
    _fragment(manifest, rng).files[0].path = str(rng.choice(PATHS))


def _field(manifest: pb.Manifest, rng: Rng) -> None:
    field = manifest.fields[rng.integers(len(manifest.fields))]
    setattr(field, str(rng.choice(["id", "parent_id"])), _int32(rng))


def _circle(manifest: pb.Manifest, _: Rng) -> None:
    for field in manifest.fields:
        field.parent_id = field.id


def _ids(rng: Rng) -> bytes:
    return rng.bytes(int(rng.integers(1, 60)))


def _endless_ids(_: Rng) -> bytes:
    """RowIdSequence { segments { range { start: 0, end: 2^63 } } }."""
    inner = b"\x08\x00\x10" + b"\xff" * 8 + b"\x7f"
    range_ = b"\x0a" + bytes([len(inner)]) + inner
    return b"\x0a" + bytes([len(range_)]) + range_


_MANIFEST: dict[str, Callable[[pb.Manifest, Rng], None]] = {
    "version": _set("version", _absurd),
    "reader flags": _set("reader_feature_flags", lambda rng: 1 << int(rng.integers(64))),
    "writer flags": _set("writer_feature_flags", lambda rng: 1 << int(rng.integers(64))),
    "highest fragment": _set("max_fragment_id", lambda rng: min(_absurd(rng), 2**32 - 1)),
    "next row id": _set("next_row_id", _absurd),
    "fragment tree": _set("fragment_tree", _ids),
    "fragment id": _set_fragment("id", _absurd),
    "physical rows": _set_fragment("physical_rows", _absurd),
    "row ids": _set_fragment("inline_row_ids", _ids),
    "endless row ids": _set_fragment("inline_row_ids", _endless_ids),
    "deleted rows": _set_deletion("num_deleted_rows", _absurd),
    "deletion id": _set_deletion("id", _absurd),
    "deletion version": _set_deletion("read_version", _absurd),
    "deletion type": _set_deletion("file_type", _int32),
    "deletion base": _set_deletion("base_id", lambda rng: min(_absurd(rng), 2**32 - 1)),
    "fragment twice": _twice,
    "data path": _data_path,
    "field": _field,
    "fields in a circle": _circle,
}


def _set_index(name: str, draw: Callable[[Rng], Any]) -> Callable[[pb.IndexMetadata, pb.IndexSection, Rng], None]:
    return lambda index, _, rng: setattr(index, name, draw(rng))


def _uuid(index: pb.IndexMetadata, indices: pb.IndexSection, rng: Rng) -> None:
    if rng.random() < 0.5:
        index.uuid.value = rng.bytes(int(rng.integers(0, 40)))
    else:
        index.uuid.value = indices.indices[rng.integers(len(indices.indices))].uuid.value


def _fields(index: pb.IndexMetadata, _: pb.IndexSection, rng: Rng) -> None:
    del index.fields[:]
    index.fields.extend(_int32(rng) for _ in range(rng.integers(3)))


def _file_path(index: pb.IndexMetadata, _: pb.IndexSection, rng: Rng) -> None:
    file = index.files[rng.integers(len(index.files))] if index.files else index.files.add()
    file.path = str(rng.choice(PATHS))


def _file_size(index: pb.IndexMetadata, _: pb.IndexSection, rng: Rng) -> None:
    file = index.files[rng.integers(len(index.files))] if index.files else index.files.add()
    file.size_bytes = _absurd(rng)


def _no_files(index: pb.IndexMetadata, *_: object) -> None:
    del index.files[:]


def _details(index: pb.IndexMetadata, _: pb.IndexSection, rng: Rng) -> None:
    index.index_details.value = rng.bytes(int(rng.integers(60)))


def _type(index: pb.IndexMetadata, indices: pb.IndexSection, rng: Rng) -> None:
    other = indices.indices[rng.integers(len(indices.indices))]
    index.index_details.type_url = str(rng.choice([other.index_details.type_url, "", "/x", "/lance.index.pb.Magic"]))


def _copy(index: pb.IndexMetadata, indices: pb.IndexSection, _: Rng) -> None:
    indices.indices.add().CopyFrom(index)


def _bitmap(rng: Rng) -> bytes:
    whole = BitMap()
    whole.add_range(0, 1 << int(rng.choice([3, 16, 24, 32])))
    whole.run_optimize()
    sound = BitMap([0, 1, 2, 3]).serialize()
    choices = [rng.bytes(int(rng.integers(1, 60))), whole.serialize(), _flipped(sound, rng), sound[:-3], sound + b"xx"]
    return choices[rng.integers(len(choices))]


_INDEX: dict[str, Callable[[pb.IndexMetadata, pb.IndexSection, Rng], None]] = {
    "uuid": _uuid,
    "fields": _fields,
    "name": _set_index("name", lambda rng: str(rng.choice([*PATHS[:8], "__lance_frag_reuse", "\0", "i_idx"]))),
    "dataset version": _set_index("dataset_version", _absurd),
    "coverage": _set_index("fragment_bitmap", _bitmap),
    "index version": _set_index("index_version", _int32),
    "age": _set_index("created_at", _absurd),
    "base": _set_index("base_id", lambda rng: min(_absurd(rng), 2**32 - 1)),
    "file name": _file_path,
    "file size": _file_size,
    "no files": _no_files,
    "details": _details,
    "type": _type,
    "copy": _copy,
}
# What a manifest says and no file contradicts.
LYING = {"coverage", "index version", "name", "type", "details", "copy", "uuid", "dataset version", "fields"}
