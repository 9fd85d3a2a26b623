"""The served report answers this machine's browsers and nobody else."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

import pennon
from pennon.cli import main
from pennon.errors import TableNotFound
from pennon.report.server import ReportServer
from tests.report.tables import append, write


@contextmanager
def serving(server: ReportServer) -> Iterator[ReportServer]:
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return write(tmp_path / "t.lance")


@pytest.fixture
def server(uri: str) -> Iterator[ReportServer]:
    table = pennon.open(uri)
    with serving(ReportServer(lambda: table.refresh().report())) as started:
        yield started


def ask(
    server: ReportServer, path: str = "/", host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers={"Host": host} if host is not None else {})
    response = connection.getresponse()
    body = response.read().decode("utf-8")
    connection.close()
    return response.status, dict(response.getheaders()), body


def test_it_listens_on_loopback_only(server: ReportServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


def test_other_addresses_of_this_machine_do_not_reach_it(server: ReportServer) -> None:
    found = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in (*found, "127.0.0.2"):
        if address != "127.0.0.1":
            with pytest.raises(OSError, match=r"refused|timed out|unreachable|assign"):
                socket.create_connection((str(address), server.server_port), timeout=2).close()


@pytest.mark.parametrize(
    "request_",
    [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost.\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_odd_requests_get_no_report(server: ReportServer, request_: str) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as raw:
        raw.sendall(request_.encode())
        answer = b""
        while piece := raw.recv(65_536):
            answer += piece
    assert b"k_idx" not in answer
    assert b" 403 " in answer or b" 404 " in answer or b"GET //" in request_.encode()


def test_every_visit_sees_the_newest_version(server: ReportServer, uri: str) -> None:
    status, headers, body = ask(server)
    assert (status, "version 2," in body) == (200, True)
    assert headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Refresh"] == "60"
    append(uri, 400)
    assert "version 3," in ask(server)[2]


@pytest.mark.parametrize("host", ["localhost", "LocalHost:80", "127.0.0.1:8000", "[::1]", "[::1]:8000"])
def test_names_of_this_machine_are_answered(server: ReportServer, host: str) -> None:
    assert ask(server, host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["", "example.com", "localhost.example.com", "127.0.0.1.example.com:80", "localhost:x", "::1", "evil@localhost"],
)
def test_foreign_names_are_refused(server: ReportServer, host: str) -> None:
    status, _, body = ask(server, host=host)
    assert (status, "k_idx" in body) == (403, False)


@pytest.mark.parametrize("path", ["/favicon.ico", "/index.html", "/?x=1", "/../etc/passwd", "/.."])
def test_there_is_nothing_else(server: ReportServer, path: str) -> None:
    status, headers, body = ask(server, path)
    assert (status, "k_idx" in body, headers["X-Content-Type-Options"]) == (404, False, "nosniff")


def test_other_methods(server: ReportServer) -> None:
    assert ask(server, method="HEAD")[::2] == (200, "")
    assert ask(server, method="POST")[0] == 501


def test_a_table_that_went_away_is_an_error_without_details() -> None:
    def gone() -> str:
        raise TableNotFound("s3://key:secret@bucket is gone", "Check the address")

    with serving(ReportServer(gone)) as server:
        status, _, body = ask(server)
    assert (status, "TableNotFound. Check the address" in body, "secret" in body) == (500, True, False)


def test_an_error_nobody_foresaw_is_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("signed with secret")

    with serving(ReportServer(broken)) as server:
        status, _, body = ask(server)
    assert (status, "RuntimeError" in body, "secret" in body) == (500, True, False)
    assert capsys.readouterr() == ("", "")


def test_a_port_that_is_taken(server: ReportServer, uri: str) -> None:
    result = CliRunner().invoke(main, ["report", uri, "--serve", "--port", str(server.server_port)])
    assert (result.exit_code, "cannot listen on port" in result.output) == (2, True)
