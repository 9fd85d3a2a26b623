"""Batches that map tasks of a local exchange have sent and that their destinations have not read yet: in memory up to a
budget, beyond it in one file per destination.

A file holds blocks one after the other, each an Arrow IPC stream as in `blocks`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import pyarrow as pa

from pennon.engine.blocks import block_of, pieces
from pennon.engine.spill import spill_directory

PREFIX = "pennon-exchange-"


class Mailboxes:
    """Any number of threads may send; one thread reads a destination, after all have sent."""

    def __init__(self, directory: Path, destinations: int, memory_bytes: int) -> None:
        self._boxes = [_Mailbox(directory / f"{number}.arrows") for number in range(destinations)]
        self._free = memory_bytes
        self._lock = Lock()
        self.sent_bytes = 0

    def send(self, task: int, destination: int, batch: pa.RecordBatch) -> None:
        """Keep a copy: the sender may reuse its memory."""
        for piece in pieces(batch):
            block = block_of(piece)
            self._boxes[destination].put(task, block, in_memory=self._reserve(block.size))

    def receive(self, destination: int) -> Iterator[pa.RecordBatch] | None:
        """The batches by task, those of one task in the order they were sent. Each is freed after use. None if none
        were sent."""
        box = self._boxes[destination]
        return box.take() if box else None

    def _reserve(self, size: int) -> bool:
        with self._lock:
            self.sent_bytes += size
            if size > self._free:
                return False
            self._free -= size
            return True


@contextmanager
def mailboxes(destinations: int, memory_bytes: int) -> Generator[Mailboxes]:
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=spill_directory()) as directory:
        yield Mailboxes(Path(directory), destinations, memory_bytes)


class _Mailbox:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._written = 0
        # The number of the task, and a block or its start and length in the file.
        self._blocks: list[tuple[int, pa.Buffer | tuple[int, int]]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    def put(self, task: int, block: pa.Buffer, *, in_memory: bool) -> None:
        with self._lock:
            self._blocks.append((task, block if in_memory else self._write(block)))

    def take(self) -> Iterator[pa.RecordBatch]:
        # The file may be removed while batches still point into it.
        mapped = pa.memory_map(str(self._file)).read_buffer() if self._written else pa.py_buffer(b"")
        waiting = sorted(self._blocks, key=lambda block: block[0])
        waiting.reverse()
        self._blocks = []
        while waiting:
            _, block = waiting.pop()
            yield from pa.ipc.open_stream(mapped.slice(*block) if isinstance(block, tuple) else block)

    def _write(self, block: pa.Buffer) -> tuple[int, int]:
        start = self._written
        # Opened for each block: there may be more destinations than a process may have open files.
        with self._file.open("ab") as file:
            file.write(block)
        self._written += block.size
        return start, block.size
