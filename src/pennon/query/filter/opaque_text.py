"""Filters that only Lance can parse: what it would ignore or fail on is refused here.

Lance parses a filter up to the end of the first expression and ignores the rest, so such a filter is evaluated in
parentheses: then text after it is an error. Placeholders and strings with a prefix abort its planner.
"""

from __future__ import annotations

import re

from pennon.query.filter.grammar import read
from pennon.query.filter.tokens import Broken, NotUnderstood

_PIECE = re.compile(
    r"""--[^\n]*
    |/\*.*?\*/
    |(?P<prefixed>(?<![\w@$#])[nrb](?=['"]))
    |'[^']*+(?:''[^']*+)*+'
    |"[^"]*+(?:""[^"]*+)*+"
    |`[^`]*+(?:``[^`]*+)*+`
    |(?P<placeholder>\?|(?<![\w@$#])\$|(?<![\w\]:)]):(?=[a-z_]))
    |(?P<open>\()
    |(?P<close>\))""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def enclosed(sql: str) -> str:
    """The filter in parentheses. The line break ends a comment in the last line.

    Raises:
        InvalidFilter: It has a placeholder, a string with a prefix, or a closing parenthesis without an opening one.
    """
    try:
        _check(sql)
    except Broken as error:
        raise error.explained(sql) from None
    return f"({sql}\n)"


def as_written(sql: str) -> str:
    """The text of a filter without the parentheses of `enclosed`."""
    return sql[1:-2] if sql.startswith("(") and sql.endswith("\n)") else sql


def check_expression(sql: str) -> None:
    """Check an SQL expression of a user, which Lance computes for rows.

    Raises:
        InvalidFilter: It does not parse, text follows it, or it has a placeholder or a string with a prefix.
    """
    try:
        try:
            read(sql)
        except NotUnderstood:
            _check(sql)
    except Broken as error:
        raise error.explained(sql, "expression") from None


def _check(sql: str) -> None:
    depth = 0
    for piece in _PIECE.finditer(sql):
        match piece.lastgroup:
            case "placeholder":
                raise Broken("this is a placeholder, which has no value", piece.start())
            case "prefixed":
                raise Broken(f"strings with the prefix {piece[0]} are not supported", piece.start())
            case "open":
                depth += 1
            case "close":
                depth -= 1
                if depth < 0:
                    raise Broken("this ')' has no matching '('", piece.start())
            case _:
                pass
