"""The table of figures in the README, made from the result files: `python -m bench.readme` writes it.

A cell is the median with the spread of the turns behind it, as the result file has it. A result that was kept before
spreads were recorded is the best of its turns, and is marked so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- figures: made by `python -m bench.readme` -->", "<!-- end of figures -->"
MARKED = re.compile(f"{re.escape(BEGIN)}\n(.*?){re.escape(END)}", re.DOTALL)
SPREAD = re.compile(r"^([\d.,]+) \(([\d.,]+) to ([\d.,]+)\)$")


@dataclass(frozen=True)
class Figure:
    """A row of the README: the result file, the first cell of its row there, the columns with the figures of pylance
    (None where it has none), of Pennon and their ratio, and the unit."""

    label: str
    result: str
    row: str
    theirs: str | None
    ours: str
    ratio: str | None
    unit: str = "s"


def _timed(label: str, result: str, row: str, unit: str = "s") -> Figure:
    return Figure(label, result, row, f"pylance {unit}", f"Pennon {unit}", "speed-up", unit)


FIGURES = (
    _timed("B-tree, random int64, 1,000,000 rows, in the driver", "build_int64", "random int64, 1,000,000 rows"),
    _timed("B-tree, random int64, 10,000,000 rows", "build_int64", "random int64, 10,000,000 rows"),
    _timed("B-tree, random int64, 100,000,000 rows", "build_large", "random int64, 100,000,000 rows"),
    _timed("B-tree, `l_comment` of TPC-H", "build_lineitem", "lineitem.l_comment"),
    _timed("BITMAP, 200 values, 10,000,000 rows", "scalar-build", "BITMAP"),
    _timed("NGRAM, 10,000,000 texts of 18 letters", "scalar-build", "NGRAM"),
    _timed("INVERTED, 1,344,796 paragraphs", "text-build", "build, without positions"),
    _timed("point lookup in 10,000,000 rows, warm", "points", "warm", "ms"),
    _timed("the same, in a table just opened", "points", "cold (table just opened)", "ms"),
    _timed("IVF_PQ, 500,000 x 128, 512 partitions", "vector-build", "IVF_PQ, 16 sub-vectors"),
    _timed("IVF_SQ, the same", "vector-build", "IVF_SQ"),
    Figure(
        "1,000 searches in that IVF_SQ, queries per second",
        "vector-search",
        "IVF_SQ",
        "pylance one by one, queries/s",
        "Pennon",
        "Pennon : pylance one by one",
        "",
    ),
    _timed("1,000 text queries, each", "text-search", "1,000 of 1 to 3 words, a batch of Pennon's", "ms"),
    _timed("compaction of 10,000,000 rows with a B-tree, remapped at once", "compact", "B-tree, 10,000,000 int64"),
)


def table() -> str:
    """The table with the machines that its rows were measured on."""
    lines = ["| Spark `local[2]` | pylance | Pennon | speed-up |", "|---|---|---|---|"]
    machines: dict[str, list[str]] = {}
    recorded: set[bool] = set()
    for figure in FIGURES:
        text = (RESULTS / f"{figure.result}.md").read_text("utf-8")
        found = next(row for row in rows(text) if row[""] == figure.row and figure.ours in row)
        cells = [found[column] if column else "" for column in (figure.theirs, figure.ours, figure.ratio)]
        recorded.add(SPREAD.match(cells[1]) is not None)
        shown = [_cell(cell, unit) for cell, unit in zip(cells, (figure.unit, figure.unit, ""), strict=True)]
        lines.append(f"| {figure.label} | {shown[0] or 'not offered'} | {' | '.join(shown[1:])} |")
        machines.setdefault(_machine(text), []).append(figure.result)
    notes = [f"Measured on {_on(machines)}."]
    if True in recorded:
        notes.append("Medians of at least five interleaved turns, with the spread in brackets.")
    if False in recorded:
        notes.append(
            "Figures without a spread in brackets are older: the best of two to five turns, the CPU unrecorded."
        )
    return "\n".join([*lines, "", " ".join([*notes, *_seed()])]) + "\n"


def _seed() -> list[str]:
    """Beside the figures of the proposal that range-based B-trees come from."""
    result = RESULTS / "seed-003.md"
    if not result.exists():
        return []
    taken = {row[""]: _cell(row["Pennon s"], "s") for row in rows(result.read_text("utf-8"))}
    sentence = (
        f"A B-tree of 130,000,000 integers takes {taken['3']} in 3 ranges and {taken['50']} in 50; the proposal of "
        "such trees reports 23 and 3 minutes on a cluster that it does not describe."
    )
    return [sentence]


def rows(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables of a result by the names of their columns; the first cell has none."""
    header: list[str] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            header = None
        elif header is None:
            header = ["", *cells[1:]]
        elif not line.startswith("|---"):
            # The first of two columns of one name counts.
            yield dict(reversed(list(zip(header, cells, strict=True))))


def _cell(cell: str, unit: str) -> str:
    number, bracket, spread = cell.partition(" (")
    return f"{number} {unit}".strip() + bracket + spread if cell else ""


def _machine(text: str) -> str:
    found = re.search(r"^Measured \S+ on (.*?), Python", text, re.MULTILINE)
    if found is None:
        raise ValueError("a result file does not record where it was measured")
    return found[1]


def _on(machines: dict[str, list[str]]) -> str:
    if len(machines) == 1:
        return next(iter(machines))
    return "; ".join(f"{machine} ({', '.join(dict.fromkeys(results))})" for machine, results in machines.items())


def main() -> None:
    """Write the table into the README."""
    text = README.read_text("utf-8")
    README.write_text(MARKED.sub(lambda _: f"{BEGIN}\n{table()}{END}", text), "utf-8")


if __name__ == "__main__":
    main()
