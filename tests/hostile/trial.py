"""A damaged table asked everything: right answers, with or without a warning, or errors by name, and nothing else."""

from __future__ import annotations

import shutil
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import pennon
from pennon.errors import DamagedIndexWarning, PennonError
from pennon.index.cache import SHARED_CACHE
from pennon.testing.duplicates import pairs_of, planned
from pennon.testing.engines import in_process
from tests.hostile.mutations import Damage, copied, damage
from tests.hostile.victims import DIM, FILTERS, K, Victim, as_bits, sorted_ids, stock_rows, text_answers

# Of every outcome that is right, how it came about; all others are failures.
RIGHT = ("answered", "warned", "refused", "as stock", "undetectable")


@dataclass
class Trial:
    """What became of one damaged table. Questions that got no right answer are in `faults`."""

    victim: Victim
    uri: str
    damage: Damage
    rng: np.random.Generator
    refused: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    lies: int = 0
    as_stock: int = 0
    warned: bool = False
    _stock: lance.LanceDataset | None = None

    @property
    def outcome(self) -> str:
        if self.faults:
            return "wrong"
        if self.lies:
            return "undetectable"
        if self.as_stock:
            return "as stock"
        if self.warned:
            return "warned"
        return "refused" if self.refused else "answered"

    def run(self) -> None:
        SHARED_CACHE.clear()
        with warnings.catch_warnings(record=True) as told, in_process():
            warnings.simplefilter("always")
            table = self._ask("open", lambda: pennon.open(self.uri))
            if table is not None:
                self._ask_all(table)
        self.warned = any(issubclass(each.category, DamagedIndexWarning) for each in told)

    def _ask_all(self, table: pennon.Table) -> None:
        self._ask("indices", table.indices)
        self._ask("fragment_reuse", table.fragment_reuse)
        for filter in self.rng.permutation(np.array(FILTERS))[:6]:
            self._filtered(table, str(filter))
        for name in self._searched():
            self._search(table, name)
        if self.victim.texts:
            self._words()
        if self.victim.name == "others":
            self._others(table)
        if self.victim.indices and self.rng.random() < 0.1:
            self._ask("near-duplicates", lambda: pairs_of(planned(self.uri, 0.1)))
            self._ask("tune", lambda: table.tune("v", 0.9, 3, sample=10, index=self.victim.indices[0]))
        if self.rng.random() < 0.3:
            self._ask("report", table.report)
            self._ask("plan_optimize", table.plan_optimize)
            self._ask("plan_compact", table.plan_compact)
        if self.rng.random() < 0.2:
            self._ask("audit", lambda: table.audit(recall_queries=2))
        if self.rng.random() < 0.1:
            self._ask("clean_orphans", lambda: table.clean_orphans(dry_run=True))

    def _searched(self) -> list[str]:
        indices = list(self.victim.indices)
        if self.damage.index in indices:
            return [self.damage.index]
        return [str(name) for name in self.rng.permutation(np.array(indices))[:2]] if indices else []

    def _filtered(self, table: pennon.Table, filter: str) -> None:
        expected = self.victim.rows[filter]
        found = self._ask(f"scan {filter}", lambda: table.scan(filter, ["id"]))
        if found is not None:
            ids = sorted_ids(found)
            if ids != expected:
                self._differs(f"scan {filter}: {len(ids)} rows, not {len(expected)}", lambda: self._fits(ids, filter))
        count = self._ask(f"count {filter}", lambda: table.count(filter))
        if count is not None and count != len(expected):
            self._differs(f"count {filter}: {count}, not {len(expected)}", lambda: self._counts(count, filter))
        self._ask(f"explain {filter}", lambda: table.explain(filter, analyze=True))

    def _search(self, table: pennon.Table, name: str) -> None:
        query = self.victim.vectors[self.rng.integers(len(self.victim.vectors))]
        query = (query + 0.1 * self.rng.standard_normal(DIM)).astype(np.float32)
        options: dict[str, Any] = {"index": name, "nprobes": 3, "columns": ["id"]}
        for refine in (20, None):
            asked: dict[str, Any] = {**options, "refine_factor": refine}
            found = self._ask(f"search {name}", lambda asked=asked: table.search("v", query, K, **asked))
            if found is not None:
                problem = self._wrong_neighbors(found, query, exact=refine is not None, flat=name == "IVF_FLAT")
                if problem:
                    self._differs(f"search {name}: {problem}", lambda: not self._same_rows())
        self._ask(f"filtered search {name}", lambda: table.search("v", query, K, filter="id % 2 = 0", **options))
        self._ask(f"default search {name}", lambda: table.search("v", query, K, filter="id % 2 = 0", index=name))
        self._within(table, name, query)
        batch = np.stack([query] * 12)
        self._ask(f"batch {name}", lambda: table.search_batch("v", batch, K, nprobes=3, columns=["id"]))
        self._ask(f"explain {name}", lambda: table.explain_search("v", query, K, index=name))

    def _within(self, table: pennon.Table, name: str, query: np.ndarray) -> None:
        """All rows within a distance, which an index may rule out."""
        every = np.sort(((self.victim.vectors.astype(np.float64) - query) ** 2).sum(axis=1))
        bounds = (None, float(every[30:32].mean()))
        asked: dict[str, Any] = {"distance_range": bounds, "index": name, "columns": ["id"]}
        found = self._ask(f"within a distance {name}", lambda: table.search("v", query, None, **asked))
        if found is not None and found.num_rows != 31 and every[31] - every[30] > 1e-3:
            self._differs(f"within a distance {name}: {found.num_rows} rows", lambda: not self._same_rows())

    def _others(self, table: pennon.Table) -> None:
        """Vectors of bits, and several a row."""
        at = int(self.rng.integers(len(self.victim.vectors)))
        vector, options = self.victim.vectors[at], {"nprobes": 3, "columns": ["id"]}
        found = self._ask("search bits", lambda: table.search("b", as_bits(vector[None])[0], 1, **options))
        if found is not None and found["_distance"].to_pylist() != [0.0]:
            self._differs(f"search bits: {found.to_pylist()}", lambda: not self._same_rows())
        found = self._ask("search several", lambda: table.search("m", vector[None], 1, **options))
        if found is not None and found["id"].to_pylist() != [self.victim.live[at]]:
            self._differs(f"search several: {found.to_pylist()}", lambda: not self._same_rows())
        self._ask("batch of bits", lambda: table.search_batch("b", as_bits(self.victim.vectors[:12]), 3, **options))
        self._ask("batch of several", lambda: table.search_batch("m", self.victim.vectors[:12, None], 3, **options))

    def _words(self) -> None:
        """The files themselves are asked; a search of the table decides what a refusal leads to."""
        found = self._ask("words", lambda: text_answers(self.uri))
        if found is not None and not _same_scores(found, self.victim.texts):
            self._differs("words: other rows or scores", lambda: not self._same_rows())

    def _wrong_neighbors(self, found: pa.Table, query: np.ndarray, *, exact: bool, flat: bool) -> str | None:
        ids, distances = found["id"].to_numpy(), found["_distance"].to_numpy()
        if len(ids) != K or len(np.unique(ids)) != K:
            return f"{len(np.unique(ids))} different rows of {len(ids)}"
        if not np.isin(ids, self.victim.live).all():
            return "rows that are deleted"
        every = ((self.victim.vectors.astype(np.float64) - query) ** 2).sum(axis=1)
        order = np.argsort(self.victim.live)
        own = every[order[np.searchsorted(self.victim.live, ids, sorter=order)]]
        if (exact or flat) and not np.allclose(distances, own, rtol=1e-3, atol=1e-3):
            return "wrong distances"
        if flat and not np.allclose(distances, np.sort(every)[:K], rtol=1e-3, atol=1e-3):
            return "not the nearest"
        return None

    def _ask(self, question: str, answer: Callable[[], Any]) -> Any:
        try:
            return answer()
        except PennonError as error:
            self.refused.append(f"{question}: {type(error).__name__}: {error}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a Rust panic is no Exception
            place = "".join(traceback.format_tb(error.__traceback__)[-3:])
            self.faults.append(f"{question}: {type(error).__name__}: {str(error)[:300]}\n{place}")
        return None

    def _differs(self, problem: str, stock_agrees: Callable[[], bool]) -> None:
        """Where the table itself is another now, stock says what it holds."""
        if self.damage.of_table:
            try:
                if stock_agrees():
                    self.as_stock += 1
                    return
            except BaseException as error:  # noqa: BLE001 - nor does stock promise anything
                problem += f"; stock: {str(error)[:100]}"
        if self.damage.may_lie:
            self.lies += 1
        else:
            self.faults.append(problem)

    def _fits(self, ids: list[Any], filter: str) -> bool:
        known, found = self._by_scan(filter)
        return len(set(ids)) == len(ids) and known <= set(ids) <= found

    def _counts(self, count: int, filter: str) -> bool:
        known, found = self._by_scan(filter)
        return len(known) <= count <= len(found)

    def _by_scan(self, filter: str) -> tuple[set[Any], set[Any]]:
        """What a scan finds, without and with rows that were deleted when the indices were built, and are not any more:
        no index can know those."""
        found = set(stock_rows(self._by_stock(), filter))
        return found & set(self.victim.live.tolist()), found

    def _by_stock(self) -> lance.LanceDataset:
        if self._stock is None:
            self._stock = lance.dataset(self.uri)
        return self._stock

    def _same_rows(self) -> bool:
        ids = self._by_stock().to_table(columns=["id"])["id"].to_numpy()
        return bool(np.array_equal(np.sort(ids), np.sort(self.victim.live)))


def _same_scores(found: dict[str, dict[int, float]], expected: dict[str, dict[int, float]]) -> bool:
    return all(
        found[query].keys() == rows.keys() and np.allclose([*found[query].values()], [*rows.values()], atol=1e-4)
        for query, rows in expected.items()
        if found[query] or rows
    )


def run_trial(victim: Victim, seed: int, directory: Path, begun: Callable[[Damage], object] = lambda _: None) -> Trial:
    """`begun` is told of the damage before anything is asked, which may be the end of the process."""
    rng = np.random.default_rng(seed)
    root = directory / f"{victim.name}-{seed}.lance"
    shutil.rmtree(root, ignore_errors=True)
    try:
        done = damage(copied(Path(victim.uri), root), rng, digests=victim.digests)
        begun(done)
        trial = Trial(victim, str(root), done, rng)
        trial.run()
        return trial
    finally:
        shutil.rmtree(root, ignore_errors=True)
