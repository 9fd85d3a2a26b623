"""The state of a table in words: one sentence, and a notice for everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pennon.report.facts import IndexFacts, TableFacts
from pennon.wording import joined_names, percent, plural

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


def level(facts: TableFacts) -> Level:
    found = {notice.level for notice in notices(facts)}
    return next((worst for worst in (Level.BAD, Level.WARN) if worst in found), Level.GOOD)


def headline(facts: TableFacts) -> str:
    return f"{_coverage(facts)} {_plan(facts)}"


def notices(facts: TableFacts) -> tuple[Notice, ...]:
    """What is wrong, worst first. Indices of which the same is wrong share a notice."""
    by_problem: dict[tuple[Level, str], list[str]] = {}
    for index in facts.indices:
        for level_, problem in _of_index(index):
            by_problem.setdefault((level_, problem), []).append(index.name)
    found = [Notice(level_, f"{joined_names(names)}: {problem}") for (level_, problem), names in by_problem.items()]
    if facts.reuse_problem:
        text = f"The Fragment Reuse Index cannot be read, so no index can be used: {facts.reuse_problem}."
        found.insert(0, Notice(Level.BAD, text))
    if facts.deleted_share >= MANY_DELETED:
        text = f"{percent(facts.deleted_share)} of the stored rows are deleted, and every scan skips over them."
        found.append(Notice(Level.WARN, text))
    found += [Notice(Level.WARN, f"{text[:1].upper()}{text[1:]}. Tune the column again.") for text in facts.doubtful]
    return tuple(sorted(found, key=lambda notice: _ORDER.index(notice.level)))


def _of_index(index: IndexFacts) -> Iterator[tuple[Level, str]]:
    if index.foreign:
        yield Level.NOTE, f"not used by Pennon ({index.segments[0].problem}). Other readers may use it."
        return
    harm, costs = list(_harm(index)), list(_costs(index))
    if harm or costs:
        yield Level.BAD if harm else Level.WARN, f"{'; '.join([*harm, *costs])}."


def _harm(index: IndexFacts) -> Iterator[str]:
    damaged = [facts for facts in index.segments if facts.damaged]
    if damaged:
        yield f"{plural(len(damaged), 'segment')} cannot be read ({damaged[0].problem})"
    if index.overlapping_fragments:
        over = plural(index.overlapping_fragments, "fragment")
        yield f"several segments cover the same {over}, for which pylance may answer wrongly; optimize the index"


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
    if index.compactions_behind:
        yield f"{plural(index.compactions_behind, 'deferred compaction')} behind, which queries follow at every load"


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
    if total == 1:
        return "The only index does not cover all rows."
    return f"{whole:,} of {total:,} indices {'covers' if whole == 1 else 'cover'} all rows."


def _plan(facts: TableFacts) -> str:
    if facts.decisions_problem:
        return "What maintain would do is unknown."
    due = [decision.step for decision in facts.decisions if decision.due]
    return f"Maintain would {_listed(due)}." if due else "Maintain has nothing to do."


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
