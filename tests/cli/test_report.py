"""mcc report: the page's data without a browser, and the page in headless Chromium: clicked, searched, photographed."""
import json
import re
import struct
import subprocess
import zlib

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from support import browser
from support.tool import DIGITS, ROOT, mcc, save, value

needs_browser = pytest.mark.skipif(not browser.PROGRAM, reason="no Chromium (apt-get install chromium)")
HOSTILE = 'a</script><script>document.title="owned"</script><!--<b>&amp;"\'\\ \u2028'
LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x, int64 trips) => (float[4] y)
{
  c = Constant<value = bool {1}>()
  y = Loop (trips, c, x) <body = b (int64 i, bool ci, float[4] v) => (bool co, float[4] w) { co = Identity(ci) w = Add(v, x) }>
}
"""


def report(path, *args, out):
    done = mcc("report", path, "-o", out, *args)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    return out


def data_of(page):
    """The page's JSON, which no '<' can end."""
    text = page.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1)
    assert "<" not in found and text.count("</script>") == 2
    return json.loads(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def digits(folder):
    return report(DIGITS, "--runs=5", out=folder / "digits.html")


@pytest.fixture(scope="module")
def hostile(folder):
    """Two blocks with a way around each, names that would leave the page."""
    nodes, last = [], HOSTILE
    for i in range(2):
        at = f"/block{i}/{HOSTILE}" if i else "/block0/inner"
        nodes += [helper.make_node("Conv", [last, "w"], [f"c{i}"], f"{at}/conv", pads=[1] * 4), helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"{at}/relu"),
                  helper.make_node("Add", [f"r{i}", last], [f"s{i}"], f"{at}/add")]
        last = f"s{i}"
    nodes.append(helper.make_node("Softmax", [last], ["y"], HOSTILE))
    path = save(folder / "hostile.onnx", nodes, [value(HOSTILE, [1, 8, 12, 12])], [value("y", [1, 8, 12, 12])],
                {"w": np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)})
    return report(path, "--runs=5", out=folder / "hostile.html")


def test_the_page_is_whole(digits):
    text = digits.read_text()
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>") and "{{" not in re.sub(r"<script.*</script>", "", text, flags=re.S)
    assert "default-src 'none'" in text and not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", text)
    assert sum(f.stat().st_size for f in (ROOT / "cli/commands/report").iterdir() if f.suffix not in (".c", ".h")) < 100000


def test_what_it_says_of_a_network(digits):
    data, listing = data_of(digits), json.loads(mcc("inspect", DIGITS, "--json").stdout)["result"]
    nodes, edges = data["graph"]["nodes"], data["graph"]["edges"]
    assert [n[1] for n in nodes if n[4] == 1] == ["input"] and [n[0] for n in nodes if n[4] == 2] == ["probability"]
    assert {n[0] for n in nodes if n[4] == 0} >= {"conv1", "conv2", "dense", "softmax"}
    names = [(nodes[a][0], nodes[b][0], t) for a, b, t in edges]
    assert ("picture", "conv1", "f32[n,1,8,8]") in names and all(a < b for a, b, _ in edges)
    assert {k["node"] for k in data["bench"]["kernels"]} == {k["node"] for k in listing["kernels"]} == {k["node"] for k in data["artifact"]["kernels"]}
    assert data["weights"] == listing["weights"] and data["not_run"] is None
    memory = data["memory"]
    live = [sum(b for _, b, _, first, last in memory["buffers"] if first <= i <= last) for i in range(len(memory["steps"]))]
    assert 0 < max(live) <= memory["bytes"] and memory["symbolic"]
    for _, size, at, first, last in memory["buffers"]:     # no two that live together share a byte
        assert sum(1 for _, s, a, f, l in memory["buffers"] if a < at + size and at < a + s and f <= last and first <= l) == 1
    assert [s[0] for s in data["stages"]][:2] == ["import", "legalize"] and data["stages"][-1][0] == "link"


def test_without_a_run(folder):
    data = data_of(report(DIGITS, "--no-run", out=folder / "n.html"))
    assert "bench" not in data and data["not_run"] == "--no-run was given" and data["graph"]["edges"]


def test_compiled_ones(folder):
    assert mcc(DIGITS, "-o", folder / "d.so").returncode == 0 and mcc(DIGITS, "--target=aarch64-linux-gnu", "-o", folder / "a.so").returncode == 0
    data, network = data_of(report(folder / "d.so", "--runs=3", out=folder / "so.html")), data_of(report(DIGITS, "--no-run", out=folder / "n0.html"))
    assert data["bench"]["runs"] == 3 and "stages" not in data
    assert data["graph"] == network["graph"] and data["memory"] == network["memory"] and len(data["graph"]["edges"]) > 5 < len(data["memory"]["buffers"])
    data = data_of(report(folder / "a.so", out=folder / "arm.html"))
    assert "bench" not in data and data["not_run"] == "it is for another machine"
    assert data["graph"] == network["graph"] and len(data["memory"]["buffers"]) > 5
    assert mcc("report", folder / "d.so", "-O1").returncode == 2


def test_compiled_loops(folder):
    path = folder / "loop2.onnx"
    onnx.save(parser.parse_model(LOOP), path)
    assert mcc(path, "-o", folder / "loop2.so").returncode == 0
    data, network = (data_of(report(p, "--no-run", out=folder / "loop2.html")) for p in (folder / "loop2.so", path))
    assert data["graph"] == network["graph"] and data["memory"] == network["memory"] and any(n[3] >= 0 for n in data["graph"]["nodes"])


def large_for_its_code(folder):
    """Many nodes in one kernel, and long names of dimensions: the graph would be over 1 % of the file."""
    sums = [helper.make_node("Add", ["x" if i == 0 else f"v{i}", "x"], [f"v{i + 1}" if i < 299 else "y"], f"sum{i}") for i in range(300)]
    return save(folder / "sums.onnx", sums, [value("x", [f"{'length' * 30}_{k}" for k in range(8)])], [value("y", None)], {})


def test_what_it_costs(folder):
    """At most 1 % of the file, not loaded, and the same each time; beyond that, and in objects, it is left out."""
    assert mcc(DIGITS, "-o", folder / "c.so").returncode == 0 and mcc(DIGITS, "-o", folder / "c2.so").returncode == 0
    sizes = json.loads(mcc("inspect", folder / "c.so", "--json").stdout)["result"]["bytes"]
    assert 0 < sizes["graph"] < sizes["file"] / 100 and (folder / "c.so").read_bytes() == (folder / "c2.so").read_bytes()
    sections = subprocess.run(["readelf", "-SW", folder / "c.so"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\.mcc\.graph +PROGBITS +0{16} [0-9a-f]+ [0-9a-f]+ 00 +0 +0 +1\n", sections)
    assert mcc(large_for_its_code(folder), "-o", folder / "sums.so").returncode == 0 and mcc(DIGITS, "-o", folder / "c.o").returncode == 0
    for file in "sums.so", "c.o":
        assert json.loads(mcc("inspect", folder / file, "--json").stdout)["result"]["bytes"]["graph"] == 0
        data = data_of(report(folder / file, "--no-run", out=folder / "left.html"))
        assert data["graph"]["edges"] is None and len(data["graph"]["nodes"]) > 5 and "memory" not in data


@pytest.fixture(scope="module")
def searched(folder):
    """A search within 2 %, and pages that --config draws of it without samples."""
    x = np.random.default_rng(3).standard_normal([12, 1, 8, 8]).astype(np.float32)
    np.save(folder / "pictures.npy", x)
    target = ["--no-run", "--target=x86_64-linux", "-march=x86-64-v4-vnni"]
    report(DIGITS, *target, "--error=2%", f"--sample=picture={folder / 'pictures.npy'}", f"--save-choices={folder / 'found.yaml'}", "-q",
           out=folder / "found.html")
    return report(DIGITS, *target, f"--config={folder / 'found.yaml'}", out=folder / "searched.html")


def rows_of(page, kind):
    return [r.split(" ", 4)[1:] for r in data_of(page)["searched"] if r.startswith(kind + " ")]


def test_search_of_a_configuration(folder, digits, searched):
    """The same rows from the search and from its file: the frontier falls in error as it rises in time, the choice is on it."""
    assert data_of(searched)["searched"] == data_of(folder / "found.html")["searched"] and not data_of(digits)["searched"]
    frontier = [[float(v) for v in r] for r in rows_of(searched, "frontier")]
    assert len(frontier) > 2 and all(a[0] <= b[0] and a[1] >= b[1] for a, b in zip(frontier, frontier[1:])) and frontier[-1][1] == 0
    assert [float(v) for v in rows_of(searched, "bound")[0]] == [0, 0.02]
    (us, error), = ([float(v) for v in r] for r in rows_of(searched, "chosen"))
    products = rows_of(searched, "product")
    assert us == pytest.approx(sum(float(p[1]) for p in products), rel=1e-4) and 0 < error <= 0.02
    assert frontier[-1][0] == pytest.approx(sum(float(p[0]) for p in products), rel=1e-4)
    lines = (folder / "found.yaml").read_text()
    for *_, kind in products:
        kind, name = kind.split(": ")
        assert (f"'{name}:" in lines) == (kind != "f32")


def test_where_it_goes(tmp_path):
    assert mcc("report", DIGITS, "--no-run", cwd=tmp_path).returncode == 0
    assert [f.name for f in tmp_path.iterdir()] == ["digits.html"]
    (tmp_path / "d.onnx").write_bytes(DIGITS.read_bytes())
    for args, status in [(["-o", "-"], 2), (["-o", tmp_path / "d.onnx"], 2), (["-o", tmp_path / "none/x.html"], 3), (["--dim=nosuch=2"], 2)]:
        assert mcc("report", tmp_path / "d.onnx", *args, cwd=tmp_path).returncode == status, args
    assert (tmp_path / "d.onnx").read_bytes() == DIGITS.read_bytes()


def test_bodies_of_loops(folder):
    path = folder / "loop.onnx"
    onnx.save(parser.parse_model(LOOP), path)
    nodes = data_of(report(path, "--no-run", out=folder / "loop.html"))["graph"]["nodes"]
    loop = [n[1] for n in nodes].index("Loop")
    assert {n[1] for n in nodes if n[3] == loop} >= {"Add", "parameter", "result"}


def test_hostile_names_stay_text(hostile):
    data = data_of(hostile)
    assert HOSTILE in [n[0] for n in data["graph"]["nodes"]] and data["artifact"]["inputs"][0]["name"] == HOSTILE


# ---- in a browser --------------------------------------------------------------------------------------------------

def colors(png):
    """How many different pixels the picture has: one that stayed empty has few. 8 bits, RGB or RGBA, not interlaced."""
    at, body, width, channels = 8, b"", 0, 3
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, _, _, color = struct.unpack(">IIBB", png[at + 8:at + 18])
            channels = {2: 3, 6: 4}[color]
        body += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(-1, width * channels + 1)
    return len({bytes(r) for r in rows})


WHERE = """((item, sign) => {
    const graph = mccReport.graph, box = document.getElementById("canvas").getBoundingClientRect(), [x, y] = graph.where(item);
    const scale = graph.where({px: 1, py: 0})[0] - graph.where({px: 0, py: 0})[0];
    return [box.x + x - (sign ? (item.w / 2 - 17) * scale : 0), box.y + y];
})"""
CLOSED = """(graph => {
    graph.openAll(false);
    for (const item of graph.tree.root.children) item.open = false;
    graph.arrange();
    graph.fit();
})(mccReport.graph)"""
OVERLAPS = """(() => {
    let bad = 0;
    for (const group of mccReport.graph.tree.items.filter(g => g.leaf < 0 && g.open))
        for (const a of group.children)
            for (const b of group.children)
                if (a.id < b.id && Math.abs(a.px - b.px) < (a.w + b.w) / 2 - 1 && Math.abs(a.py - b.py) < (a.h + b.h) / 2 - 1) bad++;
    return bad;
})()"""
BAD_NUMBERS = "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))).length"


def click_item(page, find, sign=False):
    """Clicks the item of the graph that the script finds, or its sign."""
    page.click(*page.value(f"{WHERE}({find}, {'true' if sign else 'false'})"))


@needs_browser
def test_clicks(hostile, tmp_path):
    with browser.Page(hostile) as page:
        assert page.value("document.title") != "owned" and page.value("document.querySelectorAll('script').length") == 2
        page.value(CLOSED)
        before = page.value("mccReport.graph.shown()")
        first = "mccReport.graph.tree.root.children.find(c => c.leaf < 0 && c.name.startsWith('block0'))"
        click_item(page, first)
        assert page.value(f"mccReport.graph.selected === {first}") and "Nodes" in page.value("document.getElementById('detail').textContent")
        click_item(page, first, sign=True)
        assert page.value(f"{first}.open") and page.value("mccReport.graph.shown()") > before
        click_item(page, "mccReport.graph.tree.leaf[mccReport.net.nodes.findIndex(n => n[0].endsWith('/relu'))]")
        assert "Relu" in page.value("document.getElementById('detail').textContent")
        page.value("document.getElementById('by-kernel').click()")
        assert page.value("mccReport.graph.tree.root.children.some(c => c.leaf < 0 && c.name.startsWith('kernel '))")
        assert page.value("document.querySelectorAll('#kernels-body tbody tr').length") == len(data_of(hostile)["bench"]["kernels"])
        page.value("document.querySelector('#kernels-body tbody tr').click()")
        assert page.value("mccReport.graph.selected.leaf") >= 0
        assert colors(page.picture(tmp_path / "page.png")) > 50 and page.problems == []


@needs_browser
def test_ways_around_are_seen(hostile):
    """The edge from outside to the sum of a block goes around what lies between: no point of its way is in a box."""
    with browser.Page(hostile) as page:
        page.value("mccReport.graph.openAll(true)")
        ways = page.value("""mccReport.graph.tree.items.filter(g => g.portEdges && g.parent).flatMap(g => g.portEdges.concat(g.edges)
            .flatMap(e => e.path.map(p => g.children.some(c => Math.abs(p.px - c.px) < c.w / 2 && Math.abs(p.py - c.py) < c.h / 2))))""")
        assert len(ways) >= 2 and not any(ways) and page.problems == []


@needs_browser
def test_search(hostile):
    with browser.Page(hostile) as page:
        page.key("/", 191)
        page.type("block0 conv")
        assert page.value("document.querySelectorAll('#found li').length") == 1
        page.key("Enter", 13)
        assert page.value("mccReport.graph.selected.name") == "/block0/inner/conv"
        x, y = page.value("mccReport.graph.where(mccReport.graph.selected)")
        wide, high = page.value("[document.getElementById('canvas').clientWidth, document.getElementById('canvas').clientHeight]")
        assert abs(x - wide / 2) < 2 and abs(y - high / 2) < 2
        page.value("document.getElementById('search').value = ''")
        page.value("document.getElementById('search').focus()")
        page.type("nothing has this name")
        assert page.value("document.getElementById('found').textContent") == "nothing found" and page.problems == []


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_part_is_drawn(digits, dark, tmp_path):
    with browser.Page(digits, dark=dark) as page:
        for part in "roofline", "memory", "file", "compile":
            assert page.value(f"document.querySelectorAll('#{part}-body svg rect, #{part}-body svg circle').length") > 3, part
        assert page.value(BAD_NUMBERS) == 0
        assert not re.search("NaN|undefined|Infinity", page.value("document.body.innerText"))
        shades = page.value("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", shades)[:3])) < 200) == dark
        # Bytes of the file: every rectangle's share of the area is its share of the bytes.
        area = page.value("[...document.querySelectorAll('#file-body rect')].reduce((s, r) => s + r.width.baseVal.value * r.height.baseVal.value, 0)")
        assert 0.75 < area / (1400 * 420) <= 1
        assert colors(page.picture(tmp_path / "page.png")) > 50 and page.problems == []


@needs_browser
def test_frontier_is_drawn(searched, digits, folder):
    """A dot for each row, a table; none without a search, and no bad number of a row that somebody else wrote."""
    with browser.Page(searched) as page:
        dots = sum(len(rows_of(searched, kind)) for kind in ("frontier", "tried", "chosen"))
        assert page.value("document.querySelectorAll('#accuracy-body circle').length") == dots
        assert page.value("document.querySelectorAll('#accuracy-body tbody tr').length") == len(rows_of(searched, "product"))
        page.value("[...document.querySelectorAll('#accuracy-body tbody tr')].find(r => r.textContent.includes('conv1')).click()")
        assert page.value("mccReport.graph.selected.name") == "conv1" and page.value(BAD_NUMBERS) == 0 and page.problems == []
    with browser.Page(digits) as page:
        assert page.value("document.getElementById('accuracy') === null && !document.querySelector('nav').textContent.includes('Accuracy')")
    rows = ["chosen 1 0", "chosen x y", "frontier -1 3", "frontier 1e999 1", "tried", "", "bound 0 nan",
            f"product 1 2 3 f32: {HOSTILE}", "product a b c f32: d"]
    (folder / "hostile.yaml").write_text(json.dumps({"searched": rows}))
    with browser.Page(report(DIGITS, "--no-run", f"--config={folder / 'hostile.yaml'}", out=folder / "rows.html")) as page:
        assert page.value("document.querySelectorAll('#accuracy-body circle').length") == 1 and page.value(BAD_NUMBERS) == 0
        assert page.value("document.title") != "owned" and "NaN" not in page.value("document.body.innerText") and page.problems == []


@needs_browser
def test_files_without_a_graph_or_times(folder):
    assert mcc(DIGITS, "-o", folder / "d2.so").returncode == 0 and mcc(DIGITS, "-o", folder / "d2.o").returncode == 0
    for args, name in [((DIGITS, "--no-run"), "n2"), ((folder / "d2.so",), "so2"), ((folder / "d2.so", "--no-run"), "so3"), ((folder / "d2.o",), "o")]:
        with browser.Page(report(*args, out=folder / f"{name}.html")) as page:
            text = page.value("document.body.innerText")
            assert ("not measured: --no-run was given" in text) == ("--no-run" in args) and ("not measured: " in text) == (name != "so2")
            assert ("a report of the network has its stages" in text) == (name != "n2")
            assert ("This file does not carry its edges" in text) == (name == "o")
            assert ("This file does not carry the buffers of its memory plan" in text) == (name == "o")
            assert (page.value("document.querySelectorAll('#memory-body svg rect').length") > 3) == (name != "o")
            assert (page.value("mccReport.net.edges.length") > 5) == (name != "o")
            assert page.value("mccReport.graph.shown()") > 3 and page.problems == []


@needs_browser
def test_ten_thousand_nodes(digits, folder):
    """The page's own layout takes seconds, with all groups open too; flat names get sections."""
    rng, nodes, edges = np.random.default_rng(1), [["x", "input", 0, -1, 1]], []
    for i in range(10000):
        name = f"/stage{i // 2500}/block{i // 50}/conv{i // 5}/op{i}" if i < 9000 else f"op{i}"
        nodes.append([name, "Conv" if i % 5 == 0 else "Relu", 0, -1, 0])
        edges += [[i, i + 1, "f32[1]"]] + [[int(rng.integers(max(0, i - 300), i + 1)), i + 1, ""]] * (i % 7 == 0)
    text = digits.read_text()
    data = data_of(digits) | {"graph": {"hidden": 0, "nodes": nodes, "edges": edges}}
    page_file = folder / "large.html"
    page_file.write_text(re.sub(r'(id="data">).*?(</script>)', lambda m: m[1] + json.dumps(data) + m[2], text, count=1, flags=re.S))
    with browser.Page(page_file) as page:
        assert page.value("mccReport.graph.ms") < 5000 and page.value("mccReport.graph.shown()") < 200
        taken = page.value("(() => { const t = performance.now(); mccReport.graph.openAll(true); return performance.now() - t; })()")
        print(f"10,000 nodes: {page.value('mccReport.graph.ms'):.0f} ms closed, {taken:.0f} ms to open all")
        assert taken < 10000 and page.value("mccReport.graph.shown()") == 10001
        assert page.value(OVERLAPS) == 0
        assert colors(page.picture()) > 50 and page.problems == []
