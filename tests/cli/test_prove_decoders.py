"""mcc prove: what language models have that other networks lack."""
import json

import numpy as np
from onnx import TensorProto, helper

from support.tool import mcc, save, value


def embedded(path):
    """Rows of a table, rounded to bytes in blocks: no input makes a block 0, which the code asks for."""
    r = np.random.default_rng(5)
    data = {"b": r.integers(0, 256, (32, 2, 16)).astype(np.uint8), "s": (r.random(64) / 100).astype(np.float32)}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], "rows"),
             helper.make_node("MatMulNBits", ["x", *data], ["y"], "product", domain="com.microsoft", K=64, N=32, bits=4, block_size=32,
                              accuracy_level=4)]
    table = r.standard_normal((50, 64)).astype(np.float32)
    return save(path, nodes, [value("ids", ["n"], TensorProto.INT64)], [value("y", ["n", 32])], {"table": table, **data})


def cache(path):
    """New rows, which go where the old ones are if the host gives the same memory."""
    return save(path, [helper.make_node("TensorScatter", ["past", "rows", "at"], ["present"], "write", axis=2)],
                [value("past", [1, 2, 8, 16]), value("rows", [1, 2, "n", 16]), value("at", [1], TensorProto.INT64)],
                [value("present", [1, 2, 8, 16])], opset=24)


def masked(path):
    """Queries of which a mask may leave no key; one row of them has its keys in parts."""
    return save(path, [helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], "attention")],
                [value("q", [1, 2, "s", 16]), value("k", [1, 2, "n", 16]), value("v", [1, 2, "n", 16]), value("mask", ["s", "m"], TensorProto.BOOL)],
                [value("y", [1, 2, "s", 16])], opset=24)


CPU = "--march=x86-64-v3"


def proof(path, *args):
    [variant] = json.loads(mcc("prove", path, CPU, "--json", *args, timeout=300).stdout)["result"]["variants"]
    return variant


def test_blocks_that_are_0(tmp_path):
    """What a kernel reads is drawn where it is stored; so whole blocks of it are 0, and code that is wrong there, or elsewhere, is rejected."""
    path = embedded(tmp_path / "net.onnx")
    variant = proof(path)
    assert variant["program"]["proved"] and variant["proved"] == len(variant["kernels"]) > 4
    sites = range(12, 492, 24)
    left = [site for site in sites if mcc("prove", path, CPU, f"--mutate={site}", "-q").returncode == 0]
    assert len(left) <= 2, left  # 288 and 312 prefetch


def test_cache_in_place(tmp_path):
    """Some draws give the cache's memory for the result: the code that does not copy it runs."""
    path = cache(tmp_path / "net.onnx")
    write = proof(path)["kernels"][0]
    assert "scatter" in write["kernel"] and write["proved"]
    for site in range(1, 7):  # others are checks of positions, which the network computes and which are never negative
        changed = proof(path, f"--mutate={site}")
        assert not (changed["program"]["proved"] and changed["kernels"][0]["proved"]), site


def test_parts_without_keys(tmp_path):
    """A mask that leaves some parts of the keys, or all, without any: -FLT_MAX, which stands for a maximum of nothing, is below all."""
    path = masked(tmp_path / "net.onnx")
    for keys, mask in ((129, 129), (300, 1)):
        variant = proof(path, "--dim=s=1", f"--dim=n={keys}", f"--dim=m={mask}")
        assert variant["program"]["proved"] and not any("differ" in (k["why"] or "") for k in variant["kernels"])
