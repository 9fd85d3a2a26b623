"""What another pylance does with a table. Run as a script in a process of its own, with that pylance on its path.

Requests come in as a JSON list, answers go out as one; an error is an answer too. Nothing of Pennon is imported, so
what is seen here is what a reader without Pennon sees.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import lance
import numpy as np
import pyarrow as pa


def version(_: dict[str, Any]) -> str:
    return lance.__version__


def filters(request: dict[str, Any]) -> list[dict[str, Any]]:
    """For each filter the ids found, as rows, as a count and by a scan, and whether an index was used."""
    found: list[dict[str, Any]] = []
    for filter in request["filters"]:
        dataset = lance.dataset(request["uri"])
        scanner = dataset.scanner(columns=["id"], filter=filter)
        used = "ScalarIndexQuery" in scanner.explain_plan()
        ids = sorted(scanner.to_table()["id"].to_pylist())
        scan = dataset.scanner(columns=["id"], filter=filter, use_scalar_index=False)
        scanned = sorted(scan.to_table()["id"].to_pylist())
        count = dataset.count_rows(filter=filter)
        found.append({"filter": filter, "ids": ids, "count": count, "scanned": scanned, "used": used})
    return found


def nearest(request: dict[str, Any]) -> dict[str, Any]:
    """The ids of the nearest rows of each query, and whether an index was used: a plan does not depend on the query."""
    dataset = lance.dataset(request["uri"])
    ids: list[list[int]] = []
    plan = ""
    for query in np.array(request["queries"], dtype=np.float32):
        asked = {"column": request["column"], "q": query, "k": request["k"], "nprobes": request["nprobes"]}
        scanner = dataset.scanner(columns=["id", "_distance"], nearest=asked | request.get("options", {}))
        plan = plan or scanner.explain_plan()
        ids.append(scanner.to_table()["id"].to_pylist())
    return {"ids": ids, "used": "ANN" in plan}


def write(request: dict[str, Any]) -> int:
    """Rows from an Arrow file, written or appended."""
    with pa.OSFile(request["rows"], "rb") as file:
        rows = pa.ipc.open_file(file).read_all()
    return lance.write_dataset(rows, request["uri"], **request.get("options", {})).version


def scalar_index(request: dict[str, Any]) -> None:
    lance.dataset(request["uri"]).create_scalar_index(request["column"], "BTREE", name=request["name"])


def vector_index(request: dict[str, Any]) -> None:
    dataset = lance.dataset(request["uri"])
    dataset.create_index(request["column"], request["kind"], name=request["name"], **request["options"])


def delete(request: dict[str, Any]) -> None:
    lance.dataset(request["uri"]).delete(request["where"])


def update(request: dict[str, Any]) -> None:
    lance.dataset(request["uri"]).update(request["values"], where=request["where"])


def optimize(request: dict[str, Any]) -> None:
    lance.dataset(request["uri"]).optimize.optimize_indices(**request.get("options", {}))


def compact(request: dict[str, Any]) -> None:
    lance.dataset(request["uri"]).optimize.compact_files(**request.get("options", {}))


VERBS: dict[str, Callable[[dict[str, Any]], Any]] = {
    verb.__name__: verb
    for verb in (version, filters, nearest, write, scalar_index, vector_index, delete, update, optimize, compact)
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"answer": VERBS[request["verb"]](request)}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of the Rust code is no Exception
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    json.dump([answer(request) for request in json.load(sys.stdin)], sys.stdout)
