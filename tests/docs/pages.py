"""The pages of the documentation, taken apart into their fenced blocks.

Blocks of `python`, `sh` and `sql` are run, in the order of the page; a `text` block after one is what it prints. In a
`console` block outputs are below their commands. A comment above a block, `<!-- not run: why -->` or
`<!-- figure -->`, excludes it. `<!-- starts from: tables -->` or `indices` gives the page the tables of the tour, bare
or with its indices. `# exit code 1` after a command, or a Python value after an expression, is checked as well.
PENNON_DOCS_UPDATE=1 makes the tests write outputs into the pages instead of comparing them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN = ("python", "sh", "console", "sql")
OUTPUT = "text"

_FENCE = re.compile(r"^ *```(.*)$")
_MARK = re.compile(r"^ *<!-- (not run: .+|figure) -->$")
_START = re.compile(r"^<!-- starts from: (nothing|tables|indices) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: lines `begin` to `end` of the page, from 0; `mark` is what the comment above it says."""

    language: str
    text: str
    begin: int
    end: int
    mark: str | None

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.mark is None

    @property
    def is_output(self) -> bool:
        return self.language == OUTPUT and self.mark is None


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text("utf-8").splitlines()
    begin: int | None = None
    mark: str | None = None
    language = ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if begin is not None:
            if fence:
                yield Block(language, "\n".join(lines[begin:number]), begin, number, mark)
                begin, mark = None, None
        elif fence:
            begin, language = number + 1, fence[1].strip()
        elif found := _MARK.match(line):
            mark = found[1]
        elif line.strip():
            mark = None
    assert begin is None, f"{page.name}: a block that begins at line {begin} has no end"


def starts_from(page: Path) -> str:
    found = _START.search(page.read_text("utf-8"))
    return found[1] if found else "nothing"


def replace(page: Path, changes: list[tuple[Block, str]]) -> None:
    """Give blocks of a page a new text."""
    lines = page.read_text("utf-8").splitlines()
    for block, text in sorted(changes, key=lambda change: -change[0].begin):
        lines[block.begin : block.end] = text.split("\n")
    page.write_text("\n".join(lines) + "\n", "utf-8")
