"""What verbs cost on an object store, counted by the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pennon.index.cache import SHARED_CACHE
from tests.cluster.conftest import Store
from tests.cluster.tables import rows

NAME = "requests.lance"
FRAGMENTS = 20


def test_requests(store: Store, tally: Callable[[str, int], None]) -> None:
    """A lookup reads a few pages, whatever the number of fragments. A build reads every fragment a few times."""
    store.write(NAME, rows(FRAGMENTS * 200), max_rows_per_file=200)

    def count(what: str, action: Callable[[], object]) -> Counter[str]:
        requests = store.server.counted(NAME, action)
        for method in ("GET", "PUT", "HEAD"):
            tally(f"{method} of {what}", requests[method])
        return requests

    def lookup() -> None:
        SHARED_CACHE.clear()
        table = store.table(NAME, engine="local")
        assert sorted(table.scan("k = 77", ["id"])["id"].to_pylist()) == found

    found = store.scan(NAME, "k = 77")
    build = count("a build", lambda: store.table(NAME).create_index("k", rows_per_task=400))
    assert FRAGMENTS <= build["GET"] <= 12 * FRAGMENTS
    assert build["PUT"] <= 12

    [index] = store.table(NAME).indices()
    cold = count("a cold lookup", lookup)
    hits = store.server.counted("", lambda: store.scan(NAME, "k = 77"))
    assert cold["PUT"] == 0
    # The manifest, the index's lookup and page, and the fragments of the rows that were found.
    assert cold["GET"] <= 12 + 4 * min(FRAGMENTS, len(found))
    assert cold["GET"] < hits["GET"], "fewer requests than a scan"
    assert index.coverage == 1.0


def test_the_server_counts_what_a_result_reports(store: Store) -> None:
    """A result's count of reads, summed over executors, agrees with the log: a retried request may be there twice."""
    name = "counted.lance"
    store.write(name, rows(3000), max_rows_per_file=300)
    before = len(store.server.requests(f"{name}/data"))
    work = store.table(name).create_index("k", rows_per_task=300).work
    data = store.server.requests(f"{name}/data")[before:]
    gets = [request for request in data if request.method == "GET"]
    assert gets
    assert work.reads >= len(gets) * 0.5
    assert work.bytes_read >= 3000 * 8
