"""Whether an output is the one a page shows, apart from what no two runs have in common."""

from __future__ import annotations

import datetime as dt
import math
import re

# Times, sizes and names that are new in every run, and what depends on the number of cores: how work is cut, and so
# which vectors a model is trained on. What is left must be the same.
_VARIES = [
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"\(segment [0-9a-f]{8}\)", "(segment <uuid>)"),
    (r"\b[\d,]+(\.\d+)? (ms|s|bytes|B|KiB|MiB|GiB)(?!\w)", r"<number> \2"),
    (r"#\d+L?\b", "#<number>"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
    (r"\d+ (map )?tasks?\b", r"<number> \1tasks"),
    (r"\d+ to write", "<number> to write"),
    (r"(partitions of IVF_\w+), [\d,]+ rows", r"\1, <number> rows"),
    (r"[\d,]+ (rows scored|measured|read|cached|index reads?)\b", r"<number> \1"),
    (r"recall@10 is \d\.\d+", "recall@10 is <number>"),
    (r"[-+]{4,}", "--"),
    (r" *\| *", "|"),
    (r"\s+", " "),
]
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?= ?$)")
_DECIMAL = re.compile(r"(-?\d+\.\d+(?:[Ee][-+]?\d+)?)")


def agree(shown: str, actual: str) -> bool:
    """A line of three dots stands for any number of lines."""
    return _lines_agree(_lines(shown), _lines(actual))


def _lines(text: str) -> list[str]:
    return [_masked(line) for line in text.strip("\n").split("\n") if line.strip()]


def _masked(line: str) -> str:
    for pattern, name in _VARIES:
        line = re.sub(pattern, name, line)
    return line.strip()


def _lines_agree(shown: list[str], actual: list[str]) -> bool:
    if not shown:
        return not actual
    if shown[0] == "...":
        return any(_lines_agree(shown[1:], actual[skipped:]) for skipped in range(len(actual) + 1))
    return bool(actual) and _line_agrees(shown[0], actual[0]) and _lines_agree(shown[1:], actual[1:])


def _line_agrees(shown: str, actual: str) -> bool:
    today = _DATE.search(actual)
    if today and today[0] == dt.datetime.now(dt.UTC).date().isoformat():
        # The day an index was created.
        shown = _DATE.sub(today[0], shown)
    left, right = _DECIMAL.split(shown), _DECIMAL.split(actual)
    return left[::2] == right[::2] and all(
        math.isclose(float(a), float(b), rel_tol=2e-3, abs_tol=2e-6)
        for a, b in zip(left[1::2], right[1::2], strict=True)
    )
