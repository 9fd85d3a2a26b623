"""Processes that write to, maintain and read one table, all at once.

`python -m tests.faults.soak ROLE URI NUMBER SECONDS` prints at its end what it has done. A `writer` appends, deletes,
updates and merges rows of its own and tells what is left of them; `stock` maintains as stock Lance does, `maintain` and
`optimize` as Pennon does (`... on-spark`: on a Spark of its own); a `reader` compares every answer with a scan of the
same version; `drop` drops the index `gone`.

Each is a process of its own, as users of one table are; `tests/test_threads.py` has the threads of one process.
"""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import click
import lance
import numpy as np
import pyarrow as pa

import pennon
from pennon.errors import CommitConflict, CoverageWarning
from pennon.index.vector.vectors import to_lists
from pennon.jobs.maintain import MaintenancePolicy
from pennon.testing.engines import in_process

DIM = 8
# Ids of one writer begin here, times its number.
OWN = 1_000_000
ATTEMPTS = 40
FILTERS = ("k = 7", "k between 3 and 5", "k > 38", "k in (1, 19, 400)")

Said = dict[str, Any]


def rows(ids: list[int], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array(rng.integers(0, 40, len(ids))),
            "v": to_lists(rng.standard_normal((len(ids), DIM), dtype=np.float32)),
        }
    )


def writer(uri: str, number: int, seconds: float) -> Said:
    """One step after the other; what the rows must be is kept beside."""
    chance = random.Random(number)
    low, high = number * OWN, (number + 1) * OWN
    mine = f"id >= {low} and id < {high}"
    next_id, model, steps = low, dict[int, int](), 0
    for _ in until(seconds):
        seed = chance.randrange(1 << 30)
        match chance.choice(["append", "append", "delete", "update", "merge"]):
            case "append":
                count = chance.randrange(5, 80)
                new = rows(list(range(next_id, next_id + count)), seed)
                retried(lambda new=new: lance.write_dataset(new, uri, mode="append"))
                next_id += count
                model |= dict(zip(new["id"].to_pylist(), new["k"].to_pylist(), strict=True))
            case "delete":
                modulus, rest = chance.randrange(7, 30), chance.randrange(7)
                gone = f"{mine} and id % {modulus} = {rest}"
                retried(lambda gone=gone: lance.dataset(uri).delete(gone))
                model = {i: k for i, k in model.items() if i % modulus != rest}
            case "update":
                modulus, rest = chance.randrange(7, 30), chance.randrange(7)
                where = f"{mine} and id % {modulus} = {rest}"
                retried(lambda where=where: lance.dataset(uri).update({"k": "k + 1"}, where=where))
                model = {i: k + (i % modulus == rest) for i, k in model.items()}
            case _:
                ids = sorted({max(low, next_id - chance.randrange(1, 60)) for _ in range(10)} | {next_id})
                new = rows(ids, seed)

                def merge(new: pa.Table = new) -> None:
                    into = lance.dataset(uri).merge_insert("id")
                    into.when_matched_update_all().when_not_matched_insert_all().execute(new)

                retried(merge)
                next_id += 1
                model |= dict(zip(ids, new["k"].to_pylist(), strict=True))
        steps += 1
    return {"steps": steps, "rows": sorted(model.items())}


def stock(uri: str, number: int, seconds: float) -> Said:
    """Stock's own maintenance, but for what corrupts its B-trees: compacting at once while moves are outstanding."""
    chance = random.Random(number)
    steps = given_up = 0
    for _ in until(seconds):
        dataset = lance.dataset(uri)
        stable = dataset.has_stable_row_ids
        try:
            if chance.random() < 0.5:
                dataset.optimize.optimize_indices()
            else:
                dataset.optimize.compact_files(target_rows_per_fragment=400, defer_index_remap=not stable)
            steps += 1
        except (OSError, RuntimeError, ValueError):
            given_up += 1
        time.sleep(chance.uniform(0.5, 2.0))
    return {"steps": steps, "given_up": given_up}


def maintain(uri: str, number: int, seconds: float) -> Said:
    stable = lance.dataset(uri).has_stable_row_ids
    policy = MaintenancePolicy(
        remap="immediate" if stable else "deferred", min_fragments_to_compact=3, max_reuse_versions=2
    )
    return _kept(number, seconds, lambda: pennon.open(uri).maintain(policy))


def optimize(uri: str, number: int, seconds: float) -> Said:
    return _kept(number, seconds, lambda: pennon.open(uri).optimize_indices(index_names=["k_idx", "v_idx"]))


def _kept(number: int, seconds: float, job: Callable[[], Any]) -> Said:
    """A conflict that does not pass is a fair end of a job; nothing else is."""
    chance, steps, given_up = random.Random(number), 0, 0
    for _ in until(seconds):
        try:
            job()
            steps += 1
        except CommitConflict:
            given_up += 1
        time.sleep(chance.uniform(0.2, 1.0))
    return {"steps": steps, "given_up": given_up}


def drop(uri: str, _: int, seconds: float) -> Said:
    """In the middle of it all; the index must not come back."""
    time.sleep(seconds / 4)
    table = pennon.open(uri)
    table.drop_index("gone")
    return {"version": table.version}


def reader(uri: str, number: int, seconds: float) -> Said:
    rng, reads = np.random.default_rng(number), Counter[str]()
    for _ in until(seconds):
        table = pennon.open(uri)
        pinned = lance.dataset(uri, version=table.version)
        for condition in FILTERS:
            scanner = pinned.scanner(columns=["id"], filter=condition, use_scalar_index=False)
            expected = sorted(scanner.to_table()["id"].to_pylist())
            found = sorted(table.scan(condition, ["id"])["id"].to_pylist())
            assert found == expected, f"version {table.version}: {condition}"
            reads["filters"] += 1
        data = pinned.to_table(columns=["id", "v"])
        vectors = np.stack(data["v"].combine_chunks().to_numpy(zero_copy_only=False))
        query = rng.standard_normal(DIM).astype(np.float32)
        exact = np.sort(((vectors - query) ** 2).sum(axis=1))[:5]
        nearest = table.search("v", query, 5, nprobes=1000, columns=["id"])["_distance"].to_numpy()
        np.testing.assert_allclose(np.sort(nearest), exact, rtol=1e-4, err_msg=f"version {table.version}")
        reads["searches"] += 1
    return {"reads": reads.total()}


def until(seconds: float) -> Iterator[None]:
    """Over and over, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def retried(job: Callable[[], Any]) -> None:
    for attempt in range(ATTEMPTS):
        try:
            job()
            return
        except (OSError, RuntimeError) as error:
            if attempt == ATTEMPTS - 1 or not any(word in str(error) for word in ("onflict", "etry", "oncurrent")):
                raise
            time.sleep(random.uniform(0.0, 0.05 * (attempt + 1)))


ROLES = {role.__name__: role for role in (writer, stock, maintain, optimize, drop, reader)}

if __name__ == "__main__":
    role, uri, number, seconds, *how = sys.argv[1:]
    # What was lost to a writer is said, and covered by a later pass.
    warnings.simplefilter("ignore", CoverageWarning)
    with nullcontext() if how == ["on-spark"] else in_process():
        click.echo(json.dumps(ROLES[role](uri, int(number), float(seconds))))
