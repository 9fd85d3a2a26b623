"""Texts that occur in every match of a pattern. An index that finds them finds a superset of the rows."""

from __future__ import annotations

import re


def like_pieces(pattern: str) -> tuple[str, ...]:
    """The literal parts of a LIKE pattern, whose escape character is the backslash."""
    pieces = [""]
    for part in re.findall(r"\\.|[%_]|\\$|[^\\%_]+", pattern, re.DOTALL):
        if part in ("%", "_"):
            pieces.append("")
        else:
            pieces[-1] += part[1:] if part[0] == "\\" and len(part) > 1 else part
    return tuple(piece for piece in pieces if piece)


def regex_pieces(pattern: str) -> tuple[str, ...]:
    """The literal parts outside of groups and classes of a regular expression; none if alternatives or flags make all
    parts optional."""
    pieces, at = [""], 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "|":
            return ()
        if sign in "([":
            end = _end_of_group(pattern, at) if sign == "(" else _end_of_class(pattern, at)
            if end is None:
                return ()
            at = end
            pieces.append("")
        elif sign == "\\":
            at += 1
            escaped = pattern[at : at + 1]
            if not escaped or escaped in "pPxuUQE" or escaped.isdigit():
                return ()
            is_class = escaped.isalpha() or escaped in "<>"  # of characters, or a place: \b, and \< and \> for words
            pieces += [""] if is_class else []
            pieces[-1] += "" if is_class else escaped
        elif sign in "?*{":
            # The character before it is optional; a repetition with "+" occurs at least once.
            pieces[-1] = pieces[-1][:-1]
            pieces.append("")
            at = pattern.find("}", at) if sign == "{" else at
            if at < 0:
                return ()
        elif sign in ".^$+":
            pieces.append("")
        else:
            pieces[-1] += sign
        at += 1
    return tuple(piece for piece in pieces if piece)


def _end_of_group(pattern: str, at: int) -> int | None:
    """The end of the group that begins at a position; None if it sets flags or does not end."""
    if pattern[at + 1 : at + 2] == "?" and not re.match(r"\?(?::|P?<)", pattern[at + 1 :]):
        return None
    depth = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif sign == "[":
            end = _end_of_class(pattern, at)
            if end is None:
                return None
            at = end
        elif sign == "(" and pattern[at + 1 : at + 2] == "?" and pattern[at + 2 : at + 3] not in (":", "P", "<"):
            return None
        elif sign in "()":
            depth += 1 if sign == "(" else -1
            if not depth:
                return at
        at += 1
    return None


def _end_of_class(pattern: str, at: int) -> int | None:
    """The end of the character class that begins at a position. A bracket as its first member does not end it."""
    depth = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif sign == "[":
            depth += 1
            at += 1 if pattern[at + 1 : at + 2] == "^" else 0
            at += 1 if pattern[at + 1 : at + 2] == "]" else 0
        elif sign == "]":
            depth -= 1
            if not depth:
                return at
        at += 1
    return None
