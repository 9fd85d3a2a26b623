"""Text for a terminal. Names and values are the table's and may hold anything, but what steers a terminal, or changes
the order of what is read, is written out instead: `\\x1b`, `\\u202e`."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Controls of ASCII but tab and newline, DEL, those of Latin-1, marks and overrides of direction, line separators, what
# is not seen (zero-width characters, tags), and halves of characters, which no stream can encode.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_IN_LINE = re.compile(f"{_STEERING.pattern[:-1]}\t\n]")


def shown(text: str) -> str:
    """Lines of text, none of which steers a terminal."""
    return _STEERING.sub(_written_out, text)


def in_line(text: str) -> str:
    """A name or a value, which never ends a line."""
    return _IN_LINE.sub(_written_out, text)


def in_lines(lines: Iterable[str]) -> str:
    """A text of just these lines, whatever names are in them."""
    return "\n".join(map(in_line, lines))


def in_json(text: str) -> str:
    """A JSON text that says the same."""
    return _STEERING.sub(_escaped, text)


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _escaped(match: re.Match[str]) -> str:
    utf16 = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{utf16[at : at + 4]}" for at in range(0, len(utf16), 4))


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def human_age(seconds: float) -> str:
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, size = next((each for each in units if seconds >= each[1]), units[-1])
    number = f"{seconds / size:.1f}".removesuffix(".0")
    return f"{number} {unit}{'' if number == '1' else 's'}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"
