"""Finds the settings worth measuring: for each index and each share of refined candidates, the fewest partitions that
give the recall."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pennon.index.vector.kinds import SubIndex
from pennon.query.search.source import Source
from pennon.query.search.tuning.measure import Bench
from pennon.query.search.tuning.settings import EXACT, Measured, Setting

# Candidates for each neighbor that are measured again; codes of few bits need many.
REFINEMENTS = (None, 2, 3, 5, 8, 12, 20, 40, 80)
# The walk through a graph keeps these times as many nodes in sight as there are candidates.
BREADTHS = (1.0, 1.5, 3.0, 6.0)
# Queries that find the neighborhood of a setting, before all of them measure it.
FEW = 150
# From one number of partitions to the next, first roughly, then finely.
DOUBLED, FINE = 2.0, 1.08
MOST_STEPS = 12
# About how many partitions it takes, where nothing is known yet.
FIRST = 16
# The same for walks through graphs, which are measured one by one.
WALKED, WALKED_STEPS = 1.15, 3
# A doubling of partitions that finds less than this in addition is the last.
SATURATED = 0.0005
# A refinement that saves fewer partitions than this share is the last.
NO_GAIN = 0.97


@dataclass(frozen=True)
class Shape:
    """What of an index decides which settings it has."""

    index: str
    partitions: int
    exact_codes: bool
    graphs: bool

    @classmethod
    def of(cls, source: Source) -> Shape:
        """Of an index with at least one usable segment."""
        assert source.index is not None
        files = [segment.opened.files for segment in source.segments]
        return cls(
            source.index,
            max(each.ivf.num_partitions for each in files),
            all(each.kind.quantizer.stores_vectors for each in files),
            any(each.kind.sub_index is SubIndex.HNSW for each in files),
        )


def explore(bench: Bench, shape: Shape, target: float) -> list[Measured]:
    """Settings of an index, with those around the cheapest that reach the target; the default is among them."""
    found = [bench.measure(Setting(shape.index), alone=shape.graphs)]
    fewest: int | None = None
    for refine in (None,) if shape.exact_codes else REFINEMENTS:
        climb = _Climb(bench, shape, target, Setting(shape.index, refine_factor=refine))
        found += climb.points(1 if refine is None else max(1, (fewest or FIRST) // 4))
        reached = climb.reached
        if bench.out_of_time:
            break
        if reached is not None and fewest is not None and reached > NO_GAIN * fewest:
            break
        fewest = reached if reached is not None else fewest
    return found


def exact_search() -> Measured:
    """Every row is measured."""
    return Measured(Setting(None), EXACT, 1)


class _Climb:
    """More and more partitions, for one refinement."""

    def __init__(self, bench: Bench, shape: Shape, target: float, start: Setting) -> None:
        self._bench, self._shape, self._target, self._start = bench, shape, target, start
        self.reached: int | None = None

    def points(self, first: int) -> list[Measured]:
        """What was measured of it, from some partitions on."""
        rough = list(self._rough(min(first, self._shape.partitions)))
        if not self._is_within_reach(rough):
            return [] if self._shape.graphs else rough
        fine = self._fine(_crossing(rough, self._target))
        walked = [point for point in fine if point.recall.low >= self._target]
        if not self._shape.graphs:
            return [*rough, *fine]
        # Batches compared whole partitions: an upper bound of what walks through graphs find.
        return list(self._walked(min(point.setting.nprobes or 1 for point in walked))) if walked else []

    def _rough(self, nprobes: int) -> Iterator[Measured]:
        before = 0.0
        while True:
            point = self._bench.measure(replace(self._start, nprobes=nprobes), FEW)
            yield point
            recall = point.recall.mean
            enough = recall >= self._target + 0.3 * (1 - self._target)
            saturated = nprobes > 8 and recall - before < SATURATED
            if nprobes >= self._shape.partitions or enough or saturated or self._bench.out_of_time:
                return
            nprobes, before = min(int(nprobes * DOUBLED), self._shape.partitions), recall

    def _is_within_reach(self, rough: list[Measured]) -> bool:
        return rough[-1].recall.high >= self._target

    def _fine(self, nprobes: int) -> list[Measured]:
        """Up until the target is reached, or down until it no longer is."""
        points = [self._bench.measure(replace(self._start, nprobes=nprobes))]
        rising = points[0].recall.low < self._target
        for _ in range(MOST_STEPS):
            following = self._next(nprobes, rising)
            if following == nprobes or self._bench.out_of_time:
                break
            nprobes = following
            points.append(self._bench.measure(replace(self._start, nprobes=nprobes)))
            if (points[-1].recall.low >= self._target) == rising:
                break
        reached = [p.setting.nprobes or 1 for p in points if p.recall.low >= self._target]
        self.reached = min(reached, default=None)
        return points

    def _next(self, nprobes: int, rising: bool) -> int:
        if rising:
            return min(self._shape.partitions, max(nprobes + 1, round(nprobes * FINE)))
        return max(1, min(nprobes - 1, round(nprobes / FINE)))

    def _walked(self, nprobes: int) -> Iterator[Measured]:
        wanted = self._bench.request.reach * (self._start.refine_factor or 1)
        for breadth in BREADTHS:
            probes = nprobes
            for _ in range(WALKED_STEPS):
                setting = replace(self._start, nprobes=probes, ef=max(wanted, round(breadth * wanted)))
                point = self._bench.measure(setting, alone=True)
                yield point
                if point.recall.low >= self._target or self._bench.out_of_time:
                    break
                probes = min(self._shape.partitions, max(probes + 1, round(probes * WALKED)))
            if probes == nprobes:
                return  # a broader walk would find no more in fewer partitions


def _crossing(rough: list[Measured], target: float) -> int:
    """About how many partitions reach the target, between the last that do not and the first that do."""
    below = [p for p in rough if p.recall.mean < target]
    above = [p for p in rough if p.recall.mean >= target]
    if not above:
        return rough[-1].setting.nprobes or 1
    if not below:
        return above[0].setting.nprobes or 1
    low, high = below[-1], above[0]
    share = (target - low.recall.mean) / max(1e-9, high.recall.mean - low.recall.mean)
    first, last = low.setting.nprobes or 1, high.setting.nprobes or 1
    return max(1, round(first * (last / first) ** share))
