"""What made each version of a table: its transaction, parsed without pylance, which cannot read some of them.

A manifest has its transaction as a section (field 23, or 21 of older writers), or names a file below `_transactions`.
Transaction: 1 read version, 2 uuid, 4 properties; then one operation, by its field number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from pennon.errors import DamagedFile, TableNotFound
from pennon.format.manifest import FOOTER, find_manifest, manifest_paths
from pennon.format.pb import lance_pb2 as pb
from pennon.format.protobuf_wire import fields
from pennon.format.store import Store

TRANSACTIONS = "_transactions"
APPEND, DELETE, OVERWRITE, CREATE_INDEX, REWRITE, MERGE, RESTORE, RESERVE, UPDATE, PROJECT = range(100, 110)
NAMES = {
    APPEND: "Append",
    DELETE: "Delete",
    OVERWRITE: "Overwrite",
    CREATE_INDEX: "CreateIndex",
    REWRITE: "Rewrite",
    MERGE: "Merge",
    RESTORE: "Restore",
    RESERVE: "ReserveFragments",
    UPDATE: "Update",
    PROJECT: "Project",
    110: "UpdateConfig",
    111: "DataReplacement",
    112: "UpdateMemWalState",
    113: "Clone",
    114: "UpdateBases",
}
# The field of an operation's message that lists the fragments it adds; their ids are given by the commit.
_ADDED = {APPEND: 1, OVERWRITE: 1, UPDATE: 3}
_SECTIONS, _FILE = (23, 21), 12


@dataclass(frozen=True)
class Transaction:
    """The change from the version before to this one. `operation` is its field number; 0 if the manifest names no
    transaction. `added_files` are the data files of the fragments that it adds."""

    version: int
    operation: int
    uuid: str = ""
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    added_files: frozenset[str] = frozenset()
    restored: int = 0

    @property
    def name(self) -> str:
        """Lance's name of the operation."""
        return NAMES.get(self.operation, f"operation {self.operation}" if self.operation else "unknown operation")


def read_transaction(store: Store, version: int) -> Transaction:
    """The transaction of a version. Raises TableNotFound if the version was cleaned up."""
    path = find_manifest(store, version)
    where = store.describe(path)
    try:
        content = store.read(path)
        message = _message(store, content, where)
        return Transaction(version, 0) if message is None else _parsed(version, message)
    except (ValueError, DecodeError) as error:
        raise DamagedFile(
            f"the transaction of {where} cannot be read: {error}", "Restore the file, or an older version"
        ) from error


def lineage(store: Store, newest: int, after: int) -> Iterator[Transaction | None]:
    """The transactions that led to version `newest`, the latest first, down to the one that follows version `after`.
    A restore leads back to the version it restored. None in place of versions that were cleaned up."""
    version = newest
    while version > after:
        try:
            transaction = read_transaction(store, version)
        except TableNotFound:
            yield None
            older = [found for found in manifest_paths(store) if after < found < version]
            version = max(older, default=after)
            continue
        yield transaction
        version = transaction.restored if transaction.operation == RESTORE else version - 1


def _message(store: Store, content: bytes, where: str) -> bytes | None:
    position, _, _, _ = FOOTER.unpack(content[-FOOTER.size :])
    manifest = dict(fields(_section(content, position, where)))
    for number in _SECTIONS:
        at = manifest.get(number)
        if isinstance(at, int):
            return _section(content, at, where)
    name = manifest.get(_FILE)
    if not isinstance(name, bytes) or not name:
        return None
    file = name.decode()
    if not re.fullmatch(r"[\w.-]+", file):
        raise ValueError(f"the name of its file is {file!r}")
    path = f"{TRANSACTIONS}/{file}"
    return store.read(path) if store.exists(path) else None


def _section(content: bytes, position: int, where: str) -> bytes:
    length = int.from_bytes(content[position : position + 4], "little")
    if not 0 <= position <= len(content) - 4 - length:
        raise DamagedFile(
            f"a section of {where} is beyond the end of the file", "Restore the file, or an older version"
        )
    return content[position + 4 : position + 4 + length]


def _parsed(version: int, message: bytes) -> Transaction:
    uuid, operation, body, properties = "", 0, b"", dict[str, str]()
    for number, value in fields(message):
        if number == 2 and isinstance(value, bytes):
            uuid = value.decode()
        elif number == 4 and isinstance(value, bytes):
            key, text = _entry(value)
            properties[key] = text
        elif number >= APPEND and isinstance(value, bytes):
            operation, body = number, value
    inner = list(fields(body))
    restored = next((v for n, v in inner if n == 1 and isinstance(v, int)), 0) if operation == RESTORE else 0
    added = [v for n, v in inner if n == _ADDED.get(operation) and isinstance(v, bytes)]
    files = frozenset(file.path for fragment in added for file in pb.DataFragment.FromString(fragment).files)
    return Transaction(version, operation, uuid, properties, files, restored)


def _entry(message: bytes) -> tuple[str, str]:
    found = {number: value.decode() for number, value in fields(message) if isinstance(value, bytes)}
    return found.get(1, ""), found.get(2, "")
