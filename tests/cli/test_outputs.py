"""What the command writes besides a plain shared object: weights in a sidecar, objects, archives."""
import json
import shutil
import struct
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper

from support.tool import ROOT, dense, mcc, result, save, value

PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "mcc.h"
%s
static int try(const mcc_api *api)
{
    float x[1][4] = {{1, 2, 3, 4}}, y[1][3];
    int64_t in_shape[2] = {1, 4}, out_shape[2] = {1, 3};
    DLTensor in = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, in_shape, 0, 0}, out = {y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, 0, 0};
    const DLTensor *ins[1] = {&in};
    DLTensor *outs[1] = {&out};
    mcc_model *model;
    mcc_ctx *ctx;
    mcc_error error;
    if (!api || api->open(NULL, &model, &error) || api->ctx_new(model, NULL, 0, &ctx, &error) || api->run(ctx, ins, outs, &error))
        return puts(error.text), 1;
    printf("%%.6f %%.6f %%.6f\\n", y[0][0], y[0][1], y[0][2]);
    api->ctx_free(ctx);
    api->close(model);
    return 0;
}
int main(void) { return %s; }
"""


@pytest.fixture
def model(tmp_path):
    return dense(tmp_path / "net.onnx")


def wanted(model):
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    return np.maximum(np.array([[1, 2, 3, 4]], np.float32) @ tensors["w"] + tensors["b"], 0)


def program(folder, declare, calls, *files):
    source = folder / "main.c"
    source.write_text(PROGRAM % (declare, calls))
    command = ["gcc", "-std=c11", "-Wall", "-Werror", f"-I{ROOT}/runtime", "-o", folder / "main", source, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "main"], capture_output=True, text=True)


def sidecar_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    assert (8 + size) % 64 == 0
    head = json.loads(data[8:8 + size])
    meta = head.pop("__metadata__")
    assert meta["format"] == "mcc" and len(meta["xxh64"]) == 16
    at = 0
    for begin, end in sorted(t["data_offsets"] for t in head.values()):
        assert begin == at     # no holes, no overlap
        at = end
    assert at == len(data) - 8 - size
    return head, data[8 + size:]


# ---- sidecar ---------------------------------------------------------------------------------------------------

@pytest.fixture
def beside(model, tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    done = mcc(model, "--weights=sidecar", "-o", folder / "net.so")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["net.mccw", "net.so"]
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3, 4]], np.float32))
    return folder


def run(library, tmp_path):
    return mcc("run", library, "-i", f"x={tmp_path}/x.npy", "-o", tmp_path / "out")


def test_sidecar_runs_from_anywhere(beside, model, tmp_path):
    moved = tmp_path / "moved"
    shutil.move(beside, moved)
    assert run(moved / "net.so", tmp_path).returncode == 0
    np.testing.assert_allclose(np.load(tmp_path / "out/y.npy"), wanted(model), rtol=1e-5)


def test_sidecar_is_safetensors(beside, model):
    head, data = sidecar_tensors(beside / "net.mccw")
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer}
    for name, tensor in tensors.items():
        entry = head[name]
        assert entry["dtype"] == "F32" and entry["data_offsets"][0] % 64 == 0
        stored = np.frombuffer(data[slice(*entry["data_offsets"])], np.float32)
        if entry["shape"] == list(tensor.shape):
            assert (stored.reshape(tensor.shape) == tensor).all()
        assert set(tensor.ravel()) <= set(stored) | {0}


def test_sidecar_names_are_json(tmp_path):
    odd = 'a"b\\c\n\u00e9'
    path = save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", odd], ["y"])], [value("x", [64])], [value("y", [64])],
                {odd: np.arange(64, dtype=np.float32)})
    assert mcc(path, "--weights=sidecar", "-o", tmp_path / "m.so").returncode == 0
    assert odd in sidecar_tensors(tmp_path / "m.mccw")[0]


def test_sidecar_errors_are_codes(beside, tmp_path):
    good = (beside / "net.mccw").read_bytes()

    def refused(word):
        done = run(beside / "net.so", tmp_path)
        assert done.returncode == 3 and word in done.stderr and "code -5" in done.stderr, done.stderr

    (beside / "net.mccw").unlink()
    refused("cannot open")
    (beside / "net.mccw").write_bytes(good[:-1])
    refused("expected")
    (beside / "net.mccw").write_bytes(good.replace(b'"format":"mcc"', b'"format":"mcd"'))
    refused("another model")
    damaged = bytearray(good)
    damaged[-100] ^= 1
    (beside / "net.mccw").write_bytes(damaged)
    assert run(beside / "net.so", tmp_path).returncode == 0     # open reads the head only
    done = mcc("inspect", beside / "net.so", "--verify")
    assert done.returncode == 3 and "hash differs" in done.stderr
    (beside / "net.mccw").write_bytes(good)
    assert result("inspect", beside / "net.so", "--verify")["bytes"]["sidecar"] == len(good)


def test_sidecar_is_reproducible_and_shared(model, tmp_path):
    for name, jobs in (("a", 1), ("b", 2)):
        assert mcc(model, "--weights=sidecar", "-j", jobs, "-o", tmp_path / f"{name}.so").returncode == 0
    assert (tmp_path / "a.mccw").read_bytes() == (tmp_path / "b.mccw").read_bytes()
    assert mcc(model, "--weights=sidecar", "-O1", "-o", tmp_path / "c.so").returncode == 0


def test_sidecar_never_overwrites_an_input(model, tmp_path):
    shutil.copy(model, tmp_path / "net.mccw")
    before = (tmp_path / "net.mccw").read_bytes()
    assert mcc(tmp_path / "net.mccw", "--weights=sidecar", "-o", tmp_path / "net.so").returncode == 2
    assert (tmp_path / "net.mccw").read_bytes() == before and not (tmp_path / "net.so").exists()
    (tmp_path / "dir.mccw").mkdir()
    assert mcc(model, "--weights=sidecar", "-o", tmp_path / "dir.so").returncode == 3


# ---- objects and archives -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("suffix,more", [("o", []), ("a", []), ("a", ["-c"]), ("a", ["--weights=sidecar"]), ("o", ["--weights=sidecar"])])
def test_objects_link_into_programs(model, tmp_path, suffix, more):
    done = mcc(model, "-o", tmp_path / f"net.{suffix}", *more)
    assert done.returncode == 0, done.stderr
    done = program(tmp_path, "", "try(mcc_query(MCC_ABI))", tmp_path / f"net.{suffix}")
    assert done.returncode == 0, done.stdout
    np.testing.assert_allclose([float(v) for v in done.stdout.split()], wanted(model)[0], rtol=1e-5)


def test_two_prefixed_archives_in_one_program(model, tmp_path):
    for name in ("one", "two"):
        assert mcc(model, f"--prefix={name}", "-o", tmp_path / f"{name}.a").returncode == 0
    listed = subprocess.run(["nm", "-g", "--defined-only", tmp_path / "one.a"], capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in listed.splitlines() if " T " in line] == ["one_mcc_query"]
    assert "model.o" in subprocess.run(["ar", "t", tmp_path / "one.a"], capture_output=True, text=True).stdout
    declare = "const mcc_api *one_mcc_query(uint32_t), *two_mcc_query(uint32_t);"
    done = program(tmp_path, declare, "try(one_mcc_query(MCC_ABI)) + try(two_mcc_query(MCC_ABI))", tmp_path / "one.a", tmp_path / "two.a")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 and lines[0] == lines[1]


def test_archive_needs_an_entry_function_only(model, tmp_path):
    """The archive's index names the query function, so `-lnet` pulls the member in."""
    assert mcc(model, "-o", tmp_path / "libnet.a").returncode == 0
    done = program(tmp_path, "", "try(mcc_query(MCC_ABI))", f"-L{tmp_path}", "-lnet")
    assert done.returncode == 0


# ---- inspect ------------------------------------------------------------------------------------------------------

def test_inspect_counts_code_by_variant(model, tmp_path):
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    variants = result("inspect", tmp_path / "net.so")["bytes"]["variants"]
    assert [v["cpu"] for v in variants] == ["x86-64-v4", "x86-64-v3", "x86-64-v2"] and all(v["code"] > 0 for v in variants)


def test_sizes_that_do_not_fit(tmp_path):
    """A run at the least sizes that the network refuses names them; those of --dim are not named."""
    path = save(tmp_path / "net.onnx", [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Add", ["r", "b"], ["y"])],
                [value("x", ["n"]), value("b", ["m"])], [value("y", None)], {"s": np.int64([2, 2])})
    assert mcc(path, "-o", tmp_path / "net.so").returncode == 0
    done = mcc("bench", tmp_path / "net.so")
    assert done.returncode and "by --dim=NAME=N, are the least: n=1, m=1" in done.stderr, done.stderr
    assert "are the least: m=1" in mcc("bench", tmp_path / "net.so", "--dim=n=3").stderr
    assert mcc("bench", tmp_path / "net.so", "--dim=n=4", "--runs=1").returncode == 0
