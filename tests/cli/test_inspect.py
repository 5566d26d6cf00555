"""mcc inspect: the table of sizes, a network's kernels and weights, its drawing, and the profile that colours it."""
import os
import random
import re
import shutil
import stat
import subprocess
import xml.etree.ElementTree as xml

import onnx
import pytest
from onnx import helper, parser

from support.tool import DIGITS, MCC, dense, mcc, result, save, value

CONTROL = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[n,4] x, int64 trips) => (float[n,4] y, float[k,n,4] scans)
{
  c = Constant<value = bool {1}>()
  zero = Constant<value = float {0}>()
  sum = ReduceSum<keepdims=0>(x)
  p = Greater(sum, zero)
  t = If (p) <then_branch = g1 () => (float[n,4] a) { a = Relu(x) }, else_branch = g2 () => (float[n,4] b) { b = local.f(x) }>
  y, scans = Loop (trips, c, t) <body = b (int64 i, bool ci, float[n,4] v) => (bool co, float[n,4] w, float[n,4] u)
    { co = Identity(ci) w = Add(v, x) u = local.f(w) }>
}
<domain: "local", opset_import: ["" : 17]>
f (a) => (r) { q = Sigmoid(a) r = Mul(q, a) }
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("digits") / "digits.so"
    assert mcc(DIGITS, "-o", path).returncode == 0
    return path


@pytest.fixture(scope="module")
def profile(digits):
    path = digits.with_suffix(".profile")
    assert mcc("bench", digits, "--runs=5", f"--profile={path}").returncode == 0
    return path


def draw(*args, **more):
    done = mcc("inspect", *args, "-o", "-", **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def boxes(text):
    """{label of a kernel's box: the operators in it}"""
    found = re.findall(r'subgraph cluster_k\d+_\d+ \{\n[^\n]*label="(.*)";\n((?:n\d+ \[.*\n)*)\}', text)
    return {label: re.findall(r'label="(\w+)', nodes) for label, nodes in found}


# ---- sizes -------------------------------------------------------------------------------------------------------

def test_sizes_add_up(digits):
    rows = re.findall(r"^bytes +(\d+) +([\d.]+)%  (.*)$", mcc("inspect", digits).stdout, re.M)
    size = {what.strip(): int(n) for n, share, what in rows}
    file = size.pop("file")
    assert file == digits.stat().st_size
    assert size["weights"] == 27456 and size.pop("of these padding") == 3072 + 24     # 10 rows of 16; 40 bytes of 64
    assert sum(size.values()) == file
    assert all(abs(100 * int(n) / file - float(share)) < 0.06 for n, share, what in rows)
    assert size["padding between the parts"] < 3 * 4096


def test_sizes_of_a_sidecar(tmp_path):
    assert mcc(DIGITS, "--weights=sidecar", "-o", tmp_path / "d.so").returncode == 0
    size = result("inspect", tmp_path / "d.so")["bytes"]
    assert (size["weights"], size["sidecar"], size["weights_padding"]) == (0, (tmp_path / "d.mccw").stat().st_size, 3096)


def test_a_network_lists_kernels_and_weights(digits):
    done = mcc("inspect", DIGITS)
    assert done.returncode == 0 and done.stderr == ""
    compiled = re.findall("^(kernel .*): k[k0-9 ]+$", mcc("inspect", digits).stdout, re.M)
    assert re.findall("^kernel .*", done.stdout, re.M) == compiled and len(compiled) == 6
    weights = {w["name"]: (w["bytes"], w["padding"], w["type"], w["dims"]) for w in result("inspect", DIGITS)["weights"]}
    assert weights["w3"] == (8192, 3072, "f32", [10, 128]) and len(weights) == 6 == done.stdout.count("\nweight ")
    assert re.search(r"^weight +8192 bytes, +3072 of these padding  w3: f32\[10,128\]$", done.stdout, re.M)
    assert "27456 in the output, 3096 of these padding" in done.stdout and "workspace: " in done.stdout


# ---- artifacts that cannot be loaded here, or are not linked ---------------------------------------------------------

def listing(text, *without):
    """What inspect says, without the lines that the machine decides."""
    return [line for line in text.splitlines() if not line.startswith(("bytes", "target", "plan") + without)]


@pytest.fixture(scope="module")
def forms(digits):
    """The same network in every form of file."""
    paths = {"here": digits}
    for name, options in {"arm.so": ["--target=aarch64-linux-gnu"], "rv.so": ["--target=riscv64-linux-gnu"], "d.o": [], "d.a": [],
                          "arm.o": ["--target=aarch64-linux-gnu"], "rv.a": ["--target=riscv64-linux-gnu"]}.items():
        paths[name] = digits.parent / name
        assert mcc(DIGITS, *options, "-o", paths[name]).returncode == 0
    return paths


def test_every_form_says_the_same(forms):
    want = listing(mcc("inspect", forms["here"]).stdout)
    assert len(want) > 9 and "input    picture: f32[n,1,8,8]" in want
    for name, path in forms.items():
        done = mcc("inspect", path, "--verify")
        assert done.returncode == 0 and done.stderr == "", (name, done.stderr)
        assert listing(done.stdout) == want + ["verified the hash of the weights"], name
        found = result("inspect", path)
        sizes = found["bytes"]
        parts = [v["code"] for v in sizes["variants"]] + [sizes[k] for k in ("weights", "runtime", "tables", "names", "graph", "lines", "padding")]
        assert sizes["weights"] == 27456 and sizes["file"] == path.stat().st_size == sum(parts), name
        assert bool(found["workspace"]) == ("plan     workspace" in done.stdout) == (name == "here")


def test_kernels_say_their_functions(digits):
    """The k of a backtrace or a profile is that of the listing; dense has a version for few rows."""
    nm = subprocess.run(["nm", digits], capture_output=True, text=True).stdout
    symbols = set(re.findall(r" t (k\d+(?:version)?)_v3\.(\w+?)_$", nm, re.M))
    kernels = result("inspect", digits)["kernels"]
    assert {(k[:-3], kernel["name"]) for kernel in kernels for k in kernel["functions"] if k.endswith("_v3")} == symbols and len(symbols) == 10
    assert " 3 kernels: k5 k6 k8\n" in mcc("inspect", digits).stdout


def test_weights_of_other_machines_are_verified(tmp_path):
    for options in [], ["--weights=sidecar"]:
        path = tmp_path / "a.so"
        assert mcc(DIGITS, "--target=aarch64-linux-gnu", *options, "-o", path).returncode == 0
        assert mcc("inspect", path, "--verify").returncode == 0
        file = tmp_path / "a.mccw" if options else path
        data = bytearray(file.read_bytes())
        data[-4000 if options else data.rindex(b"\0" * 64) - 5000] ^= 1
        file.write_bytes(data)
        done = mcc("inspect", path, "--verify")
        assert done.returncode == 3 and re.search("damaged", done.stderr), done.stderr


def test_other_files_are_refused_with_a_reason(tmp_path, forms):
    empty = tmp_path / "z.a"
    empty.write_bytes(b"!<arch>\n")
    stripped = tmp_path / "s.so"
    subprocess.run(["strip", "-o", stripped, forms["here"]], check=True)
    short = tmp_path / "short.so"
    short.write_bytes(forms["arm.so"].read_bytes()[:70000])
    for path, why in [(empty, "not made by mcc"), (stripped, "without its symbols"), (short, "truncated or damaged"), (MCC, "not made by mcc")]:
        done = mcc("inspect", path)
        assert done.returncode == 3 and why in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    text = tmp_path / "a.c"
    text.write_text("int main(void) {}\n")
    assert "looks like text" in mcc("inspect", text).stderr


@pytest.mark.parametrize("name", ["arm.so", "d.o", "rv.a"])
def test_damaged_files_end_in_a_message(tmp_path, forms, name):
    data, draw, refused = forms[name].read_bytes(), random.Random(7), 0
    head = data.index(b"\x7fELF")
    table = head + int.from_bytes(data[head + 40:head + 48], "little")
    for _ in range(60):
        bad, at = bytearray(data), draw.choice([range(head, head + 64), range(table, len(data)), range(len(data))])
        for _ in range(draw.randrange(1, 4)):
            bad[draw.choice(at)] = draw.choice([0, 1, 0x7f, 0xff, draw.randrange(256)])
        path = tmp_path / name
        path.write_bytes(bad)
        done = mcc("inspect", path, "--verify")
        assert done.returncode in (0, 1, 3, 4), (done.returncode, done.stderr)
        refused += done.returncode != 0
    assert refused > 20


def test_long_extents_stand_below(tmp_path):
    onnx.save(parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, float[m] y) => (float[k] z, float[l] w)
        { z = Add(x, y) w = Concat<axis=0>(x, y) }"""), tmp_path / "m.onnx")
    assert mcc(tmp_path / "m.onnx", "-o", tmp_path / "m.so").returncode == 0
    text = mcc("inspect", tmp_path / "m.so").stdout
    assert re.search(r"^output +z: f32\[\?1\]\noutput +w: f32\[m \+ n\]\nextent +\?1: select\(.*\)$", text, re.M), text


# ---- drawing -----------------------------------------------------------------------------------------------------

def test_kernels_are_boxes_around_their_nodes():
    text = draw(DIGITS)
    found = {label.split("\\n")[0].split(":")[0]: nodes for label, nodes in boxes(text).items()}
    assert found == {"conv1": ["Conv", "Relu"], "pool1": ["MaxPool"], "conv2": ["Conv", "Relu"], "pool2": ["MaxPool", "Flatten"],
                     "dense": ["Gemm"], "softmax": ["Softmax"]}
    assert re.search(r'v\d+ \[shape=oval, label="picture"\]', text) and 'label="f32[n,16,4,4]"' in text
    assert len(re.findall(" -> ", text)) == 10     # input, eight between nine nodes, output
    assert "flops" in text and "#ff" not in text


def test_bodies_and_functions_are_drawn(tmp_path):
    onnx.save(parser.parse_model(CONTROL), tmp_path / "c.onnx")
    text = draw(tmp_path / "c.onnx")
    for body in ("then of t", "else of t", "body of y", "function f"):
        assert f'style=rounded; label="{body}"' in text
    assert 'label="Loop\\ny"' in text and '"3 node' not in text and "2 nodes that compute constants" in text
    inside, outside = text.split(" -> ", 1)
    assert "subgraph" not in outside        # an arrow inside a box would draw its ends into it


def test_drawing_is_deterministic():
    assert draw(DIGITS) == draw(DIGITS)


def test_names_are_quoted(tmp_path):
    model = onnx.load(DIGITS)
    model.graph.node[0].name = 'a"]; evil [x="\\\n' + "long" * 100
    model.graph.input[0].name = model.graph.node[0].input[0] = "\x1b[31m"
    onnx.save(model, tmp_path / "m.onnx")
    text = draw(tmp_path / "m.onnx")
    assert "\x1b" not in text and 'a\\"]; evil [x=\\"' in text and "long" * 30 not in text
    text = mcc("inspect", tmp_path / "m.onnx").stdout
    assert "\x1b" not in text and 'a"]; evil' in text


# ---- the profile -------------------------------------------------------------------------------------------------

def test_profile_colours_the_boxes(profile):
    lines = profile.read_text().splitlines()
    times = {line.split("\t")[3].strip('"'): int(line.split("\t")[1]) for line in lines[1:]}
    assert lines[0].startswith("mcc-profile 1\t5\t") and set(times) == {"conv1", "pool1", "conv2", "pool2", "dense", "softmax"}
    text = draw(DIGITS, f"--profile={profile}")
    colours = dict(re.findall(r'fillcolor="#ff(\w\w)\w\w"; label="(\w+)', text))
    colours = {name: int(shade, 16) for shade, name in colours.items()}
    slowest = max(times, key=times.get)
    assert min(colours.values()) == 255 - 195 and all(f"{ns / 1e3:.2f} us" in text for ns in times.values())
    shades = re.findall(r'fillcolor="#ff(\w\w)\1"; label="(\w+)', text)
    assert dict((name, shade) for shade, name in shades)[slowest] == "3c" and len(shades) == 6


def test_profiles_that_do_not_fit(profile, digits, tmp_path):
    other = dense(tmp_path / "net.onnx")
    def refused(status, word, *args):
        done = mcc(*args)
        assert done.returncode == status and word in done.stderr and done.stderr.count("\n") == 1, (args, done)
    refused(1, "another network", "inspect", other, f"--profile={profile}", "-o", "-")
    refused(1, "not a profile", "inspect", DIGITS, f"--profile={DIGITS}", "-o", "-")
    refused(3, "No such file", "inspect", DIGITS, f"--profile={tmp_path}/none", "-o", "-")
    refused(3, "a directory", "inspect", DIGITS, f"--profile={tmp_path}", "-o", "-")
    refused(2, "-o", "inspect", DIGITS, f"--profile={profile}")
    refused(2, "only a network", "inspect", digits, f"--profile={profile}")
    good = profile.read_text()
    for bad in (good.replace("\t5\t", "\t5", 1).replace("1\t", "x\t", 2), good.replace("conv2", "conv3"), good[:-4],
                good.replace("\n4\t", "\n4000000000\t"), good.replace("\n4\t", "\n-1\t"), good.replace("\n4\t", "\nnan\t"),
                good.replace("\n4\t", "\n2\t"), good + "x\n", good + "\0"):
        (tmp_path / "bad").write_text(bad)
        assert mcc("inspect", DIGITS, f"--profile={tmp_path}/bad", "-o", "-").returncode == 1, bad


def test_bench_does_not_write_over_the_artifact(digits, tmp_path):
    before = digits.read_bytes()
    assert mcc("bench", digits, "--runs=1", f"--profile={digits}").returncode == 2
    assert mcc("bench", digits, "--runs=1", f"--profile={tmp_path}").returncode == 3
    assert mcc("bench", digits, "--runs=1", "--profile=").returncode == 2
    assert digits.read_bytes() == before


# ---- pictures ----------------------------------------------------------------------------------------------------

def with_dot(tmp_path, script):
    """An environment whose only program is a `dot` of this shell script; None: not even that."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    if script is not None:
        (folder / "dot").write_text(f"#!/bin/sh\nPATH={os.environ['PATH']}\n{script}\n")
        (folder / "dot").chmod(stat.S_IRWXU)
    return dict(os.environ, PATH=str(folder))


def test_svg_comes_from_graphviz(tmp_path):
    env = with_dot(tmp_path, 'echo "<svg>"; echo "$*" >&2; cat; echo "</svg>"')
    done = mcc("inspect", DIGITS, "-o", tmp_path / "d.svg", env=env)
    text = (tmp_path / "d.svg").read_text()
    assert done.returncode == 0 and done.stderr == "-Tsvg\n" and text == f"<svg>\n{draw(DIGITS)}</svg>\n"
    assert mcc("inspect", DIGITS, "-o", tmp_path / "d.dot", env=with_dot(tmp_path, "exit 9")).returncode == 0


@pytest.mark.parametrize("script,word", [(None, "not installed"), ("exit 7", "status 7"), ("kill -9 $$", "137"), ("true", "nothing")])
def test_graphviz_that_does_not_draw(tmp_path, script, word):
    done = mcc("inspect", DIGITS, "-o", tmp_path / "d.svg", env=with_dot(tmp_path, script))
    assert done.returncode == 3 and word in done.stderr and "Graphviz" in done.stderr and not (tmp_path / "d.svg").exists()


def test_pictures_of_large_networks_are_refused(tmp_path):
    """Graphviz would never end, or draw what nobody can look at; its text has no limit, and bounds what Graphviz does with it."""
    for n, status in ((1000, 0), (1001, 4)):
        names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
        path = save(tmp_path / "m.onnx", [helper.make_node(["Exp", "Neg"][i % 2], [names[i]], [names[i + 1]]) for i in range(n)],
                    [value("x", [4])], [value("y", [4])])
        done = mcc("inspect", path, "-o", tmp_path / f"{n}.svg", env=with_dot(tmp_path, "echo '<svg/>'"))
        assert done.returncode == status, done.stderr
        assert (tmp_path / f"{n}.svg").exists() == (status == 0)
        if status:
            assert "at most 1000 nodes" in done.stderr and "has 1001" in done.stderr and ".dot" in done.stderr
        assert mcc("inspect", path, "-o", tmp_path / f"{n}.dot").returncode == 0
        assert "nslimit=2" in (tmp_path / f"{n}.dot").read_text()


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
def test_real_graphviz(tmp_path, profile):
    assert mcc("inspect", DIGITS, f"--profile={profile}", "-o", tmp_path / "d.svg").returncode == 0
    texts = [e.text for e in xml.parse(tmp_path / "d.svg").iter() if e.tag.endswith("text")]
    assert "Softmax" in texts and any("us in a run" in t for t in texts)


def test_wrong_drawings(digits, tmp_path):
    copy = tmp_path / "m.onnx"
    shutil.copy(DIGITS, copy)
    for status, args in ((2, [copy, "-o", tmp_path / "d.jpeg"]), (2, [copy, "-o", "drawing"]), (2, [digits, "-o", tmp_path / "d.svg"]),
                         (2, [copy, "-o", ""]), (3, [copy, "-o", tmp_path / "none/d.dot"]), (3, [tmp_path / "none.onnx", "-o", "-"]),
                         (2, [copy, "-o", copy]), (2, [copy, "--layout=x"]), (2, [copy, "--dump=x"])):
        done = mcc("inspect", *args)
        assert done.returncode == status and done.stderr.count("\n") == 1, (args, done)
    (tmp_path / "d.dot").symlink_to(copy)
    assert mcc("inspect", copy, "-o", tmp_path / "d.dot").returncode == 2 and copy.read_bytes() == DIGITS.read_bytes()
    with open("/dev/full", "w") as full:
        done = subprocess.run([MCC, "inspect", DIGITS, "-o", "-"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3 and "standard output" in done.stderr
