"""Files of this machine, read by position. What is read is counted like the reads of pylance."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from pennon.errors import DamagedFile
from pennon.format.failures import first_line


@dataclass
class Reads:
    """What this process has read."""

    reads: int = 0
    bytes: int = 0


LOCAL_READS = Reads()


class LocalFile:
    """An open file, which is closed with the last reference to it."""

    __slots__ = ("_file", "_where")

    def __init__(self, path: str, where: str) -> None:
        self._where = where
        self._file = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was not opened
            os.close(self._file)

    def read(self, position: int, length: int) -> bytes:
        """All of some bytes, or DamagedFile."""
        file = self._file
        try:
            content = os.pread(file, length, position)
            # A read returns fewer bytes only at the end of a file, or beyond 2 GiB.
            while len(content) < length and (more := os.pread(file, length - len(content), position + len(content))):
                content += more
        except OSError as error:
            raise DamagedFile(f"cannot read {self._where}: {first_line(error)}") from error
        LOCAL_READS.reads += 1
        LOCAL_READS.bytes += length
        return whole(content, self._where, position, length)


def whole(content: bytes, where: str, position: int, length: int) -> bytes:
    """The content, if it has this length; DamagedFile otherwise."""
    if len(content) != length:
        raise DamagedFile(f"{where} ends before byte {position + length}")
    return content
