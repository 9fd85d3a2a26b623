"""Index files in a sound Lance container with content that cannot be true, as a hostile writer would leave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from pennon.format.pb import lance_pb2 as pb
from tests.support.forged_messages import ABSURD

Rng = np.random.Generator

DEEP = "[" * 100_000 + "]" * 100_000
NUMBERS = ("-1", "0", "1", "3", "2147483648", "4294967296", "18446744073709551616", "9" * 5000, "1e999", "NaN", "x", "")
TEXTS = ("", "{", "null", "[]", "{}", "[null]", '"x"', DEEP, "[1e999]", '[["a","b"]]', "[[0,1],[1,-5]]", "[[[0]]]")


@dataclass
class Opened:
    """A Lance file as it may be edited."""

    table: pa.Table
    metadata: dict[str, str]
    buffers: list[bytes]


def read(path: Path) -> Opened:
    reader = LanceFileReader(str(path))
    schema = reader.metadata().schema
    table = reader.read_all().to_table() if reader.num_rows() else schema.empty_table()
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    buffers: list[bytes] = []
    for number in range(1, 4):
        try:
            buffers.append(reader.read_global_buffer(number))
        except Exception:  # noqa: BLE001 - pylance has no count of buffers
            break
    return Opened(table.replace_schema_metadata(None), metadata, buffers)


def write(path: Path, opened: Opened) -> None:
    path.unlink()
    with LanceFileWriter(str(path), opened.table.schema) as writer:
        for batch in opened.table.to_batches():
            writer.write_batch(batch)
        for buffer in opened.buffers:
            writer.add_global_buffer(buffer)
        for key, value in opened.metadata.items():
            writer.add_schema_metadata(key, value)


def without_digests(opened: Opened) -> None:
    """As somebody else would have written it."""
    opened.metadata = {key: value for key, value in opened.metadata.items() if not key.startswith("pennon:")}
    if "digest" in opened.table.column_names:
        opened.table = opened.table.drop_columns(["digest"])


def forge(path: Path, kind: str, rng: Rng) -> tuple[str, bool]:
    """What was changed, and whether nothing tells it from the truth."""
    opened = read(path)
    bare = rng.random() < 0.6
    if bare:
        without_digests(opened)
    edits = {"metadata": _metadata, "rows": _rows, "numbers": _numbers}
    if opened.buffers:
        edits |= {"buffer": _buffer}
    if opened.buffers and kind in ("index", "auxiliary") and "bitmaps" not in opened.table.column_names:
        edits |= {"message": _message, "message ": _message}
    names = [*edits]
    name = names[rng.integers(len(names))]
    said = edits[name](opened, rng)
    write(path, opened)
    # Pages have no digests of their own, those are in the lookup.
    return f"forged {name.strip()}: {said}", bare and kind != "pages"


def _metadata(opened: Opened, rng: Rng) -> str:
    keys = sorted(opened.metadata)
    if not keys:
        opened.metadata["batch_size"] = "7"
        return "a key"
    key = keys[rng.integers(len(keys))]
    which = int(rng.integers(4))
    if which == 0:
        del opened.metadata[key]
    elif which == 1:
        opened.metadata[key] = str(rng.choice(NUMBERS))
    elif which == 2:
        opened.metadata[key] = TEXTS[rng.integers(len(TEXTS))]
    else:
        opened.metadata[key] = _edited_json(opened.metadata[key], rng)
    return f"{key} {which}"


def _edited_json(text: str, rng: Rng) -> str:
    """The same document with one leaf exchanged; strings of JSON are looked into."""
    try:
        document = json.loads(text)
    except ValueError:
        return text + "0"
    leaves: list[tuple[Any, Any]] = []
    todo = [document] if isinstance(document, dict | list) else []
    while todo:
        node = todo.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            if isinstance(node[key], dict | list):
                todo.append(node[key])
            else:
                leaves.append((node, key))
    if not leaves:
        return str(rng.choice(NUMBERS))
    node, key = leaves[rng.integers(len(leaves))]
    if isinstance(node[key], str) and node[key][:1] in "{[" and rng.random() < 0.9:
        node[key] = _edited_json(node[key], rng)
    else:
        node[key] = [-1, 0, 1, 2**31, 2**40, 2**70, 1e308, None, "x", [], {}, True, "IVF_PQ", "cosine"][
            rng.integers(14)
        ]
    return json.dumps(document)


def _rows(opened: Opened, rng: Rng) -> str:
    table = opened.table
    count = table.num_rows
    if not count:
        return "none"
    names = ["reversed", "fewer", "more", "shuffled", "narrowed", "a column less", "another type", "none"]
    name = names[rng.integers(len(names))]
    match name:
        case "reversed":
            opened.table = table.take(pa.array(np.arange(count)[::-1]))
        case "fewer":
            opened.table = table.slice(0, int(rng.integers(count)))
        case "more":
            opened.table = pa.concat_tables([table, table.slice(int(rng.integers(count)))])
        case "shuffled":
            opened.table = table.take(pa.array(rng.permutation(count)))
        case "narrowed":
            start = int(rng.integers(count))
            opened.table = table.slice(start)
        case "a column less":
            opened.table = table.drop_columns([table.column_names[rng.integers(table.num_columns)]])
        case "another type":
            number = int(rng.integers(table.num_columns))
            column = table.column(number)
            if pa.types.is_integer(column.type):
                opened.table = table.set_column(
                    number, table.column_names[number], column.cast(pa.float64(), safe=False)
                )
        case _:
            opened.table = table.slice(0, 0)
    return name


def _numbers(opened: Opened, rng: Rng) -> str:
    """Some values of a column exchanged, or made NULL."""
    table = opened.table
    if not table.num_rows:
        return "none"
    number = int(rng.integers(table.num_columns))
    name, column = table.column_names[number], table.column(number).combine_chunks()
    at = rng.integers(table.num_rows, size=int(rng.integers(1, 5)))
    if rng.random() < 0.2:
        mask = np.ones(table.num_rows, dtype=bool)
        mask[at] = False
        changed = pa.array(column.to_pylist(), column.type, mask=~mask)
        opened.table = table.set_column(number, pa.field(name, column.type), changed)
        return f"NULLs in {name}"
    if pa.types.is_integer(column.type):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).copy()
        bits = values.dtype.itemsize * 8
        for place in at:
            drawn = ABSURD[rng.integers(len(ABSURD))] % (1 << bits)
            values[place] = np.array([drawn], dtype=np.uint64).astype(values.dtype)[0]
        opened.table = table.set_column(number, name, pa.array(values, column.type))
        return f"numbers in {name}"
    values = column.to_pylist()
    for place in at:
        values[place] = values[rng.integers(len(values))]
    opened.table = table.set_column(number, name, pa.array(values, column.type))
    return f"values in {name}"


def _message(opened: Opened, rng: Rng) -> str:
    message = pb.IVF.FromString(opened.buffers[0])
    which = int(rng.integers(9))
    tensor = message.centroids_tensor
    has_tensor = message.HasField("centroids_tensor")
    count = len(message.lengths)
    match which:
        case 0:
            message.lengths[int(rng.integers(count))] = ABSURD[rng.integers(len(ABSURD))] % 2**32
        case 1 if message.offsets:
            message.offsets[int(rng.integers(len(message.offsets)))] = ABSURD[rng.integers(len(ABSURD))]
        case 2:
            message.lengths.append(2**32 - 1)
        case 3:
            del message.lengths[rng.integers(count) :]
        case 4:
            message.lengths.extend([0] * 1_000_000)
        case 5 if has_tensor:
            tensor.shape[int(rng.integers(2))] = ABSURD[rng.integers(len(ABSURD))] % 2**32
        case 6 if has_tensor:
            tensor.data = tensor.data[: rng.integers(len(tensor.data))]
        case 7 if has_tensor:
            tensor.data_type = int(rng.integers(8))  # pyright: ignore[reportAttributeAccessIssue]
        case 8 if has_tensor:
            tensor.data = np.full(len(tensor.data) // 4, np.nan, dtype=np.float32).tobytes()
        case _:
            message.loss = float("nan")
    opened.buffers[0] = message.SerializeToString()
    return str(which)


def _buffer(opened: Opened, rng: Rng) -> str:
    number = int(rng.integers(len(opened.buffers)))
    content = opened.buffers[number]
    changes: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: content[: rng.integers(len(content))],
        lambda: rng.bytes(len(content)),
        lambda: content + content,
    ]
    opened.buffers[number] = changes[rng.integers(len(changes))]()
    return str(number + 1)
