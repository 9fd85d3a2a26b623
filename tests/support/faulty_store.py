"""An S3 server on loopback over a directory, which fails in the ways that stores and networks fail."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "bucket"
ANSWERS = {
    "denied": (403, "AccessDenied"),
    "signature": (403, "SignatureDoesNotMatch"),
    "unauthorized": (401, "InvalidToken"),
    "expired": (400, "ExpiredToken"),
    "no-bucket": (404, "NoSuchBucket"),
    "busy": (503, "SlowDown"),
    "broken": (500, "InternalError"),
    "throttled": (429, "TooManyRequests"),
}
# Closes the connection before the answer, or in the middle of it.
DROPPED, CUT = "dropped", "cut"

Fault = Callable[[str, str], str | None]


class FaultyStore:
    """Serves the files below `root`. `fault` is asked for each method and key which failure to give, None for none."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fault: Fault = lambda _method, _key: None
        self.requests: list[tuple[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.store = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def options(self) -> dict[str, str]:
        """Few attempts, each of them short, so that a failure is one soon."""
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "topsecretvalue",
            "aws_endpoint": f"http://127.0.0.1:{self._server.server_address[1]}",
            "aws_region": "us-east-1",
            "allow_http": "true",
            "aws_virtual_hosted_style_request": "false",
            "client_max_retries": "0",
            "client_retry_timeout": "1",
            "timeout": "2 s",
            "connect_timeout": "1 s",
            "download_retry_count": "0",
            # Lance itself waits before it asks a busy store again.
            "lance_aimd_min_backoff_ms": "1",
            "lance_aimd_max_backoff_ms": "5",
        }

    def always(self, fault: str, pattern: str = "") -> None:
        """Fail from now on at keys that match."""
        self.fault = lambda _method, key: fault if re.search(pattern, key) else None

    def heal(self) -> None:
        self.fault = lambda _method, _key: None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    store: FaultyStore

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/") or query.get("prefix", [""])[0]
        store = self.server.store
        store.requests.append((self.command, key))
        fault = store.fault(self.command, key)
        if fault == DROPPED:
            self.close_connection = True
            self.connection.close()
        elif fault in ANSWERS:
            status, code = ANSWERS[fault]
            self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())
        else:
            getattr(self, f"_{self.command.lower()}")(key, query, body, fault == CUT)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815

    def _get(self, key: str, query: dict[str, list[str]], body: bytes, cut: bool) -> None:
        if "list-type" in query:
            return self._answer(200, self._listing(key).encode(), cut=cut)
        path = self.server.store.root / key
        if not path.is_file():
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        content, modified = path.read_bytes(), path.stat().st_mtime
        headers = {"ETag": f'"{md5(content, usedforsecurity=False).hexdigest()}"'}
        headers["Last-Modified"] = formatdate(modified, usegmt=True)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            return self._answer(200, content, headers, cut=cut)
        first = int(wanted[1]) if wanted[1] else max(0, len(content) - int(wanted[2]))
        last = min(int(wanted[2]) if wanted[1] and wanted[2] else len(content) - 1, len(content) - 1)
        if first > last:
            return self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return self._answer(206, content[first : last + 1], headers, cut=cut)

    _head = _get

    def _put(self, key: str, query: dict[str, list[str]], body: bytes, cut: bool) -> None:
        path = self.server.store.root / key
        if self.headers.get("If-None-Match") == "*" and path.exists():
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        return self._answer(200, b"", {"ETag": f'"{md5(body, usedforsecurity=False).hexdigest()}"'})

    def _post(self, key: str, query: dict[str, list[str]], body: bytes, cut: bool) -> None:
        keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
        for found in keys:
            (self.server.store.root / unescape(found)).unlink(missing_ok=True)
        deleted = "".join(f"<Deleted><Key>{found}</Key></Deleted>" for found in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), cut=cut)

    def _delete(self, key: str, query: dict[str, list[str]], body: bytes, cut: bool) -> None:
        (self.server.store.root / key).unlink(missing_ok=True)
        self._answer(204, b"")

    def _listing(self, prefix: str) -> str:
        root = self.server.store.root
        files = sorted(p for p in root.rglob("*") if p.is_file() and p.relative_to(root).as_posix().startswith(prefix))
        entries = "".join(
            f"<Contents><Key>{escape(p.relative_to(root).as_posix())}</Key><Size>{p.stat().st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for p in files
        )
        return f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True
