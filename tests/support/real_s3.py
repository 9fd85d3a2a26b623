"""A real S3 server on loopback: Ceph's RADOS Gateway from Debian's packages, unpacked and not installed.

It has conditional writes, byte ranges and multipart uploads, and its log has a line for every request. Objects are in
memory, or in a file of a given size, and end with it. The packages, about 64 MB, are downloaded once, to `.real-s3` in
the repository.

`python -m tests.support.real_s3 [GiB of a file]` runs one until it is interrupted, and prints how to reach it, and its
log, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import children

PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-mgr", "ceph-common")
HOME = Path(__file__).parents[2] / ".real-s3"
KEY, SECRET = "ACCESSKEY0", "SECRETKEY0"
BUCKET = "pennon-test"
START_SECONDS = 120
MEMORY_BYTES = 4 << 30
# `"GET /bucket/key?list HTTP/1.1" 206 4096`: method, path, status, bytes.
REQUEST = re.compile(r'beast: .* "([A-Z]+) (\S+) HTTP/[\d.]+" (\d+) (\d+)')

CONFIGURATION = """
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{monitor}
ms bind msgr2 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = {objects}
osd class update on start = false
osd crush update on start = false
memstore device bytes = {size}
bluestore block size = {size}
bluestore block create = true
osd memory target = 2147483648
mon allow pool size one = true
mon mgr beacon grace = 10000
mon data avail crit = 1
mon max pg per osd = 1000
mon data = {data}/mon
osd data = {data}/osd
run dir = {data}/run
admin socket = {data}/run/$name.asok
pid file = {data}/run/$name.pid
log file = {data}/log/$name.log
crash dir = {data}/log
plugin dir = {lib}/ceph
erasure code dir = {lib}/ceph/erasure-code
osd class dir = {lib}/rados-classes
[client.rgw]
log file = {data}/log/rgw.log
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {data}/rgw
rgw dns name = 127.0.0.1
rgw enable usage log = false
"""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    status: int
    # Of the object, or of the range that was read.
    size_bytes: int


@dataclass(frozen=True)
class RealS3:
    endpoint: str
    log: Path

    @property
    def storage_options(self) -> dict[str, str]:
        """What pylance and Pennon open it with."""
        return {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_endpoint": self.endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
        }

    def requests(self, prefix: str = "") -> list[Request]:
        """All requests so far for objects whose key starts so."""
        self._settle()
        found = REQUEST.findall(self.log.read_text("utf-8", "replace"))
        requests = (Request(method, path, int(status), int(sent)) for method, path, status, sent in found)
        return [request for request in requests if request.path.startswith(f"/{BUCKET}/{prefix}")]

    def counted(self, prefix: str, action: Callable[[], object]) -> Counter[str]:
        """The requests that an action makes, by method."""
        before = len(self.requests(prefix))
        action()
        return Counter(request.method for request in self.requests(prefix)[before:])

    def _settle(self) -> None:
        """Wait until the log has all requests: it is written by a thread, in order. A request of ours ends it."""
        mark = uuid.uuid4().hex
        with suppress(urllib.error.HTTPError):  # there is no such bucket
            urllib.request.urlopen(f"{self.endpoint}/{mark}", timeout=30).close()
        deadline = time.monotonic() + 30
        while mark not in self.log.read_text("utf-8", "replace"):
            if time.monotonic() > deadline:
                raise RuntimeError("The log of the S3 server lacks requests that it has answered")
            time.sleep(0.05)


@contextmanager
def real_s3(disk_bytes: int | None = None) -> Generator[RealS3]:
    """A server with an empty bucket; its objects are in memory, unless it gets a file of a size."""
    root = unpacked(HOME)
    # A short path: those of unix sockets are limited.
    data = Path(tempfile.mkdtemp(prefix="pennon-s3-"))
    running: list[subprocess.Popen[bytes]] = []
    try:
        yield _start(root, data, running, disk_bytes)
    finally:
        children.stop(running[::-1])
        shutil.rmtree(data, ignore_errors=True)


def unpacked(home: Path) -> Path:
    """The root of the unpacked packages."""
    root, done = home / "root", home / ".unpacked"
    if done.exists():
        return root
    if shutil.which("apt-get") is None:
        raise RuntimeError("The S3 server of these tests comes from Debian's packages: run them on Debian or Ubuntu")
    shutil.rmtree(home, ignore_errors=True)
    packages = home / "packages"
    packages.mkdir(parents=True)
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    plan = subprocess.run(
        ["apt-get", "install", "--dry-run", *PACKAGES], check=True, capture_output=True, text=True
    ).stdout
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    subprocess.run(["apt-get", "download", "-qq", *names], check=True, cwd=packages)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    shutil.rmtree(packages)
    done.touch()
    return root


def _start(root: Path, data: Path, running: list[subprocess.Popen[bytes]], disk_bytes: int | None) -> RealS3:
    for name in ("osd", "run", "log", "rgw"):
        (data / name).mkdir()
    [lib] = (path.parent for path in root.glob("usr/lib/*/ceph"))
    port, monitor, fsid = children.free_port(), children.free_port(), str(uuid.uuid4())
    configuration = data / "ceph.conf"
    objects, size = ("memstore", MEMORY_BYTES) if disk_bytes is None else ("bluestore", disk_bytes)
    configuration.write_text(
        CONFIGURATION.format(fsid=fsid, monitor=monitor, port=port, data=data, lib=lib, objects=objects, size=size)
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, (lib, lib / "ceph", root / "usr/lib", root / "lib" / lib.name))),
        "PATH": f"{root / 'usr/bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
    }

    def call(*command: str) -> None:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=START_SECONDS
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")

    def administer(*words: str) -> None:
        # By Debian's own Python, which the client is built for.
        call("/usr/bin/python3", str(root / "usr/bin/ceph"), "-c", str(configuration), *words)

    def serve(name: str, *command: str) -> None:
        full = [command[0], "-c", str(configuration), "-f", *command[1:]]
        running.append(children.start(full, data / "log" / f"{name}.out", environment))

    monitors = str(data / "monmap")
    call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:127.0.0.1:{monitor}]", monitors, "--clobber")
    call("ceph-mon", "-c", str(configuration), "-i", "a", "--mkfs", "--monmap", monitors)
    serve("mon", "ceph-mon", "-i", "a")
    disk = str(uuid.uuid4())
    administer("osd", "new", disk)
    administer("osd", "crush", "add", "osd.0", "1.0", "root=default", "host=localhost")
    call("ceph-osd", "-c", str(configuration), "-i", "0", "--mkfs", "--osd-uuid", disk)
    serve("osd", "ceph-osd", "-i", "0")
    serve("rgw", "radosgw", "-n", "client.rgw")
    server = RealS3(f"http://127.0.0.1:{port}", data / "log" / "rgw.log")
    _wait(server.endpoint, running[-1], data / "log" / "rgw.out")
    user = ("user", "create", "--uid=test", "--display-name=test", f"--access-key={KEY}", f"--secret={SECRET}")
    call("radosgw-admin", "-c", str(configuration), "-n", "client.rgw", *user)
    _make_bucket(server)
    return server


def _wait(endpoint: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # an answer
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"The S3 server did not start: {children.tail(log)}")


def _make_bucket(server: RealS3) -> None:
    # boto3 comes with moto, and makes buckets where pylance cannot.
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)


if __name__ == "__main__":
    with real_s3(int(sys.argv[1]) << 30 if len(sys.argv) > 1 else None) as started:
        reached = {"bucket": BUCKET, "storage_options": started.storage_options, "log": str(started.log)}
        print(json.dumps(reached), flush=True)  # noqa: T201
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            pass
