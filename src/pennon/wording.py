"""Text for people: names and values of tables made safe for a terminal, numbers, and suggestions.

Names and values may hold any character. Characters that control a terminal or change the reading order are written as
escapes: `\\x1b`, `\\u202e`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

# Controls of ASCII but tab and newline, DEL, those of Latin-1, marks and overrides of direction, line separators, what
# is not seen (zero-width characters, tags), and halves of characters, which no stream can encode.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_IN_LINE = re.compile(f"{_STEERING.pattern[:-1]}\t\n]")


def escape_controls(text: str) -> str:
    """Lines of text without characters that control a terminal."""
    return _STEERING.sub(_written_out, text)


def in_line(text: str) -> str:
    """A name or a value on one line."""
    return _IN_LINE.sub(_written_out, text)


def in_lines(lines: Iterable[str]) -> str:
    """A text of exactly these lines, for any names in them."""
    return "\n".join(map(in_line, lines))


def in_json(text: str) -> str:
    """An equal JSON text without such characters."""
    return _STEERING.sub(_escaped, text)


def human_bytes(count: float) -> str:
    """A size in the largest unit that gives a number of at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def percent(share: float) -> str:
    """A share with as many digits as it takes: only all is 100%, and only nothing is 0%."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    if not 0.00001 <= share <= 0.99999:
        return "<0.001%" if share < 0.5 else ">99.999%"
    digits = next(d for d in (1, 2, 3) if 0.0 < round(share, d + 2) < 1.0)
    return f"{share:.{digits}%}"


def human_age(seconds: float) -> str:
    """An age in its largest unit: `1.5 days`."""
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, size = next((each for each in units if seconds >= each[1]), units[-1])
    number = f"{seconds / size:.1f}".removesuffix(".0")
    return f"{number} {unit}{'' if number == '1' else 's'}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun: `1 row`, `2,000 rows`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def joined_names(names: Sequence[str], at_most: int = 6) -> str:
    """Names in a sentence: `a, b and c`, or `a, b, c and 9 more`."""
    shown = list(names) if len(names) <= at_most else [*names[: at_most - 1], f"{len(names) - at_most + 1:,} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known names that are most like `name`, as a remedy; some of them where none is."""
    near = nearest_names(name, known)
    if not near:
        return "There are none"
    return f"Did you mean {near[0]}?" if len(near) == 1 else f"Did you mean one of: {', '.join(near)}?"


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names like `name`, or the first ten where none is like it."""
    names = list(known)
    return difflib.get_close_matches(name, names, n=3) or names[:10]


def sql_identifier(name: str) -> str:
    """A name in backticks, as Spark and DataFusion quote it."""
    return f"`{name.replace('`', '``')}`"


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _escaped(match: re.Match[str]) -> str:
    utf16 = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{utf16[at : at + 4]}" for at in range(0, len(utf16), 4))
