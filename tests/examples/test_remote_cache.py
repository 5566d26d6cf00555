"""examples/remote-cache: two folders, the same bytes, a hit on the second; nothing that another input made."""
import http.server
import os
import shutil
import subprocess
import threading

import pytest

from support.tool import MCC, ROOT

SCRIPT = ROOT / "examples/remote-cache/mcc-remote"


class Store(http.server.BaseHTTPRequestHandler):
    """GET and PUT of a dictionary."""
    kept = {}

    def do_GET(self):
        data = self.kept.get(self.path)
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def do_PUT(self):
        self.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture(params=["folder", "http"])
def remote(request, tmp_path):
    if request.param == "folder":
        yield str(tmp_path / "cache")
        return
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    Store.kept = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mcc"
    server.shutdown()


def compiled(folder, remote, *words):
    """(hit, miss or nothing, the output's bytes)"""
    words = words or ["net.onnx", "--config=net.yaml", "-o", "net.so"]
    (folder / "net.so").unlink(missing_ok=True)
    done = subprocess.run([SCRIPT, *words], cwd=folder, capture_output=True, text=True,
                          env=dict(os.environ, MCC=os.path.abspath(MCC), MCC_REMOTE=remote))
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob(".mcc-remote-*"))
    return done.stderr.split()[-1] if done.stderr else "", (folder / "net.so").read_bytes()


def project(folder):
    shutil.copytree(ROOT / "examples/makefile-rule", folder)
    return folder


def test_two_folders(remote, tmp_path):
    a, b = project(tmp_path / "a"), project(tmp_path / "deeper" / "b")
    first, whole = compiled(a, remote)
    second, same = compiled(b, remote)
    assert (first, second) == ("miss", "hit") and whole == same
    # Each input by itself: the configuration, the weights beside the network, the network, an option.
    text = (b / "net.yaml").read_text()
    (b / "net.yaml").write_text(text.replace("1..16", "1..15"))
    assert compiled(b, remote)[0] == "miss" and compiled(b, remote)[0] == "hit"
    (b / "net.yaml").write_text(text)
    assert compiled(b, remote) == ("hit", whole)
    weights = (b / "net.weights").read_bytes()
    (b / "net.weights").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    other = compiled(b, remote)
    assert other[0] == "miss" and other[1] != whole
    assert compiled(a, remote) == ("hit", whole)
    assert compiled(a, remote, "net.onnx", "-O1", "--config=net.yaml", "-o", "net.so")[0] == "miss"


def test_what_is_not_kept(tmp_path):
    a, remote = project(tmp_path / "a"), str(tmp_path / "cache")
    for words in (["-march=native"], ["-g"], ["-MD"]):
        for _ in range(2):
            assert compiled(a, remote, "net.onnx", *words, "-o", "net.so")[0] not in ("hit", "miss")
    assert not (tmp_path / "cache").exists()


def test_damage_is_a_miss(tmp_path):
    a, remote = project(tmp_path / "a"), str(tmp_path / "cache")
    _, whole = compiled(a, remote)
    (entry,) = (tmp_path / "cache").glob("*.so")
    for bad in (whole[:1000], whole[:2000] + b"?" + whole[2001:], b""):
        entry.write_bytes(bad)
        assert compiled(a, remote) == ("miss", whole)
        assert entry.read_bytes() == whole
    (tmp_path / "cache").chmod(0o500)
    assert compiled(a, str(tmp_path / "cache"))[1] == whole
    (tmp_path / "cache").chmod(0o700)
    assert compiled(a, "http://127.0.0.1:9/nobody") == ("miss", whole)
