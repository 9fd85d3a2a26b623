"""Runs settings on the queries of a measurement: their recall, and interleaved with each other their time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pennon.index.vector.vectors import Floats
from pennon.query.catalog import Catalog
from pennon.query.search.neighbors import Neighbors
from pennon.query.search.request import SearchRequest, read_request
from pennon.query.search.run import find_neighbors, search
from pennon.query.search.tuning.settings import Measured, Recall, Setting
from pennon.query.search.tuning.truth import Truth

# Queries that are searched together as each would be alone: larger batches compare all rows of a partition instead of
# walking its graph.
ALONE = 8
# Turns in which each setting is timed once, and seconds after which no further turn starts.
TURNS, LEAST_TURNS = 101, 3
TIMED_SECONDS = 10.0


class _OneMore(SearchRequest):
    """A search that finds the row it was asked with, and as many candidates in addition as one without that row."""

    @property
    def wanted(self) -> int:
        return (self.reach - 1) * (self.refine_factor or 1) + 1


@dataclass(frozen=True, eq=False)
class Bench:
    """A request without its queries, and those with their true neighbors."""

    catalog: Catalog
    request: SearchRequest
    truth: Truth
    deadline: float = math.inf  # of `time.monotonic()`

    @property
    def out_of_time(self) -> bool:
        return time.monotonic() > self.deadline

    def measure(self, setting: Setting, queries: int | None = None, *, alone: bool = False) -> Measured:
        """The recall of a setting, by the first of the queries. `alone` searches as single queries do."""
        count = min(queries or len(self.truth), len(self.truth))
        step = ALONE if alone else max(1, count)
        by_k: list[list[Floats]] = [[] for _ in self._ks]
        for start in range(0, count, step):
            which = slice(start, min(start + step, count))
            found = self._found(setting, which)
            for shares, k in zip(by_k, self._ks, strict=True):
                shares.append(self.truth.shares(found, k, which))
        recalls = [Recall.of(np.concatenate(shares)) for shares in by_k]
        if self.truth.queries.own is not None:
            recalls = [recall.for_others() for recall in recalls]
        least = self.request.reach
        for k, recall in zip(self._ks[1:], recalls[1:], strict=True):
            if recall.mean < recalls[0].mean:
                break
            least = k
        return Measured(setting, recalls[0], least)

    @property
    def _ks(self) -> list[int]:
        """k and some smaller ones, which the same answers have a recall for."""
        k = self.request.reach
        return sorted({k, *(k >> shift for shift in range(1, 8) if k >> shift)}, reverse=True)

    def _found(self, setting: Setting, which: slice) -> Neighbors:
        question = read_request(
            self.catalog.snapshot, self._asked(setting), self.truth.queries.vectors[which], many=True
        )
        return find_neighbors(self.catalog, question)[0]

    def _asked(self, setting: Setting) -> SearchRequest:
        request = replace(self.request, columns=(), measuring=True)
        if self.truth.queries.own is None or setting.index is None:
            more = self.truth.queries.extra
            return setting.applied(replace(request, k=request.reach + more), request.reach + more)
        ef = None if setting.ef is None else setting.ef + 1
        changed: dict[str, Any] = {"k": request.reach + 1, "index": setting.index, "minimum_nprobes": setting.nprobes}
        changed |= {"refine_factor": setting.refine_factor, "ef": ef}
        given: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(request)}
        return _OneMore(**{**given, **changed})

    def timed(self, points: Sequence[Measured], turns: int = TURNS, seconds: float = TIMED_SECONDS) -> list[Measured]:
        """With the median time of single queries: every turn runs each setting once, all with the same query."""
        searches = [self._timer(point.setting) for point in points]
        for search_once in searches:
            search_once(0)  # loads what is to be cached
        started, taken = time.monotonic(), []
        for turn in range(turns):
            if turn >= LEAST_TURNS and time.monotonic() - started > seconds:
                break
            taken.append([search_once(turn) for search_once in searches])
        medians = np.median(np.array(taken), axis=0) * 1000 if points else ()
        return [replace(point, milliseconds=float(each)) for point, each in zip(points, medians, strict=True)]

    def _timer(self, setting: Setting) -> Callable[[int], float]:
        request = setting.applied(replace(self.request, columns=(), measuring=True), self.request.reach)
        vectors, catalog = self.truth.queries.vectors, self.catalog

        def search_once(turn: int) -> float:
            query = vectors[turn % len(vectors)]
            started = time.perf_counter()
            search(catalog, request, query)
            return time.perf_counter() - started

        return search_once
