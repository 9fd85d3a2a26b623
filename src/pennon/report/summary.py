"""The state of a table in words: one sentence, and a notice for everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pennon.report.facts import IndexFacts, TableFacts
from pennon.wording import plural

# Beyond this share, reading deleted rows is worth a word.
MANY_DELETED = 0.1


class Level(StrEnum):
    """How bad something is; also the class it has in the page's style."""

    GOOD = "good"
    NOTE = "note"
    WARN = "warn"
    BAD = "bad"


_ORDER = (Level.BAD, Level.WARN, Level.NOTE, Level.GOOD)


@dataclass(frozen=True)
class Notice:
    level: Level
    text: str


def percent(share: float) -> str:
    """Only all is 100%, and only nothing is 0%."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return f"{min(max(share, 0.001), 0.999):.1%}"


def level(facts: TableFacts) -> Level:
    found = {notice.level for notice in notices(facts)}
    return next((worst for worst in (Level.BAD, Level.WARN) if worst in found), Level.GOOD)


def headline(facts: TableFacts) -> str:
    return f"{_coverage(facts)} {_plan(facts)}"


def notices(facts: TableFacts) -> tuple[Notice, ...]:
    found = [notice for index in facts.indices for notice in _of_index(index)]
    if facts.reuse_problem:
        text = f"The Fragment Reuse Index cannot be read, so no index can be used: {facts.reuse_problem}."
        found.insert(0, Notice(Level.BAD, text))
    if facts.deleted_share >= MANY_DELETED:
        said = f"{percent(facts.deleted_share)} of the stored rows are deleted and are read over by every scan."
        found.append(Notice(Level.WARN, said))
    return tuple(sorted(found, key=lambda notice: _ORDER.index(notice.level)))


def _of_index(index: IndexFacts) -> Iterator[Notice]:
    if index.foreign:
        text = f"{index.name}: Pennon does not use it ({index.segments[0].problem}). Other readers may."
        yield Notice(Level.NOTE, text)
        return
    harm, costs = list(_harm(index)), list(_costs(index))
    if harm or costs:
        yield Notice(Level.BAD if harm else Level.WARN, f"{index.name}: {'; '.join([*harm, *costs])}.")


def _harm(index: IndexFacts) -> Iterator[str]:
    damaged = [facts for facts in index.segments if facts.damaged]
    if damaged:
        yield f"{plural(len(damaged), 'segment')} cannot be read ({damaged[0].problem})"
    if index.overlapping_fragments:
        over = plural(index.overlapping_fragments, "fragment")
        yield f"several segments cover the same {over}, where pylance may err; optimize it"


def _costs(index: IndexFacts) -> Iterator[str]:
    foreign = [facts for facts in index.segments if facts.foreign]
    if foreign:
        yield f"{plural(len(foreign), 'segment')} not used ({foreign[0].problem})"
    if index.uncovered_fragments:
        scanned = plural(index.uncovered_fragments, "fragment")
        yield f"{percent(1 - index.coverage)} of the rows uncovered, in {scanned} that queries scan"
    stale = max((facts.stale_fragments for facts in index.segments), default=0)
    if stale:
        yield f"old values of {plural(stale, 'fragment')} that changed in place are still in its files"
    if index.moves_behind:
        yield f"{plural(index.moves_behind, 'deferred compaction')} behind, which queries follow at every load"


def _coverage(facts: TableFacts) -> str:
    if not facts.indices:
        return "The table has no indices." if facts.rows else "The table has no rows and no indices."
    if not facts.rows:
        return f"The table has no rows for its {plural(len(facts.indices), 'index', 'indices')} to cover."
    known = [index for index in facts.indices if not index.foreign]
    if not known:
        return "Pennon does not use the table's indices."
    short = [index for index in known if index.uncovered_fragments]
    whole, total = len(known) - len(short), len(known)
    if not short:
        return "The only index covers all rows." if total == 1 else f"All {total:,} indices cover all rows."
    lacking = [f"{index.name} leaves {percent(1 - index.coverage)} uncovered" for index in short[:2]]
    if len(short) > len(lacking):
        lacking.append(f"{len(short) - len(lacking):,} more have gaps")
    cover = "covers" if whole == 1 else "cover"
    said = "The only index has gaps" if total == 1 else f"{whole:,} of {total:,} indices {cover} all rows"
    return f"{said}; {_listed(lacking)}."


def _plan(facts: TableFacts) -> str:
    if facts.decisions_problem:
        return "What maintain would do cannot be told."
    due = [decision.step for decision in facts.decisions if decision.due]
    return f"Maintain would {_listed(due)}." if due else "Maintain has nothing to do."


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
