"""Whatever is wrong with the files of a table: a right answer, with or without a warning, or an error by name.

`PENNON_FUZZ_CASES` says how many trials the heavy form makes, `PENNON_FUZZ_SEED` where it begins.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.pool import Case, Verdict, run_cases
from tests.hostile.trial import RIGHT
from tests.hostile.victims import Victim, make_victims

pytestmark = pytest.mark.process

FEW = 84
# Damage to bytes that leaves what a file says of itself as it was.
GARBLED = ("flip", "flips", "zeros", "scrambling", "a gap")


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Victim]:
    return {victim.name: victim for victim in make_victims(tmp_path_factory.mktemp("victims"))}


def cases(victims: dict[str, Victim], first: int, count: int) -> list[Case]:
    names = sorted(victims)
    return [(names[seed % len(names)], seed) for seed in range(first, first + count)]


def failures(verdicts: list[Verdict]) -> list[str]:
    return [str(verdict) for verdict in verdicts if verdict.outcome not in RIGHT and not is_stocks_own(verdict)]


def is_stocks_own(verdict: Verdict) -> bool:
    """What nobody can help who lets pylance read. Rust's Arrow reader allocates what a damaged deletion file says in
    places that C++'s does not look at, and ends the process. And where bytes of a page are garbled, pylance's decoder
    allocates what they say, gigabytes at times, before it or a digest finds out."""
    if verdict.outcome == "swollen":
        mutation, _, target = verdict.damage.partition(" of ")
        return mutation in GARBLED and target.partition(" (")[0] in ("pages", "index", "auxiliary")
    ended = verdict.outcome == "crash" and "memory allocation of" in verdict.told[-1]
    return ended and " of deletions" in verdict.damage


def test_damage_of_every_sort(victims: dict[str, Victim], tmp_path: Path, tally: Callable[[str, int], None]) -> None:
    verdicts = list(run_cases(victims, cases(victims, 0, FEW), tmp_path))
    tally("damaged tables", len(verdicts))
    assert len(verdicts) == FEW
    assert failures(verdicts) == []
    assert {verdict.outcome for verdict in verdicts} >= {"answered", "warned", "refused"}


@pytest.mark.heavy
def test_damage_by_the_thousand(
    victims: dict[str, Victim],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tally: Callable[[str, int], None],
) -> None:
    count, first = int(os.environ.get("PENNON_FUZZ_CASES", "3000")), int(os.environ.get("PENNON_FUZZ_SEED", "10000"))
    verdicts = list(run_cases(victims, cases(victims, first, count), tmp_path))
    tally("damaged tables", len(verdicts))
    with capsys.disabled():
        print("", summary(verdicts), *failures(verdicts), sep="\n")  # noqa: T201 - what a long run is for
    assert failures(verdicts) == []


def summary(verdicts: list[Verdict]) -> str:
    """A line a sort of damage, the most frequent first, with how often each outcome followed."""
    sorts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        mutation, _, target = verdict.damage.partition(" of ")
        sort = f"{mutation.partition(':')[0]}, {target.partition(' (')[0].split(' of ')[-1]}"
        sorts.setdefault(sort, Counter())[verdict.outcome] += 1
    lines = [(sum(found.values()), sort, found) for sort, found in sorts.items()]
    told = [f"{count:6} {sort}: {_counts(found)}" for count, sort, found in sorted(lines, key=lambda line: -line[0])]
    return "\n".join([*told, f"{len(verdicts):6} in all: {_counts(Counter(v.outcome for v in verdicts))}"])


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
