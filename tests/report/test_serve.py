"""The served report answers this machine's browsers and nobody else."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

import pennon
from pennon.cli import main
from pennon.errors import TableNotFound
from pennon.report.serve import ReportServer
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


def test_a_port_that_is_taken(server: ReportServer, uri: str) -> None:
    result = CliRunner().invoke(main, ["report", uri, "--serve", "--port", str(server.server_port)])
    assert (result.exit_code, "cannot listen on port" in result.output) == (2, True)
