"""A standalone Spark cluster on loopback, from the pyspark package: a master, workers, and their executors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.support import children

ROOT = Path(__file__).parents[2]
START_SECONDS = 120
EXECUTOR = "CoarseGrainedExecutorBackend"
# A core and an executor for each worker, and quick to notice that one is lost.
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
}


class StandaloneCluster:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.master = f"spark://127.0.0.1:{children.free_port()}"
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        port = self.master.rpartition(":")[2]
        self._master = self._spark_class(
            "master", "deploy.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0"
        )
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """Start a worker, and wait until the master has it."""
        number = len(self.workers)
        work = self._directory / f"work{number}"
        resources = ("--cores", "1", "--memory", "2g", "--work-dir", str(work), "--webui-port", "0")
        worker = self._spark_class(
            f"worker{number}", "deploy.worker.Worker", "--host", "127.0.0.1", *resources, self.master
        )
        self.workers.append(worker)
        log = self._directory / f"worker{number}.log"
        deadline = time.monotonic() + START_SECONDS
        while "Successfully registered with master" not in log.read_text("utf-8", "replace"):
            if worker.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"A Spark worker did not start: {children.tail(log)}")
            time.sleep(0.2)

    def executors(self) -> list[psutil.Process]:
        """The processes of executors, oldest first."""
        found: list[psutil.Process] = []
        for worker in self.workers:
            if worker.poll() is None:
                found += [
                    each for each in psutil.Process(worker.pid).children() if EXECUTOR in " ".join(each.cmdline())
                ]
        return sorted(found, key=lambda process: process.create_time())

    def kill_executor(self) -> None:
        """Kill the oldest executor; its worker starts another one."""
        self.executors()[0].kill()

    def kill_worker(self) -> None:
        """Kill a worker with its executors, as when a machine is lost."""
        worker = next(each for each in self.workers if each.poll() is None)
        family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
        for process in family:
            process.kill()
        worker.wait()

    def stop(self) -> None:
        children.stop([*self.workers, *([self._master] if self._master else [])])

    def _spark_class(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.{main}", *arguments]
        return children.start(command, self._directory / f"{name}.log", environment)


@contextmanager
def standalone_cluster(workers: int) -> Generator[StandaloneCluster]:
    directory = Path(tempfile.mkdtemp(prefix="pennon-spark-"))
    cluster = StandaloneCluster(directory)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def session_on(cluster: StandaloneCluster) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master(cluster.master).appName("pennon test-cluster")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
