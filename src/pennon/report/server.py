"""The report, served live to browsers on this machine: every request draws the newest version again."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from pennon.errors import PennonError
from pennon.report.page import POLICY

LOOPBACK = "127.0.0.1"
HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
REFRESH_SECONDS = 60
# A browser opens connections that it may never use.
IDLE_SECONDS = 30


class ReportServer(ThreadingHTTPServer):
    """Not started yet: `serve_forever` does. Port 0 takes a free one; `url` knows which."""

    daemon_threads = True

    def __init__(self, render: Callable[[], str], port: int = 0) -> None:
        self.render = render
        self.rendering = Lock()  # a table's handle is moved by one request at a time
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is nothing to print a trace of, which might also show what opens the table."""

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = IDLE_SECONDS
    server_version, sys_version = "pennon", ""

    def do_GET(self) -> None:
        status, content = self._answer()
        body = content.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        if status in (200, 500):
            self.send_header("Refresh", str(REFRESH_SECONDS))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name the base class looks for

    def _answer(self) -> tuple[int, str]:
        if not _is_local(self.headers.get("Host", "")):
            # A page elsewhere may point a name of its own at this address; the browser then sends that name here.
            return 403, _message("This report answers to localhost only.")
        if self.path != "/":
            return 404, _message("There is nothing here. The report is at /.")
        try:
            with self.server.rendering:
                return 200, self.server.render()
        except PennonError as error:
            # The problem itself may name what opens the table.
            return 500, _message(f"The report cannot be drawn now: {type(error).__name__}. {error.remedy}")
        except Exception as error:  # noqa: BLE001  after any error the server goes on
            return 500, _message(f"The report cannot be drawn now: {type(error).__name__}.")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not reported to the user."""


def _is_local(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, ""
    return name.lower() in HOSTS and (not port or port.isdecimal())


def _message(text: str) -> str:
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Pennon</title><p>{escape(text)}</p></html>'
