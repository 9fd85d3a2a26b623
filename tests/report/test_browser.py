"""The report in a real browser: it renders, fetches nothing, reports no error and fits a phone."""

from __future__ import annotations

import json
import re
import subprocess
from html import escape, unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import lance
import pytest

import pennon
from pennon.report.page import POLICY
from tests.report.tables import HOSTILE, append, defer, write

CHROMIUM = Path("/usr/bin/chromium")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's Chromium is not installed"),
]

# A page that may run scripts looks at the report, which may not, in a frame of the width asked for.
FRAME = """<!doctype html><link rel="icon" href="data:,"><body><pre id="seen"></pre>
<iframe id="report" src="/report" width="%d" height="844" style="border:0"></iframe><script>
report.onload = () => {
  const inner = report.contentDocument, view = report.contentWindow;
  seen.textContent = JSON.stringify({
    width: inner.documentElement.scrollWidth, room: inner.documentElement.clientWidth,
    heading: inner.querySelector("h1").textContent,
    scripts: inner.scripts.length, fetched: view.performance.getEntriesByType("resource").length,
    ground: view.getComputedStyle(inner.body).backgroundColor, ink: view.getComputedStyle(inner.body).color,
    tall: [...inner.querySelectorAll(".lane svg")].map(svg => svg.getBoundingClientRect().height),
    wide: [...inner.querySelectorAll(".lane svg")].map(svg => svg.getBoundingClientRect().width),
  });
};
</script>"""


def look(report: str, tmp_path: Path, width: int, *, dark: bool) -> tuple[dict[str, Any], list[str], str]:
    """What the browser made of the page, which paths it asked for, and what it logged."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = (report if self.path == "/report" else FRAME % width).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            if self.path == "/report":
                self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", *QUIET, "--enable-logging=stderr"]
        command += [
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        ]
        command += ["--window-size=1400,900", "--virtual-time-budget=4000", "--dump-dom"]
        ran = subprocess.run(
            [*command, f"http://127.0.0.1:{server.server_port}/"],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        server.shutdown()
    found = re.search(r'<pre id="seen">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found
    return json.loads(unescape(found[1])), asked, ran.stderr


@pytest.fixture
def report(tmp_path: Path) -> str:
    uri = write(tmp_path / f"{'long-name-' * 9}.lance", 1_200)
    lance.dataset(uri).create_scalar_index("id", "BTREE", name=HOSTILE)
    lance.dataset(uri).create_scalar_index("id", "BTREE", name="x" * 90)
    lance.dataset(uri).create_index("v", "IVF_FLAT", num_partitions=4)
    defer(uri)
    lance.dataset(uri).delete("id % 7 = 0")
    append(uri, 1_200)
    return pennon.open(uri).report()


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)], ids=["phone, dark", "laptop, light"])
def test_a_browser_shows_it(report: str, tmp_path: Path, width: int, dark: bool) -> None:
    seen, asked, logged = look(report, tmp_path, width, dark=dark)
    assert seen["heading"].startswith("long-name-")
    assert seen["width"] <= seen["room"] <= width
    assert min(seen["tall"]) > 0
    assert min(seen["wide"]) > 0.6 * min(width, 1000)
    assert (seen["scripts"], seen["fetched"]) == (0, 0)
    assert sorted(asked) == ["/", "/report"]
    assert "CONSOLE" not in logged
    assert _brightness(seen["ground"]) < 60 if dark else _brightness(seen["ground"]) > 200
    assert abs(_brightness(seen["ink"]) - _brightness(seen["ground"])) > 150
    assert escape(HOSTILE) in report


def _brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3
