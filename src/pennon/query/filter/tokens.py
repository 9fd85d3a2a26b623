"""The tokens of a filter, one at a time, as in Lance's tokenizer (sqlparser).

Where the two might differ, it raises `NotUnderstood`: the text may be a filter, but only Lance can parse it. `Broken`
means that the text is not a filter.
"""

from __future__ import annotations

import re
from typing import NoReturn

from pennon.errors import InvalidFilter
from pennon.query.filter.literals import Literal, number


class NotUnderstood(Exception):
    """The filter uses SQL beyond this grammar."""


class Broken(Exception):
    """The filter is not an SQL expression; `position` is the character of the error."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.position = position

    def explained(self, sql: str, what: str = "filter") -> InvalidFilter:
        """The error that users see."""
        problem = f"the {what} does not parse at position {self.position}, {self.problem}: {sql!r}"
        if what == "expression":
            return InvalidFilter(problem, "Write one SQL expression over columns, such as price * 2")
        if self.problem.endswith("follows the filter"):
            return InvalidFilter(problem, "Pass only a condition; limit, order_by and columns are separate arguments")
        if "placeholder" in self.problem:
            return InvalidFilter(problem, "Put the value itself into the filter, or pass a pyarrow expression")
        remedy = "Quote text in single quotes and unusual column names in backticks: `user id` = 42 AND name LIKE 'a%'"
        return InvalidFilter(problem, remedy)


_SPACE = r"[ \t\r\n]*"
_STRING = r"'[^']*+(?:''[^']*+)*+'"
_TOKEN = re.compile(
    rf"""{_SPACE}(?:
     (?P<binary>[xX]'(?:[0-9A-Fa-f]{{2}})*'|0x(?:[0-9A-Fa-f]{{2}})+(?![\w@$\#.]))
    |(?P<word>(?:[^\W\d]|[\#@])[\w@$\#]*)
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w@$\#.]))
    |(?P<string>{_STRING}|"[^"]*+(?:""[^"]*+)*+")
    |(?P<quoted>`[^`]*+(?:``[^`]*+)*+`)
    |(?P<sign><=(?!>)|>=|<>|!=|==(?!=)|\|\|(?!/)|::|=(?![=>])|<(?![=<>@|^])|>(?![=>^])|-(?![->])|/(?![*/])|[][+*%(),.])
    |(?P<end>\Z)
    )""",
    re.VERBOSE,
)
# Long lists of plain literals are parsed at once: token by token, they would cost more than the query.
_INTEGERS = re.compile(rf"\({_SPACE}-?[0-9]+(?:{_SPACE},{_SPACE}-?[0-9]+)*+{_SPACE}\)")
_STRINGS = re.compile(rf"\({_SPACE}{_STRING}(?:{_SPACE},{_SPACE}{_STRING})*+{_SPACE}\)")
_ONE_STRING = re.compile(_STRING)


class Tokens:
    """A cursor over the text: `kind`, `text`, `start` and `end` are those of the current token."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.kind = self.text = self.past_kind = ""
        self.start = self.end = self.past_end = 0
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.sql, self.end)
        if match is None or match.lastgroup is None:
            self.refuse()
        self.past_kind, self.past_end = self.kind, self.end
        self.kind = kind = match.lastgroup
        self.text = match[kind]
        self.start, self.end = match.span(kind)
        if kind == "word" and not _is_plain(self.text, self.sql[self.end : self.end + 1]):
            raise NotUnderstood

    def refuse(self) -> NoReturn:
        rest = self.sql[self.end :].lstrip(" \t\r\n")
        if rest[:1] in ("'", '"', "`"):
            raise Broken(f"this {rest[0]} is never closed", len(self.sql) - len(rest))
        if rest[:1] == ";":
            # Lance reads the filter up to here and ignores the rest.
            raise Broken("';' follows the filter", len(self.sql) - len(rest))
        raise NotUnderstood

    def go_back(self, start: int) -> None:
        """Go back to a token that starts at a position."""
        self.end = start
        self.advance()

    def take(self, text: str) -> None:
        """Consume a required token."""
        if self.text.upper() != text:
            if self.kind == "end":
                raise Broken(f"{text!r} is missing at the end", self.start)
            raise NotUnderstood
        self.advance()

    def following_word(self) -> str:
        """The word after the current token, in upper case."""
        match = _TOKEN.match(self.sql, self.end)
        return match["word"].upper() if match and match["word"] else ""

    def plain_list(self) -> list[Literal] | None:
        """Consume a parenthesized list of only integers or only strings, if there is one; else return None."""
        if match := _INTEGERS.match(self.sql, self.start):
            written = match[0][1:-1].replace(" ", "").split(",")
            literals = [number(text[1:], True) if text[0] == "-" else number(text) for text in map(str.strip, written)]
        elif match := _STRINGS.match(self.sql, self.start):
            literals = [constant("string", text) for text in _ONE_STRING.findall(match[0])]
        else:
            return None
        self.end = match.end()
        self.advance()
        return literals


def constant(kind: str, text: str) -> Literal:
    """The literal of a number, string or binary token."""
    if kind == "number":
        return number(text)
    if kind == "binary":
        return Literal("binary", bytes.fromhex(text[2:].rstrip("'")))
    quote = text[0]
    return Literal("string", text[1:-1].replace(quote * 2, quote))


def _is_plain(word: str, following: str) -> bool:
    """Whether Lance reads the same word: it is not the prefix of a string such as N'..', and has only letters that
    Lance accepts."""
    return following not in ("'", '"') and (word.isascii() or all(c.isascii() or c.isalpha() for c in word))
