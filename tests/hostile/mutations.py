"""One damage a seed: which file of a table, and what is done to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np

from pennon.format.manifest import parse_manifest
from pennon.format.pb import lance_pb2 as pb
from tests.support.forged_files import forge
from tests.support.forged_messages import forge_manifest, forge_reuse
from tests.support.manifests import edit_newest, newest

Rng = np.random.Generator


@dataclass(frozen=True)
class Target:
    """A file, and the name of the index it belongs to."""

    path: Path
    kind: str
    index: str | None = None


@dataclass(frozen=True)
class Damage:
    """What was done. `may_lie`: nothing that a file or manifest records contradicts it, so that a wrong answer is
    nobody's fault. `of_table`: the table itself is another now, and what stock scans in it is the right answer."""

    mutation: str
    target: str
    index: str | None
    may_lie: bool = False
    of_table: bool = False

    def __str__(self) -> str:
        return f"{self.mutation} of {self.target} ({self.index})"


def copied(source: Path, target: Path) -> Path:
    """A table of its own by links; every damage replaces the file it is done to."""
    return Path(shutil.copytree(source, target, copy_function=os.link))


def damage(root: Path, rng: Rng, *, digests: bool) -> Damage:
    targets = targets_of(root)
    kinds = sorted({target.kind for target in targets})
    weights = np.array([WEIGHTS[kind] for kind in kinds], dtype=float)
    kind = kinds[rng.choice(len(kinds), p=weights / weights.sum())]
    own = [target for target in targets if target.kind == kind]
    target = own[rng.integers(len(own))]
    choices = [*BYTES]
    if kind == "manifest":
        choices += ["forged"] * 10
    elif kind in ("lookup", "pages", "index", "auxiliary", "zones", "details", "metadata"):
        choices += ["forged"] * 8
    name = choices[rng.integers(len(choices))]
    of_table = kind in ("manifest", "deletions")
    if name == "forged":
        return _forged(root, target, rng, digests=digests)
    content = BYTES[name](target, targets, rng)
    if content is None:
        name, content = "flip", _flip(target, targets, rng)
    _replace(target.path, content)
    if rng.random() < 0.5 and target.index is not None:
        record_size(root, target.path)
    # A manifest has no checksum, and a deletion file does not say of which fragment it is.
    unnamed = kind in ("details", "manifest") or (kind == "deletions" and name in ("swap", "foreign file"))
    return Damage(name, kind, target.index, may_lie=not digests or unnamed, of_table=of_table)


def _forged(root: Path, target: Target, rng: Rng, *, digests: bool) -> Damage:
    if target.kind == "manifest":
        done: list[tuple[str, bool]] = []
        edit_newest(root, lambda manifest, indices: done.append(forge_manifest(manifest, indices, rng)))
        said, may_lie = done[0]
        return Damage(said, "manifest", None, may_lie, of_table=True)
    if target.kind == "details":
        content = pb.FragmentReuseContent.FromString(target.path.read_bytes())
        said = forge_reuse(content, rng)
        _replace(target.path, content.SerializeToString())
        if rng.random() < 0.8:
            edit_newest(root, lambda _, indices: _external_size(indices, target.path.stat().st_size))
        return Damage(said, "details", None, may_lie=True)
    said, may_lie = forge(target.path, target.kind, rng)
    record_size(root, target.path)
    return Damage(said, target.kind, target.index, may_lie or not digests)


def targets_of(root: Path) -> list[Target]:
    """In an order that does not depend on names drawn at random."""
    path = newest(root)
    manifest = parse_manifest(path.read_bytes(), str(path))
    found = [Target(path, "manifest")]
    for segment in manifest.segments:
        files = sorted((root / segment.directory).glob("*"))
        found += [Target(file, _kind(file.name), segment.name) for file in files]
    for fragment in manifest.fragments.values():
        for file in sorted((root / "_deletions").glob(f"{fragment.id}-*")):
            deletion = fragment.deletion_file
            if deletion is not None and f"-{deletion.read_version}-{deletion.id}." in file.name:
                found.append(Target(file, "deletions"))
    found += [Target(file, "transaction") for file in sorted((root / "_transactions").glob("*"), key=_version)]
    return found


def _version(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _kind(name: str) -> str:
    kinds = {
        "bitmap_page_lookup.lance": "index",
        "page_lookup.lance": "lookup",
        "index.idx": "index",
        "auxiliary.idx": "auxiliary",
        "pennon-contents.json": "contents",
        "pennon-checksums.bin": "checksums",
        "zonemap.lance": "zones",
        "bloomfilter.lance": "zones",
        "metadata.lance": "metadata",
    }
    if name.startswith("part_") and name.endswith("_checksums.bin"):
        return "checksums"
    return kinds.get(name, "details" if name.endswith(".binpb") else "pages")


WEIGHTS = {
    "manifest": 6,
    "lookup": 5,
    "pages": 5,
    "index": 5,
    "auxiliary": 5,
    "zones": 20,
    "details": 5,
    "contents": 2,
    "checksums": 3,
    "metadata": 5,
    "deletions": 3,
    "transaction": 0.5,
}


def record_size(root: Path, path: Path) -> None:
    """Let the manifest say what the file has become, as though it had been written so."""

    def edit(_: pb.Manifest, indices: pb.IndexSection) -> None:
        for index in indices.indices:
            if str(UUID(bytes=index.uuid.value)) == path.parent.name:
                for file in index.files:
                    if file.path == path.name:
                        file.size_bytes = path.stat().st_size

    edit_newest(root, edit)


def _external_size(indices: pb.IndexSection, size: int) -> None:
    for index in indices.indices:
        if index.name == "__lance_frag_reuse":
            details = pb.FragmentReuseDetails.FromString(index.index_details.value)
            details.external.size = size
            index.index_details.value = details.SerializeToString()


def _replace(path: Path, content: bytes) -> None:
    path.unlink()  # another link belongs to the sound table
    path.write_bytes(content)


def _truncate(target: Target, _: list[Target], rng: Rng) -> bytes:
    content = target.path.read_bytes()
    return content[: rng.integers(len(content) + 1)]


def _flip(target: Target, _targets: list[Target], rng: Rng) -> bytes:
    content = np.frombuffer(target.path.read_bytes(), dtype=np.uint8).copy()
    for _ in range(int(rng.choice([1, 1, 1, 2, 8, 64]))):
        # As often near the end, where a file says what it is.
        low = max(0, len(content) - 600) if rng.random() < 0.5 else 0
        content[rng.integers(low, len(content))] ^= np.uint8(1 << rng.integers(8))
    return content.tobytes()


def _zero(target: Target, _: list[Target], rng: Rng) -> bytes:
    content = bytearray(target.path.read_bytes())
    start = int(rng.integers(len(content)))
    stop = min(len(content), start + int(rng.integers(1, 400)))
    content[start:stop] = bytes(stop - start)
    return bytes(content)


def _scramble(target: Target, _: list[Target], rng: Rng) -> bytes:
    content = bytearray(target.path.read_bytes())
    start = int(rng.integers(len(content)))
    stop = min(len(content), start + int(rng.integers(1, 64)))
    content[start:stop] = rng.bytes(stop - start)
    return bytes(content)


def _extend(target: Target, _: list[Target], rng: Rng) -> bytes:
    return target.path.read_bytes() + rng.bytes(int(rng.integers(1, 200)))


def _shorten_inside(target: Target, _: list[Target], rng: Rng) -> bytes:
    """Bytes lost in the middle; the end is whole."""
    content = target.path.read_bytes()
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 200)) :]


def _swap(target: Target, targets: list[Target], rng: Rng) -> bytes | None:
    others = [other for other in targets if other.kind == target.kind and other.path != target.path]
    if not others:
        return None
    other = others[rng.integers(len(others))]
    mine, theirs = target.path.read_bytes(), other.path.read_bytes()
    if rng.random() < 0.5:
        _replace(other.path, mine)
    return theirs


def _foreign(target: Target, targets: list[Target], rng: Rng) -> bytes:
    """A sound file of another kind."""
    return targets[rng.integers(len(targets))].path.read_bytes()


def _empty(*_: object) -> bytes:
    return b""


def _older(target: Target, *_: object) -> bytes | None:
    """An older file of the same name, as a restored backup has it."""
    if target.kind != "manifest":
        return None
    older = sorted(target.path.parent.glob("*.manifest"))[1:]
    return older[0].read_bytes() if older else None


BYTES: dict[str, Callable[[Target, list[Target], Rng], bytes | None]] = {
    "truncation": _truncate,
    "flip": _flip,
    "flips": _flip,
    "zeros": _zero,
    "scrambling": _scramble,
    "garbage at the end": _extend,
    "a gap": _shorten_inside,
    "swap": _swap,
    "foreign file": _foreign,
    "emptying": _empty,
    "older version": _older,
}
