"""Processes that write to and maintain one table all at once, without Pennon.

`python -m tests.faults.soak writer URI NUMBER SECONDS` appends, deletes, updates and merges rows of its own and prints
what is left of them; `... stock URI NUMBER SECONDS` optimizes and compacts as stock Lance does.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import click
import lance
import numpy as np
import pyarrow as pa

from pennon.index.vector.vectors import to_lists

DIM = 8
# Ids of one writer begin here, times its number.
OWN = 1_000_000
ATTEMPTS = 40


def rows(ids: list[int], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array(rng.integers(0, 40, len(ids))),
            "v": to_lists(rng.standard_normal((len(ids), DIM), dtype=np.float32)),
        }
    )


def writer(uri: str, number: int, seconds: float) -> dict[str, Any]:
    """One step after the other; what the rows must be is kept beside."""
    chance = random.Random(number)
    low, high = number * OWN, (number + 1) * OWN
    mine = f"id >= {low} and id < {high}"
    next_id, model, steps = low, dict[int, int](), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
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


def stock(uri: str, number: int, seconds: float) -> dict[str, Any]:
    """Stock's own maintenance, but for what corrupts its B-trees: compacting at once while moves are outstanding."""
    chance = random.Random(number)
    end, steps, given_up = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
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


def retried(job: Callable[[], Any]) -> None:
    for attempt in range(ATTEMPTS):
        try:
            job()
            return
        except (OSError, RuntimeError) as error:
            if attempt == ATTEMPTS - 1 or not any(word in str(error) for word in ("onflict", "etry", "oncurrent")):
                raise
            time.sleep(random.uniform(0.0, 0.05 * (attempt + 1)))


if __name__ == "__main__":
    role, uri, number, seconds = sys.argv[1:]
    run = {"writer": writer, "stock": stock}[role]
    click.echo(json.dumps(run(uri, int(number), float(seconds))))
