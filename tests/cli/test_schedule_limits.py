"""Schedules and choices at and beyond the limits of their fields: refused with a reason, or compiled. Never a signal, never an internal error."""
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.tool import mcc, save, value

CPU = "-march=x86-64-v4"
U8 = TensorProto.UINT8


def product(path):
    w = np.random.default_rng(0).standard_normal((64, 320)).astype(np.float32)
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["y"], "y")], [value("x", [7, 64])], [value("y", [7, 320])], {"w": w})


def largest(path):
    return save(path, [helper.make_node("Max", ["x", "z"], ["y"], "y")], [value(n, [7, 600], U8) for n in "xz"], [value("y", [7, 600], U8)], {})


def scatter(path):
    inputs = [value("x", [9, 300], U8), value("i", [4, 1], TensorProto.INT64), value("u", [4, 300], U8)]
    return save(path, [helper.make_node("ScatterND", ["x", "i", "u"], ["y"], "y")], inputs, [value("y", [9, 300], U8)], {})


def told(model, tmp_path, field, number):
    """The compilation with that number in the place of the field's own."""
    text = mcc(model, CPU, "-stop-after=schedule", "-o", "-").stdout
    changed = re.sub(rf"^  {re.escape(field)} +-?\d+", f"  {field} {number}", text, flags=re.M)
    assert changed != text
    (tmp_path / "told.txt").write_text(changed)
    return mcc(model, CPU, f"--schedules={tmp_path / 'told.txt'}", "-o", tmp_path / "a.so")


@pytest.mark.parametrize("vectors, possible", [(8, True), (9, False), (20, False), (4096, False)])
def test_vectors_of_a_tile(tmp_path, vectors, possible):
    """Tiles of more vectors than the emitter has room for overran its stack."""
    model = product(tmp_path / "m.onnx")
    done = mcc(model, CPU, f"--choose=y:tile=1x1x{vectors}", "-o", tmp_path / "a.so")
    assert done.returncode == 0 and ("tile.vectors" in done.stderr) == (not possible), done.stderr
    (tmp_path / "told.txt").write_text(f'schedule k0 "y" x86-64-v4: tiled\n  tile.rows 1\n  tile.columns 1\n  tile.vectors {vectors}\n')
    done = mcc(model, CPU, f"--schedules={tmp_path / 'told.txt'}", "-o", tmp_path / "a.so")
    assert done.returncode == (0 if possible else 2) and ("tile.vectors" in done.stderr) == (not possible), done.stderr


@pytest.mark.parametrize("network", [largest, scatter])
@pytest.mark.parametrize("lanes, possible", [(64, True), (128, True), (256, False), (512, False), (1 << 30, False)])
def test_lanes_of_bytes(tmp_path, network, lanes, possible):
    """A register of the loop IR has at most 128 lanes, however many bytes so many machine registers hold."""
    done = told(network(tmp_path / "m.onnx"), tmp_path, "step.1", lanes)
    assert done.returncode == (0 if possible else 2) and ("lanes" in done.stderr) == (not possible), done.stderr
