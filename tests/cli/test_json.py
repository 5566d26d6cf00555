"""--json: every command's object against docs/json.schema.json, and against what the command says without it."""
import json
import re
import shutil

import numpy as np
import pytest
from onnx import TensorProto, helper

from support import schema
from support.tool import DIGITS, ROOT, dense, mcc, save, value

SCHEMA = json.loads((ROOT / "docs/json.schema.json").read_text())
HOSTILE = 'a"b\\c\n\x01</script>\u202e\u00e9'


def found(*args, status=0, **more):
    """The object, whose form holds."""
    done = mcc(args[0], "--json", *args[1:], **more)
    assert done.returncode == status, done.stderr
    assert done.stdout.endswith("}\n") and done.stdout.count("\n") == 1
    data = json.loads(done.stdout)
    assert schema.wrong(data, SCHEMA, SCHEMA) is None
    assert (data["command"], data["status"]) == (args[0], status)
    return data


def result(*args, kind=None, **more):
    data = found(*args, **more)
    assert schema.wrong(data["result"], SCHEMA["$defs"][kind or args[0]], SCHEMA) is None
    return data["result"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "digits.so"
    assert mcc(DIGITS, "-o", path).returncode == 0
    return path


def test_the_check_of_the_form_can_fail():
    good = {"schema": 1, "command": "check", "file": "x", "status": 0, "diagnostics": [], "result": {"supported": True}}
    assert schema.wrong(good, SCHEMA, SCHEMA) is None
    for bad in {"status": 7}, {"status": "0"}, {"more": 1}, {"file": 1}, {"result": {"supported": 1}}, {"diagnostics": [{}]}:
        assert schema.wrong(good | bad, SCHEMA, SCHEMA)


def test_check(tmp_path):
    assert result("check", DIGITS) == {"supported": True}
    path = save(tmp_path / "bad.onnx", [helper.make_node("Nope", ["x"], ["y"], "n", domain="there.is.none")],
                [value("x", [2])], [value("y", [2])])
    data = found("check", path, status=1)
    assert data["result"] == {"supported": False} and data["file"] == str(path)
    assert [(d["severity"], d["class"]) for d in data["diagnostics"]] == [("error", "model")] and "there.is.none" in data["diagnostics"][0]["message"]
    assert mcc("check", path, "--json").stderr == mcc("check", path).stderr != ""


def test_failures_have_no_result(tmp_path):
    for args, status in [(("bench", tmp_path / "none.so"), 3), (("run", DIGITS, "-i", "nobody=random"), 2), (("check", "--nosuch", DIGITS), 2),
                         (("inspect", DIGITS, "-o", tmp_path / "x.svg"), 2), (("diff", DIGITS, "-O", "7"), 2), (("bench",), 2)]:
        data = found(*args, status=status)
        assert data["result"] is None and data["diagnostics"][-1]["severity"] == "error", args


def test_other_output_goes_to_standard_error():
    done = mcc("check", DIGITS, "--json", "--stats", "--time-passes")
    assert json.loads(done.stdout)["result"] == {"supported": True} and "Conv" in done.stderr and "legalize" in done.stderr


def test_ports_that_share_memory(tmp_path):
    path = save(tmp_path / "cache.onnx", [helper.make_node("Concat", ["past", "new"], ["present"], axis=2)],
                [value("past", [1, 3, "len", 64]), value("new", [1, 3, 1, 64])], [value("present", [1, 3, "all", 64])])
    assert mcc(path, "--input=past:f32[1,3,len<=2048,64]", "-o", tmp_path / "cache.so").returncode == 0
    ports = result("inspect", tmp_path / "cache.so", kind="compiled")
    assert ports["outputs"][0]["alias"] == "past" and ports["inputs"][0]["room"] == [None, None, 2048, None]


def test_run(digits, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 8, 8), np.float32))
    got = result("run", digits, "-i", f"picture={tmp_path / 'x.npy'}", "-o", tmp_path / "out")["outputs"]
    want = np.load(tmp_path / "out/probability.npy")
    assert [(o["name"], o["type"], o["dims"]) for o in got] == [("probability", "f32", [3, 10])]
    assert np.allclose(got[0]["first"], want.reshape(-1)[:len(got[0]["first"])], rtol=1e-11, atol=0)
    assert (np.float32(got[0]["least"]), np.float32(got[0]["greatest"])) == (want.min(), want.max())


def test_eval(tmp_path):
    path = dense(tmp_path / "m.onnx")
    assert mcc("eval", path, "-i", "x=random", "-o", tmp_path / "out").returncode == 0
    (y,) = result("eval", path, "-i", "x=random", kind="run")["outputs"]
    want = np.load(tmp_path / "out/y.npy")
    assert (y["name"], y["dims"]) == ("y", list(want.shape)) and np.float32(y["greatest"]) == want.max()
    assert found("eval", path, "-i", "nobody=random", status=2)["result"] is None


def test_reduce(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])],
                [value("x", [2])], [value("y", [2])])
    got = result("reduce", path, "-o", tmp_path / "r.onnx", "--", "true")
    assert (got["output"], got["nodes"], got["nodes_before"]) == (str(tmp_path / "r.onnx"), 1, 2) and got["runs"] > 1
    found("reduce", path, "-v", "-o", tmp_path / "r.onnx", "--", "echo", "of the command")
    assert found("reduce", path, "-o", tmp_path / "r.onnx", "--", "false", status=2)["result"] is None


def test_report(tmp_path):
    page = tmp_path / "page.html"
    got = result("report", DIGITS, "-o", page, "--no-run")
    assert got == {"output": str(page), "bytes": page.stat().st_size, "not_run": "--no-run was given", "proof": None}
    assert result("report", DIGITS, "-o", page, "--runs=3")["not_run"] is None


def test_numbers_that_json_does_not_have(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Log", ["x"], ["y"])], [value("x", [3])], [value("y", [3])])
    np.save(tmp_path / "x.npy", np.array([0, -1, 1], np.float32))
    (y,) = result("run", path, "-i", f"x={tmp_path / 'x.npy'}")["outputs"]
    assert y["first"] == [None, None, 0] and y["least"] is None and y["greatest"] == 0


def test_operations_of_an_open_batch(tmp_path):
    """Winograd's kernels count the operations of the extents at hand, not of those that a schedule is chosen for."""
    weights = np.random.default_rng(1).standard_normal((64, 64, 3, 3)).astype(np.float32)
    counts = []
    for batch in (1, "n"):
        node, shape = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4), [batch, 64, 14, 14]
        path = save(tmp_path / f"{batch}.onnx", [node], [value("x", shape)], [value("y", shape)], {"w": weights})
        assert mcc(path, "--winograd=4", "-march=x86-64-v3", "-o", tmp_path / "c.so").returncode == 0
        counts.append(result("bench", tmp_path / "c.so", "--runs=3")["flops"])
    assert counts[0] == counts[1] == 2 * 36 * 16 * 64 * 64


def test_operations_of_given_sizes(tmp_path):
    """Those of the sizes that are measured, per kernel and in all; unknown where compiled code was counted for others."""
    rng = np.random.default_rng(1)
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"], pads=[1] * 4), helper.make_node("MatMul", ["h", "h"], ["p"]),
             helper.make_node("ReduceSum", ["p", "axes"], ["y"], keepdims=0)]
    constants = {"w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "axes": np.array([1, 2, 3])}
    counts = {}
    for name, dims in (("fixed", [2, 3, 20, 20]), ("open", ["n", 3, "s", "s"])):
        path = save(tmp_path / f"{name}.onnx", nodes, [value("x", dims)], [value("y", [None])], constants)
        flags = ["--dim=n=2", "--dim=s=20"] if name == "open" else []
        got = result("bench", path, "--runs=3", "--winograd=off", *flags)
        counts[name] = got["flops"], sorted(k["flops"] for k in got["kernels"]), sorted(k["bytes"] for k in got["kernels"])
    assert counts["fixed"] == counts["open"]
    assert mcc(path, "-o", tmp_path / "c.so").returncode == 0
    assert result("bench", tmp_path / "c.so", "--runs=3")["flops"] > 0
    got = result("bench", tmp_path / "c.so", "--runs=3", *flags)
    assert got["flops"] is None and all(k["flops"] is None and k["bytes"] is None for k in got["kernels"])
    assert result("bench", tmp_path / "c.so", "--runs=3", "--dim=n=1")["flops"] > 0
    done = mcc("bench", tmp_path / "c.so", "--runs=3", "--roofline", *flags)
    assert done.returncode == 2 and "--dim" in done.stderr
    assert all(k["limit_ns"] > 0 for k in result("bench", path, "--runs=3", "--roofline", *flags)["kernels"])


def test_bench(digits):
    got = result("bench", digits, "--runs=20", "-t1")
    assert got["runs"] == 20 and 0 < got["least_ns"] <= got["p10_ns"] <= got["median_ns"] <= got["p90_ns"]
    assert got["file_bytes"] == digits.stat().st_size and got["workspace_bytes"] > 0 and got["flops"] > 100000
    assert got["machine"]["gflops_best"] > 0 and not any("limit_ns" in k for k in got["kernels"])
    ns = [k["ns"] for k in got["kernels"]]
    assert ns == sorted(ns, reverse=True) and len(ns) == len(re.findall("^kernel ", mcc("inspect", digits).stdout, re.M))
    roofline = result("bench", digits, "--runs=20", "--roofline")
    assert all(k["limit_ns"] > 0 for k in roofline["kernels"]) and len(roofline["machine"]["reads"]) == 6
    assert result("bench", digits, "--runs=5", "--dim=n=3")["flops"] is None
    assert all(0 <= k["waits"] <= 1 for k in result("bench", digits, "--runs=5", "-t2")["kernels"])
    assert result("bench", "--calibrate", "-t1", kind="machine")["gflops"] > 0


def product(folder, elem):
    """128 rows by 256 x 64 of that type; of bytes, sums of i32."""
    integers = elem == TensorProto.UINT8
    w = np.random.default_rng(1).integers(-8, 8, (256, 64)).astype(np.int8 if integers else np.float32)
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])] if integers else \
        [helper.make_node("Cast", ["w"], ["c"], to=elem), helper.make_node("MatMul", ["x", "c"], ["y"])]
    return save(folder / "product.onnx", nodes, [value("x", [128, 256], elem)], [value("y", [128, 64], TensorProto.INT32 if integers else elem)], {"w": w})


@pytest.mark.parametrize("elem, kinds", [
    (TensorProto.FLOAT, {"v3": "f32", "v4": "f32", "v4-amx": "f32"}), (TensorProto.DOUBLE, {"v3": "other types"}),
    (TensorProto.UINT8, {"v3": "int8", "v4-vnni": "int8", "v4-amx": "int8-tiles"}),
    (TensorProto.BFLOAT16, {"v3": "f32", "v4-vnni": "f32", "v4-bf16": "bf16", "v4-amx": "bf16-tiles"})])
def test_arithmetic_of_kernels(tmp_path, elem, kinds):
    """Schedules say of each CPU what the multiply-adds are of, and bench which share of what this one reaches in that they have."""
    path = product(tmp_path, elem)
    for cpu, kind in kinds.items():
        done = mcc(path, f"-march=x86-64-{cpu}", "-stop-after=schedule", "-o", "-")
        assert re.findall("# (\\d+) operations of (.*)", done.stdout) == [(str(2 * 128 * 256 * 64), kind)], done.stderr
    got = result("bench", path, "-march=x86-64-v3", "--runs=20", "-t1")
    (kernel,) = [k for k in got["kernels"] if k["flops"]]
    known = kinds["v3"] != "other types"
    assert kernel["arithmetic"] == (kinds["v3"] if known else None) and (kernel["peak"] is None) == (not known)
    if known:
        assert kernel["peak"] == pytest.approx(kernel["flops"] / kernel["ns"] / got["machine"]["peaks"][kinds["v3"]], rel=1e-4)
        assert re.search(rf"^ .* \d+% {kinds['v3']} ", mcc("bench", path, "-march=x86-64-v3", "--runs=20", "-t1").stdout, re.M)
    else:
        assert got["machine"]["peaks"]["f32"] > 0 and "f32" not in mcc("bench", path, "--runs=20", "-t1").stdout


def test_inspect(digits):
    text, got = mcc("inspect", digits).stdout, result("inspect", digits, "--verify", kind="compiled")
    assert got["verified"] and got["runs_here"] and got["bytes"]["file"] == digits.stat().st_size
    sizes = got["bytes"]
    assert sum(sizes[k] for k in ("weights", "runtime", "tables", "names", "graph", "lines", "padding")) + \
        sum(v["code"] for v in sizes["variants"]) == sizes["file"]
    for i, variant in enumerate(sizes["variants"], 1):
        assert sum(f["bytes"] for f in got["functions"] if f["variant"] == i) == variant["code"] > 0
    assert [p["name"] for p in got["inputs"]] == ["picture"] and got["inputs"][0]["dims"] == ["n", 1, 8, 8]
    assert got["symbols"][0] == {"name": "n", "least": 1, "most": None, "step": 1} or got["symbols"][0]["name"] == "n"
    assert f"workspace {got['workspace']['bytes']} bytes" in text and got["workspace"]["at"] == [{"name": "n", "value": 1}]
    assert len(got["kernels"]) == len(re.findall("^kernel ", text, re.M))
    assert {f for k in got["kernels"] for f in k["functions"]} <= {f["name"].split(".")[0] for f in got["functions"]}


def test_inspect_of_other_machines(tmp_path):
    assert mcc(DIGITS, "--target=aarch64-linux-gnu", "-o", tmp_path / "a.so").returncode == 0
    got = result("inspect", tmp_path / "a.so", kind="compiled")
    assert not got["runs_here"] and got["workspace"] is None and not got["verified"]


def test_inspect_of_a_network():
    got = result("inspect", DIGITS, kind="network")
    assert got["weights_bytes"] == 27456 and sum(w["bytes"] for w in got["weights"]) <= 27456
    assert {w["name"]: (w["dims"], w["bytes"], w["padding"]) for w in got["weights"]}["w3"] == ([10, 128], 8192, 3072)
    assert len(got["kernels"]) == 6


def test_every_node_of_a_long_kernel_is_named(tmp_path):
    nodes = [helper.make_node(("Abs", "Sin")[i % 2], [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(100)]
    path = save(tmp_path / "long.onnx", nodes, [value("v0", [64])], [value("v100", [64])])
    assert mcc(path, "-march=native", "-o", tmp_path / "long.so").returncode == 0
    for file, kind in ((path, "network"), (tmp_path / "long.so", "compiled")):
        kernels = [[n["name"] for n in k["nodes"]] for k in result("inspect", file, kind=kind)["kernels"]]
        assert sorted(sum(kernels, [])) == sorted(f"n{i}" for i in range(100)) and max(map(len, kernels)) > 30
        assert sum(line.count("(Sin)") for line in mcc("inspect", file).stdout.splitlines() if line.startswith("kernel ")) == 50


def test_inspect_of_threads(digits):
    got = result("inspect", digits, "--threads=1,2,8", kind="threads")
    assert got["threads"] == [1, 2, 8] and len(got["ns"]) == 3 and got["ns"][0] == pytest.approx(got["alone_ns"])
    assert sum(k["alone_ns"] for k in got["kernels"]) == pytest.approx(got["alone_ns"])


def test_diff(tmp_path):
    path = dense(tmp_path / "m.onnx")
    got = result("diff", path)
    assert got["difference"] is None and got["compared"] > 0 and got["outputs"] == 1
    np.save(tmp_path / "y.npy", np.full((1, 3), 99, np.float32))
    bad = found("diff", path, f"--against=y={tmp_path / 'y.npy'}", status=5)
    assert bad["result"]["difference"]["want"] == 99 and "y" in bad["result"]["difference"]["where"]
    broken = found("diff", DIGITS, "--break-kernel=conv2", "-o", tmp_path / "operands", status=5)["result"]["difference"]
    assert broken["where"].startswith("kernel k") and 0 < broken["differ"] <= broken["elements"]


def test_diff_against_f32(tmp_path):
    path = dense(tmp_path / "m.onnx")
    got = result("diff", path, "--against-f32", "--precision=bf16", kind="rounding")
    assert [o["name"] for o in got["outputs"]] == ["y"] and 0 < got["outputs"][0]["rms"] < 0.05 and got["kernels"]


def test_hostile_names(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", [HOSTILE], ["h"], "first"), helper.make_node("Sigmoid", ["h"], [HOSTILE + "2"], HOSTILE + "1")],
                [value(HOSTILE, [2, 2])], [value(HOSTILE + "2", [2, 2])])
    assert mcc(path, "-o", tmp_path / "m.so").returncode == 0
    got = result("inspect", tmp_path / "m.so", kind="compiled")
    assert got["inputs"][0]["name"] == HOSTILE and got["outputs"][0]["name"] == HOSTILE + "2"
    assert HOSTILE + "1" in [k["name"] for k in got["kernels"]]
    assert [o["name"] for o in result("run", path)["outputs"]] == [HOSTILE + "2"]
    assert HOSTILE + "1" in [k["name"] for k in result("bench", path, "--runs=3")["kernels"]]
    assert result("diff", path)["difference"] is None
    shutil.copy(path, tmp_path / "<&'.onnx")
    assert found("check", tmp_path / "<&'.onnx")["file"].endswith("<&'.onnx")


def test_bytes_that_are_no_utf8(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["QQQQ"], "node")], [value("x", [2])], [value("QQQQ", [2])])
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"\xff\xc0\x80q"))
    done = mcc("check", path, "--json")
    assert json.loads(done.stdout)["command"] == "check"
    assert done.returncode != 0 or result("run", path)["outputs"][0]["name"] == "\u00ff\u00c0\u0080q"
