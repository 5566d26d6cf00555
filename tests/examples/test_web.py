"""examples/web in a headless Chromium: digits drawn with the mouse are read, with every stroke, from a server of this test's."""
import contextlib
import functools
import http.server
import math
import os
import subprocess
import threading

import pytest

from support.browser import PROGRAM, Page
from support.tool import BUILD, ROOT

LIMIT = 300_000     # bytes of page, loader and network


@pytest.fixture
def site(tmp_path):
    done = subprocess.run(["make", "-s", f"MCC_BUILD={os.path.abspath(BUILD)}", f"BUILD={tmp_path}/web"], cwd=ROOT / "examples/web",
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return tmp_path / "web"


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {"": "application/octet-stream", ".html": "text/html", ".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()


@contextlib.contextmanager
def served(folder):
    with http.server.ThreadingHTTPServer(("localhost", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


def arc(x, y, rx, ry, start, end, n=40):
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in (math.radians(start + (end - start) * k / n) for k in range(n + 1))]


def line(*points, n=12):
    return [(a[0] + (b[0] - a[0]) * k / n, a[1] + (b[1] - a[1]) * k / n) for a, b in zip(points, points[1:]) for k in range(n + 1)]


# Strokes on a pad of 320 x 320.
DRAWN = {
    0: [arc(160, 160, 75, 115, -90, 270)],
    1: [line((130, 90), (165, 50), (165, 275))],
    3: [arc(150, 105, 65, 55, -150, 80) + arc(150, 215, 75, 60, -80, 150)],
    7: [line((95, 70), (225, 60), (140, 275)), line((105, 165), (235, 165))],
}


def test_size(site):
    assert sum(p.stat().st_size for p in site.iterdir()) < LIMIT


def test_drawing(site):
    if not PROGRAM:
        pytest.skip("no Chromium is installed")
    with served(site) as url, Page(url, (900, 640)) as page:
        page.until("document.body.dataset.ready === 'yes'")
        box = page.value("(({x, y}) => [x, y])(document.getElementById('pad').getBoundingClientRect())")
        for digit, strokes in DRAWN.items():
            for stroke in strokes:
                page.drag([(box[0] + x, box[1] + y) for x, y in stroke])
            assert page.value("document.getElementById('answer').textContent") == str(digit)
            if picture := os.environ.get("MCC_PICTURES"):
                page.picture(f"{picture}/web-{digit}.png")
            page.value("document.getElementById('clear').click()")
            assert page.value("document.getElementById('answer').textContent") == ""
        assert page.problems == []


def test_damaged_network(site):
    """The page says what is wrong."""
    if not PROGRAM:
        pytest.skip("no Chromium is installed")
    data = bytearray((site / "digits.wasm").read_bytes())
    data[-5] ^= 1
    (site / "digits.wasm").write_bytes(data)
    with served(site) as url, Page(url) as page:
        page.until("document.getElementById('error').textContent")
        assert page.value("document.getElementById('error').textContent") == "mcc: the module is damaged"
