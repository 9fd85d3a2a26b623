"""Manifests taken apart and put together again, so that what is wrong in them stands in a sound file."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pennon.format.manifest import FOOTER
from pennon.format.pb import lance_pb2 as pb

Edit = Callable[[pb.Manifest, pb.IndexSection], Any]


def newest(root: Path) -> Path:
    """Names count down, so the newest version is the first."""
    return min((root / "_versions").glob("*.manifest"))


def edit_newest(root: Path, edit: Edit) -> None:
    path = newest(root)
    content = edited(path.read_bytes(), edit)
    path.unlink()
    path.write_bytes(content)


def edited(content: bytes, edit: Edit) -> bytes:
    position, major, minor, magic = FOOTER.unpack(content[-FOOTER.size :])
    manifest = pb.Manifest.FromString(_section(content, position))
    indices = pb.IndexSection()
    if manifest.HasField("index_section"):
        indices = pb.IndexSection.FromString(_section(content, manifest.index_section))
    edit(manifest, indices)
    head = content[:position]
    manifest.index_section = len(head)
    head += _framed(indices.SerializeToString())
    return head + _framed(manifest.SerializeToString()) + FOOTER.pack(len(head), major, minor, magic)


def _section(content: bytes, position: int) -> bytes:
    (length,) = struct.unpack_from("<I", content, position)
    return content[position + 4 : position + 4 + length]


def _framed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message
