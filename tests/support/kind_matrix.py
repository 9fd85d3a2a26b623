"""What becomes of an index of every kind under every verb, on ordinary tables, with stable row ids, and on tables that
share files with another one. Each verb finds work to do; what it did to each index is a word in a table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

import pennon
from pennon.errors import CompactionWarning
from pennon.jobs.compact.plan import Effect
from pennon.jobs.maintain import MaintenancePolicy
from pennon.jobs.results import Result
from pennon.table import Table
from tests.support.pylance_kinds import KINDS, Answer, rows

LAYOUTS = ("ordinary", "stable row ids", "shallow clone", "branch")
# Kinds that hold back what all others of their table cover, because no compaction can follow them.
ALONE = {False: ("FM",), True: ("FM", "BTREE on bool8")}

ROWS = 80  # of a fragment; pylance trains no PQ on fewer than 256
EAGER = MaintenancePolicy(min_fragments_to_compact=1, max_reuse_versions=0)


@dataclass(frozen=True)
class View:
    """An index as pylance has it, and the answers that pylance and Pennon give."""

    uuids: frozenset[str]
    covered_rows: int
    answers: tuple[Answer, Answer]


Outcome = Callable[[Any, str, View, View], str]


@dataclass(frozen=True)
class Verb:
    """A verb with what comes before it, and how its outcome for one index is called."""

    name: str
    run: Callable[[Table], Any]
    outcome: Outcome
    before: Callable[[Matrix], None] | None = None
    loses: bool = False  # coverage, as asked


@dataclass(frozen=True)
class Matrix:
    """A table with an index of each of some kinds."""

    uri: str
    kinds: Sequence[str]
    stable: bool = False

    @property
    def columns(self) -> dict[str, str]:
        """Name of the column -> kind."""
        return {f"c{place}": kind for place, kind in enumerate(self.kinds)}

    def append(self, start: int) -> None:
        sources = {column: KINDS[kind].source for column, kind in self.columns.items()}
        lance.write_dataset(
            rows(start, ROWS, sources),
            self.uri,
            mode="append" if start else "create",
            enable_stable_row_ids=self.stable,
        )

    def delete(self, filter: str) -> None:
        lance.dataset(self.uri).delete(filter)

    def views(self) -> dict[str, View]:
        """By kind."""
        dataset, table = lance.dataset(self.uri), pennon.open(self.uri)
        live = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
        described = {index.name: index.segments for index in dataset.describe_indices()}
        found: dict[str, View] = {}
        for column, kind in self.columns.items():
            covered = {fragment for segment in described[column] for fragment in segment.fragment_ids}
            answers = KINDS[kind].ask(dataset, column), KINDS[kind].ask_pennon(table, column)
            uuids = frozenset(str(segment.uuid) for segment in described[column])
            found[kind] = View(uuids, sum(live.get(fragment, 0) for fragment in covered), answers)
        return found


def groups(stable: bool) -> list[tuple[str, ...]]:
    """Kinds that share a table, in which each has a column of its own. A deferred compaction holds graphs back."""
    able = [name for name, kind in KINDS.items() if kind.stable_row_ids or not stable]
    alone = ALONE[stable]
    graphs = tuple(name for name in able if "HNSW" in name and name not in alone)
    others = tuple(name for name in able if name not in (*alone, *graphs))
    return [graphs, others, *((name,) for name in alone)]


def make(path: Path, kinds: Sequence[str], *, stable: bool) -> Matrix:
    """Four fragments, and an index of each kind that pylance has built over all of them."""
    matrix = Matrix(str(path), kinds, stable)
    for number in range(4):
        matrix.append(ROWS * number)
    for column, kind in matrix.columns.items():
        KINDS[kind].build(matrix.uri, column, column)
    return matrix


def laid_out(base: Matrix, layout: str, directory: Path) -> Matrix:
    """The table itself, or one made of it, which uses its files."""
    dataset = lance.dataset(base.uri)
    if layout == "shallow clone":
        clone = str(directory / "clone.lance")
        dataset.shallow_clone(clone, dataset.version)
        return Matrix(clone, base.kinds)
    return Matrix(dataset.create_branch("one").uri, base.kinds) if layout == "branch" else base


def outcomes(matrix: Matrix, layout: str) -> dict[str, dict[str, str]]:
    """By kind and verb. Every verb is checked: nothing of any index is lost, and answers stay."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in matrix.kinds}
    seen: dict[int, dict[str, View]] = {}  # by version of the table
    for verb in VERBS:
        if verb.name == "compact, deferred" and matrix.stable:
            for kind in matrix.kinds:
                found[kind][verb.name] = "refused"
            continue
        if verb.before is not None:
            verb.before(matrix)
        before = _seen(matrix, seen)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", CompactionWarning)  # fragments that are held back
            result = verb.run(pennon.open(matrix.uri))
        after = _seen(matrix, seen)
        for column, kind in matrix.columns.items():
            where = f"{kind}, {verb.name}, {layout}"
            if not (verb.loses and KINDS[kind].needs_coverage):
                assert after[kind].answers == before[kind].answers, where
            if not verb.loses:
                assert after[kind].covered_rows >= before[kind].covered_rows, where
            found[kind][verb.name] = verb.outcome(result, column, before[kind], after[kind])
    return found


def _seen(matrix: Matrix, seen: dict[int, dict[str, View]]) -> dict[str, View]:
    version = lance.dataset(matrix.uri).version
    if version not in seen:
        seen[version] = matrix.views()
    return seen[version]


def _grown(matrix: Matrix) -> None:
    matrix.append(ROWS * 4)


def _deleted(filter: str) -> Callable[[Matrix], None]:
    def delete(matrix: Matrix) -> None:
        matrix.delete(filter)

    return delete


def _optimized(result: Result[Any], index: str, before: View, after: View) -> str:
    [step] = [step for step in result.plan.steps if step.name == index]
    if step.skipped:
        assert after == before
        assert step.reason
        return "passed over"
    assert after.covered_rows > before.covered_rows
    return "extended"


EFFECTS = {
    Effect.REMAPPED: "rewritten",
    Effect.RECORDED: "recorded",
    Effect.DEFERRED: "recorded",
    Effect.KEPT: "by row id",
    Effect.DROPPED: "dropped",
    Effect.UNAFFECTED: "held back",
}


def _compacted(result: Result[Any], index: str, before: View, after: View) -> str:
    """As the plan states it, and as it is."""
    effects = {each.effect for each in result.plan.indices if each.index == index}
    [effect] = effects - {Effect.UNAFFECTED} or effects
    assert (after.uuids != before.uuids) == (effect is Effect.REMAPPED)
    assert (after.covered_rows < before.covered_rows) == (effect is Effect.DROPPED)
    if effect is Effect.UNAFFECTED:
        assert result.plan.held_back
    return EFFECTS[effect]


def _followed(result: Any, index: str, before: View, after: View) -> str:
    return "rewritten" if after.uuids != before.uuids else "unchanged"


def _audited(result: Any, index: str, before: View, after: View) -> str:
    assert result.ok, str(result)
    passed_over = [
        finding for finding in result.findings if finding.index == index and "not audited" in finding.problem
    ]
    return "passed over" if passed_over else "checked"


def _reported(result: str, index: str, before: View, after: View) -> str:
    assert index in result
    return "listed"


VERBS = (
    Verb("optimize", lambda t: t.optimize_indices(), _optimized, _grown),
    Verb("compact", lambda t: t.compact(), _compacted, _deleted("id % 9 = 0")),
    Verb(
        "compact, deferred",
        lambda t: t.compact(remap="deferred", materialize_deletions_threshold=0.0),
        _compacted,
        _deleted("id % 9 = 1"),
    ),
    Verb("catch up", lambda t: t.catch_up_indices(), _followed),
    Verb("trim", lambda t: t.trim_fragment_reuse(), _followed),
    Verb("maintain", lambda t: t.maintain(EAGER), _followed, _deleted("id % 9 = 2")),
    Verb("audit", lambda t: t.audit(), _audited),
    Verb("report", lambda t: t.report(), _reported),
    Verb(
        "compact, drop",
        lambda t: t.compact(remap="drop", materialize_deletions_threshold=0.0),
        _compacted,
        _deleted("id % 9 = 3"),
        loses=True,
    ),
)


def markdown(found: Mapping[str, Mapping[str, str]]) -> str:
    """A table: one line for each kind, one column for each verb."""
    verbs = [verb.name for verb in VERBS]
    lines = [f"| kind | {' | '.join(verbs)} |", f"|---{'|---' * len(verbs)}|"]
    lines += [f"| {kind} | {' | '.join(found[kind][verb] for verb in verbs)} |" for kind in KINDS if kind in found]
    return "\n".join(lines)
