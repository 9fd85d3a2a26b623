"""Classifies errors of pylance and the operating system: the store did not answer, there is no such file, or the bytes
of a file are wrong. pylance raises ValueError, OSError, RuntimeError or ArrowInvalid for each of them, so only the text
or the number of the operating system's error distinguishes them.
"""

from __future__ import annotations

import errno
import re
from types import TracebackType

from pennon.errors import PennonError, StoreUnavailable
from pennon.secrets import redact_exception

# The place in pylance's source that raised an error: ", /home/.../object_store.rs:1576:42".
ORIGIN = re.compile(r",? /\S*\.rs:\d+:\d+.*$")
# Layers of pylance and DataFusion that an error about an expression has passed through.
_LAYERS = re.compile(r"^(?:(?:Invalid user input|Error parsing function|Error during planning|Schema error): )+")
STATUS = re.compile(r"\bstatus code: (\d{3})\b")
SYSTEM = re.compile(r"\(os error (\d+)\)")
# object_store names the store; the three exceptions are in-memory bytes and the local file system.
REMOTE = re.compile(r"\bGeneric (?!N/A |memory |LocalFileSystem )[\w -]{1,40} error: ")
REFUSED = re.compile(
    r"The operation lacked (?:the necessary privileges|valid authentication credentials)"
    r"|get AWS credentials|credential error|credentials? provider|Received redirect without LOCATION"
)
ABSENT = re.compile(r"\bwas not found: |\bNot found: |\bObject at location .* not found")
# pylance's error for any invalid argument of the user.
ARGUMENT = "Invalid user input"

NOT_FOUND = 404
# The store answered that another writer was faster (409, 412), or that the file ends earlier (416).
ANSWERS = frozenset({NOT_FOUND, 304, 409, 412, 416})
PASSING = frozenset({408, 425, 429})
LASTING = frozenset({501, 505})


def _numbers(names: str) -> frozenset[int]:
    return frozenset(getattr(errno, name) for name in names.split() if hasattr(errno, name))


PASSING_ERRORS = _numbers(
    "EIO EAGAIN EINTR EBUSY EMFILE ENFILE ESTALE ETIMEDOUT ECONNREFUSED ECONNRESET ECONNABORTED ENOTCONN EPIPE"
    " EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH EREMOTEIO"
)
LASTING_ERRORS = _numbers("EACCES EPERM EROFS ENOSPC EDQUOT ENODEV ENXIO")

PASSED = (PennonError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit)
TRY_AGAIN = "Try again; if it persists, check the network, the endpoint and the limits of the store"
CHECK_ACCESS = "Check the credentials, their permissions and the region"
CHECK_DISK = "Check the permissions of the files and the space on the disk"


def store_failure(error: BaseException, what: str) -> StoreUnavailable | None:
    """The `StoreUnavailable` for a store that did not answer, refused to, or answered in part; None if it answered."""
    text = str(error)
    if text.startswith(ARGUMENT):
        return None
    retryable, remedy = _remote(text) or _system(error, text) or (None, "")
    if retryable is None:
        return None
    redact_exception(error)
    problem = f"the store did not answer for {what}" if retryable else f"cannot access {what}"
    return StoreUnavailable(f"{problem}: {first_line(error)}", remedy, retryable)


def is_missing(error: BaseException) -> bool:
    """Whether the store answered that the requested file does not exist."""
    text = str(error)
    status = STATUS.search(text)
    if status is not None:
        return int(status[1]) == NOT_FOUND
    if _remote(text) is not None:
        return False
    return ABSENT.search(text) is not None or _number(error, text) in (errno.ENOENT, errno.ENOTDIR)


def _remote(text: str) -> tuple[bool, str] | None:
    """For an object store's error: whether a retry may help, and the remedy."""
    status = STATUS.search(text)
    if status is not None:
        code = int(status[1])
        if code in ANSWERS:
            # If the bucket is missing, so is every file.
            return (False, CHECK_ACCESS) if "NoSuchBucket" in text else None
        again = code in PASSING or (code >= 500 and code not in LASTING)
        return again, TRY_AGAIN if again else CHECK_ACCESS
    if REFUSED.search(text):
        return False, CHECK_ACCESS
    return (True, TRY_AGAIN) if REMOTE.search(text) else None


def _system(error: BaseException, text: str) -> tuple[bool, str] | None:
    """The same for an error of the operating system, raised by Python or by pylance."""
    number = _number(error, text)
    if number in PASSING_ERRORS or isinstance(error, (TimeoutError, ConnectionError)):
        return True, TRY_AGAIN
    return (False, CHECK_DISK) if number in LASTING_ERRORS else None


def _number(error: BaseException, text: str) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = SYSTEM.search(text)
    return int(found[1]) if found is not None else None


class answering:  # noqa: N801 - a context manager of the standard library's kind, which is entered for every read
    """Turn a store's failure to answer into `StoreUnavailable`; every other error stays as it is."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, PASSED):
            return
        redact_exception(error)
        failure = store_failure(error, self._what)
        if failure is not None:
            raise failure from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without the place in pylance's source and the layers it passed through."""
    lines = str(error).splitlines()
    return plain_line(lines[0]) if lines and lines[0] else type(error).__name__


def plain_line(line: str) -> str:
    """A line of an error of pylance as part of a sentence."""
    return _LAYERS.sub("", ORIGIN.sub("", line)).rstrip(".")
