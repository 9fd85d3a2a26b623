"""Files of this machine: read by position, counted like the reads of pylance; and small ones written whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass

from pennon.errors import DamagedFile
from pennon.format.failures import first_line


@dataclass
class Reads:
    """What this process has read without pylance, or by calls that pylance does not count."""

    reads: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.reads += 1
        self.bytes += size


OWN_READS = Reads()


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
        OWN_READS.add(length)
        return whole(content, self._where, position, length)

    def read_into(self, position: int, part: memoryview) -> None:
        """Fill part of a buffer, or DamagedFile."""
        filled = 0
        try:
            while filled < len(part) and (more := os.preadv(self._file, [part[filled:]], position + filled)):
                filled += more
        except OSError as error:
            raise DamagedFile(f"cannot read {self._where}: {first_line(error)}") from error
        OWN_READS.add(len(part))
        if filled < len(part):
            raise DamagedFile(f"{self._where} ends before byte {position + len(part)}")


def whole(content: bytes, where: str, position: int, length: int) -> bytes:
    """The content, if it has this length; DamagedFile otherwise."""
    if len(content) != length:
        raise DamagedFile(f"{where} ends before byte {position + length}")
    return content


def write_whole(path: str, content: bytes) -> None:
    """A file, which has this name only once it is complete. What a killed writer leaves has a name that object stores
    and `Store.list` pass over."""
    unfinished = f"{path}#{secrets.randbits(32)}"
    try:
        file = _created(unfinished)
        try:
            with open(file, "wb") as out:  # noqa: PTH123 - much faster
                out.write(content)
            os.replace(unfinished, path)  # noqa: PTH105 - much faster
        except BaseException:
            os.unlink(unfinished)  # noqa: PTH108 - much faster
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _created(path: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - much faster
        return os.open(path, flags, 0o666)
