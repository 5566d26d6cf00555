"""mcc prove --machine: machine code has the bits of its loop IR, and changed code has not."""
import json

import pytest
from onnx import helper

from cli.test_prove import SCHEMA, SPANS, attention, image, mlp, quantized
from support import schema
from support.tool import DIGITS, mcc, save, value

ONE = "--march=native"


def compared(path, *args, status=0):
    done = mcc("prove", path, "--machine=only", "--json", *args, timeout=300)
    assert done.returncode == status, (done.stdout, done.stderr)
    data = json.loads(done.stdout)
    assert schema.wrong(data, SCHEMA, SCHEMA) is None
    return data["result"]["machine"]


@pytest.mark.parametrize("make, options", [(mlp, []), (image, [ONE]), (image, [ONE, "--choose=conv2:winograd=6"]), (image, ["--march=x86-64-v2"]),
                                           (attention, [ONE, SPANS]), (quantized, []),
                                           (mlp, ["--strict"]), (lambda path: DIGITS, [ONE, "-O0"])])
def test_same_bits(tmp_path, make, options):
    machine = compared(make(tmp_path / "net.onnx"), *options)
    assert machine["agrees"]
    for variant in machine["variants"]:
        assert variant["runs_here"] and variant["program"] is None and variant["kernels"]
        assert all(k["agrees"] and k["elements"] > 0 and k["indices"] <= k["of"] and k["draws"] % 3 == 0 for k in variant["kernels"])


@pytest.mark.parametrize("make, options, step", [(mlp, [], 7), (image, ["--choose=conv2:winograd=6"], 97), (attention, [SPANS], 29), (quantized, [], 23)])
def test_mutants(tmp_path, make, options, step):
    """Statements that machine code has another one of than the loop IR. Those that are left changed a prefetch, or what no value depends on."""
    path, left, n = make(tmp_path / "net.onnx"), [], 0
    for site in range(3, 14 * step, step):
        done = mcc("prove", path, ONE, "--machine=only", f"--mutate={site}", "-q", *options, timeout=300)
        if done.returncode == 2:
            assert "fewer statements" in done.stderr
            break
        assert done.returncode in (0, 1, 5, 6)
        n += 1
        left += [site] if done.returncode == 0 else []
    assert n > 8 and len(left) * 6 <= n, left


def test_functions(tmp_path):
    """Every digit of exp, whose statements the field has a hash for."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Exp", ["x"], ["y"], "n")], [value("x", [1, 64])], [value("y", [1, 64])])
    assert compared(path, ONE)["agrees"]
    for site in range(1, 30):
        done = mcc("prove", path, ONE, "--machine=only", f"--mutate={site}", "-q")
        if done.returncode == 2:
            break
        assert done.returncode == 6, site
    assert site > 8


def test_what_differs(tmp_path):
    """The kernel, the element, both values."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Sub", ["a", "b"], ["y"], "minus")], [value("a", [40]), value("b", [40])], [value("y", [40])])
    done = mcc("prove", path, ONE, "--machine=only", "--mutate=1")
    assert done.returncode == 6
    for word in ("0 of 1 kernels", "minus", "element ", "(f32) is 0x", "by machine code", "by the loop IR", "parallel indices 0 to 0"):
        assert word in done.stdout, (word, done.stdout)


def test_sizes(tmp_path):
    """Each function runs at some size; where sizes are given, those that are for others need not."""
    path = mlp(tmp_path / "net.onnx")
    assert all(k["draws"] for v in compared(path)["variants"] for k in v["kernels"])
    assert compared(path, "--dim=n=1")["agrees"]
    assert not compared(path, "--dim=n=0", status=6)["agrees"]


def test_checks(tmp_path):
    """Machine code fails where the loop IR does."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Div", ["a", "b"], ["y"], "n")], [value("a", [40], 7), value("b", [40], 7)], [value("y", [40], 7)])
    [variant] = compared(path, ONE)["variants"]
    assert variant["program"] is None and all(k["agrees"] for k in variant["kernels"])


def test_what_it_cannot_compare(tmp_path):
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "n"), helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [4])], [value("y", [8])])
    compared(path, ONE)
    text = save(tmp_path / "text.onnx", [helper.make_node("StringNormalizer", ["x"], ["y"], "n", case_change_action="LOWER")],
                [value("x", [2], 8)], [value("y", [2], 8)])
    [variant] = compared(text, ONE, status=6)["variants"]
    assert "only networks of tensors" in variant["program"]


def test_with_the_proof(tmp_path):
    """Only where it is asked for; the file has it as well."""
    path = mlp(tmp_path / "net.onnx")
    assert json.loads(mcc("prove", path, ONE, "--dim=n=2", "--json").stdout)["result"]["machine"] is None
    done = mcc("prove", path, ONE, "--dim=n=2", "--machine=on", "-o", tmp_path / "proof.json")
    assert done.returncode == 0 and "kernels proved" in done.stdout and "kernels has the loop IR's bits" in done.stdout
    written = json.loads((tmp_path / "proof.json").read_text())
    assert written["proved"] and written["machine"]["agrees"] and written["variants"]
