"""A standalone Spark cluster with two workers, and a real S3 server: all that a cluster has but the network.

`make test-cluster` runs these tests; other runs leave them out. Each area is a module, and takes the fixtures `spark`,
`store` and `cluster`; a verb that works on Spark gets a module here too.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
import pytest

import pennon
from tests.support.real_s3 import BUCKET, RealS3, real_s3
from tests.support.standalone import StandaloneCluster, session_on, standalone_cluster

collect_ignore_glob = [] if os.environ.get("PENNON_TEST_CLUSTER") else ["test_*"]


@dataclass(frozen=True)
class Store:
    """Tables in a bucket of the server."""

    server: RealS3
    spark: Any

    def uri(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def write(self, name: str, rows: pa.Table, **options: Any) -> str:
        lance.write_dataset(rows, self.uri(name), storage_options=self.server.storage_options, **options)
        return self.uri(name)

    def dataset(self, name: str) -> lance.LanceDataset:
        """As pylance opens it."""
        return lance.dataset(self.uri(name), storage_options=self.server.storage_options)

    def table(self, name: str, **options: Any) -> pennon.Table:
        """As Pennon opens it, on the cluster unless another engine is given."""
        chosen = options if "engine" in options else {"spark": self.spark, **options}
        return pennon.open(self.uri(name), storage_options=self.server.storage_options, **chosen)

    def scan(self, name: str, filter: str) -> list[int]:
        """The oracle: ids of the rows that a scan without indices finds."""
        scanner = self.dataset(name).scanner(filter=filter, columns=["id"], use_scalar_index=False)
        return sorted(scanner.to_table()["id"].to_pylist())


@pytest.fixture(scope="session")
def server() -> Iterator[RealS3]:
    with real_s3() as started:
        yield started


@pytest.fixture(scope="session")
def cluster() -> Iterator[StandaloneCluster]:
    with standalone_cluster(workers=2) as started:
        yield started


@pytest.fixture(scope="session")
def spark(cluster: StandaloneCluster) -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        # Libraries with threads warn about the fork by which the JVM is started.
        warnings.filterwarnings("ignore", ".*fork")
        session = session_on(cluster)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def store(server: RealS3, spark: Any) -> Store:
    return Store(server, spark)


@pytest.fixture(scope="session", autouse=True)
def requests_in_the_summary(server: RealS3, tally: Callable[[str, int], None]) -> Iterator[None]:
    yield
    tally("requests to the S3 server", len(server.requests()))
