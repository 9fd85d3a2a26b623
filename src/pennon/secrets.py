"""Secrets never appear in text: not in errors, warnings, plans, logs or reports.

The secrets in the address and storage options of a table are registered when its `Location` is created, for the rest of
the process. Code that makes a text need not know which words came from pylance, a server or the user.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit, urlunsplit

HIDDEN = "***"
# Options, and parameters of an address, whose value is a secret.
_SECRET_KEY = re.compile(
    r"key|secret|token|pass|credential|sas|sig|auth|cookie|bearer|connection_string", re.IGNORECASE
)
_PLAIN_VALUES = frozenset({"true", "false", "1", "0", ""})
# A shorter secret is only hidden as a separate word: other words and parts of paths may contain it.
_LONG = 12
# Addresses have a password before the host or a signature in the query. A port is not a password.
_PASSWORD = re.compile(r"(?<=://)([^\s:/?#@]*):(?!\d+(?:[/?#\s]|$))[^\s@]*(?=@)")
_SIGNED = re.compile(rf"(?<=[?&;])([\w.%-]*(?:{_SECRET_KEY.pattern})[\w.%-]*)=[^\s&;#'\"<>)]+", re.IGNORECASE)
# `key=value` where a storage option was misplaced.
_PAIR = re.compile(rf"([\w.-]*(?:{_SECRET_KEY.pattern})[\w.-]*)=[^\s)]+", re.IGNORECASE)
# Rust prints the bytes of a key that it cannot read.
_BYTES = re.compile(r"\[\d{1,3}(?:, \d{1,3}){3,}\]")
_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
# A limit, because tokens are renewed.
_MOST = 4096
_known: dict[str, str] = {}


def register_secrets(uri: str, options: Mapping[str, str]) -> None:
    """From now on, hide the secrets of this address, of these storage options and of the environment."""
    shown = redact_address(uri)
    if shown != uri:
        _register(uri.rstrip("/"), shown.rstrip("/"))
    # pylance also reads credentials from the environment.
    around = {key: value for key, value in os.environ.items() if key.startswith(_CLOUDS)} if "://" in uri else {}
    for key, value in (*around.items(), *options.items()):
        for secret in _secrets_in(key, value):
            for spelling in _spellings(secret):
                _register(spelling, HIDDEN)


@contextmanager
def remembered() -> Generator[None]:
    """Secrets that are registered inside are hidden until the end of the block, not of the process."""
    before = dict(_known)
    try:
        yield
    finally:
        _known.clear()
        _known.update(before)
        _pattern.cache_clear()


def redact(text: str) -> str:
    """The text with *** in place of every secret."""
    if _known:
        text = _pattern()(text)
        text = _BYTES.sub(_hide_bytes, text)
    if "://" in text:
        text = _PASSWORD.sub(rf"\1:{HIDDEN}", text)
    return _SIGNED.sub(rf"\1={HIDDEN}", text) if "=" in text else text


def redact_pairs(text: str) -> str:
    """Also hide the value of anything that looks like a secret option, `key=value`, in text that the user typed."""
    return _PAIR.sub(rf"\1={HIDDEN}", redact(text))


def is_secret(key: str, value: str) -> bool:
    """Whether a storage option is one that must not be shown."""
    return bool(_SECRET_KEY.search(key)) and value.lower() not in _PLAIN_VALUES


def redact_address(uri: str) -> str:
    """An address without its password and its query; paths of this machine have neither."""
    parts = urlsplit(uri) if "://" in uri else None
    if parts is None or parts.scheme in ("", "file") or len(parts.scheme) == 1:
        return uri
    # Azure names the container before the host, abfss://container@account; a password follows a colon.
    parts = urlsplit(_PASSWORD.sub(rf"\1:{HIDDEN}", uri))
    return urlunsplit(parts._replace(query=HIDDEN if parts.query else ""))


def redact_exception(error: BaseException) -> None:
    """Hide secrets in the arguments and notes of an error and of its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        hidden = tuple(redact(item) if isinstance(item, str) else item for item in current.args)
        if hidden != current.args:
            current.args = hidden
        notes = getattr(current, "__notes__", None)
        if notes:
            notes[:] = [redact(note) for note in notes]
        current = current.__cause__ or current.__context__


def _register(secret: str, shown: str) -> None:
    if secret in _known:
        return
    if len(_known) >= _MOST:
        del _known[next(iter(_known))]
    _known[secret] = shown
    _pattern.cache_clear()


def _secrets_in(key: str, value: str) -> Iterator[str]:
    """The value of a secret option, and the secrets inside it: passwords of addresses, parts of a signature, keys in
    JSON."""
    if "://" in value:
        yield from _secrets_of_address(value)
    if not is_secret(key, value):
        return
    yield value
    if "=" in value:
        yield from _secrets_of_query(value.lstrip("?"))
    if value.lstrip().startswith("{"):
        yield from _secrets_of_json(value)
    if "\n" in value:
        yield from (line.strip() for line in value.splitlines() if len(line.strip()) >= _LONG)


def _secrets_of_address(value: str) -> Iterator[str]:
    try:
        parts = urlsplit(value)
        if parts.password:
            yield parts.password
    except ValueError:
        return
    yield from _secrets_of_query(parts.query)


def _secrets_of_query(query: str) -> Iterator[str]:
    """Values as they are written, and as a server decodes them: a plus sign may be a space."""
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if value and _SECRET_KEY.search(unquote_plus(name)):
            yield from {value, unquote(value), unquote_plus(value)}


def _secrets_of_json(value: str) -> Iterator[str]:
    try:
        held = json.loads(value)
    except ValueError:
        return
    for key, inner in held.items() if isinstance(held, dict) else ():
        if isinstance(inner, str) and _SECRET_KEY.search(key):
            yield from _secrets_in(key, inner)


def _spellings(secret: str) -> Iterable[str]:
    """As addresses, JSON and Python's repr write it."""
    plain = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    escaped = {json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    return plain | escaped


@lru_cache(maxsize=1)
def _pattern() -> Callable[[str], str]:
    words = sorted(_known, key=len, reverse=True)
    alone = (re.escape(w) if len(w) >= _LONG else rf"(?<![\w./-]){re.escape(w)}(?![\w/-])" for w in words)
    compiled = re.compile("|".join(alone))
    return lambda text: compiled.sub(lambda match: _known.get(match[0], HIDDEN), text)


def _hide_bytes(match: re.Match[str]) -> str:
    numbers = [int(number) for number in match[0][1:-1].split(", ")]
    if max(numbers) > 255:
        return match[0]
    text = bytes(numbers).decode("utf-8", "replace")
    return f"[{HIDDEN}]" if any(text in secret or secret in text for secret in _known) else match[0]
