"""Loops that become one kernel: what the program launches, that answers stay, and that a step asks for no memory."""
import ctypes as c
import re

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

from support.artifact import Artifact
from support.compare import Model, floats, node
from support.tool import value

F = np.float32
ALLOC = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t)
RELEASE = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t)


def program_of(model):
    text = model.dump("emit", "-march=native")
    return re.search(r"^program .*?^}", text, re.M | re.S)[0]


def layer(tmp_path, op, steps, batch, size, hidden, **about):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    dirs = 2 if about.get("direction") == "bidirectional" else 1
    constants = {"w": floats(dirs, gates * hidden, size, scale=0.3), "r": floats(dirs, gates * hidden, hidden, scale=0.3, seed=1),
                 "b": floats(dirs, 2 * gates * hidden, seed=2)}
    outputs = ["y", "h"] + (["c"] if op == "LSTM" else [])
    return Model(tmp_path, [helper.make_node(op, ["x", "w", "r", "b"], outputs, hidden_size=hidden, **about)],
                 [value("x", [steps, batch, size])], [value(o, None) for o in outputs], constants)


@pytest.mark.parametrize("op,about", [("LSTM", {}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {}),
                                      ("LSTM", {"direction": "bidirectional"})])
def test_layer_is_one_kernel(op, about, tmp_path):
    """Whatever the number of steps: no loop in the program, and no launch for each step."""
    model = layer(tmp_path, op, "s", 1, 20, 36, **about)
    program = program_of(model)
    assert not re.search(r"\bfor %", program) and "mcc_rt_segment" not in program, program
    for steps in (1, 2, 3, 40):
        model.compare([floats(steps, 1, 20, seed=steps)])


@pytest.mark.parametrize("steps,loop", [(1, False), (2, False), (3, True)])
def test_few_known_steps(steps, loop, tmp_path):
    """One and two steps are no loop, more are one."""
    model = layer(tmp_path, "LSTM", steps, 2, 5, 7)
    assert ("loop(" in model.dump("legalize")) == loop
    model.compare([floats(steps, 2, 5)])


def test_size_of_a_step_only_the_run_knows(tmp_path):
    """A step of a few rows runs inside the one kernel, one of many is worth threads: both forms exist and agree."""
    model = layer(tmp_path, "LSTM", "s", "b", 24, 40)
    assert len(re.findall(r"\bfor %", program_of(model))) == 1
    for steps, batch in ((3, 1), (4, 700), (1, 2), (2, 300)):
        model.compare([floats(steps, batch, 24, seed=batch)])


def test_a_step_takes_no_memory(tmp_path):
    """The second run of the same sizes asks the host for nothing."""
    model, asked, kept = layer(tmp_path, "LSTM", "s", 1, 20, 36), [], {}

    def alloc(user, size, align):
        asked.append(size)
        memory = c.create_string_buffer(size + align)
        at = (c.addressof(memory) + align - 1) // align * align
        kept[at] = memory
        return at

    def release(user, at, size):
        kept.pop(at, None)

    callbacks = ALLOC(alloc), RELEASE(release)

    with Artifact(model.compile(), threads=1, alloc=callbacks[0], release=callbacks[1]) as a:
        x = floats(9, 1, 20)
        outputs = [np.zeros((9, 1, 1, 36), F), np.zeros((1, 1, 36), F), np.zeros((1, 1, 36), F)]
        a.run_into([x], outputs)
        assert asked
        first, asked[:] = [o.copy() for o in outputs], []
        a.run_into([x], outputs)
        assert not asked and all((w == g).all() for w, g in zip(first, outputs))


def test_the_last_of_a_carried_value(tmp_path):
    """Early ends after any number of trips, odd and even: what is handed on lies in one of three places."""
    body = helper.make_graph(
        [node("Mul", "s w", "t"), node("Add", "t one", "u"), node("ReduceSum", "u", "sum", keepdims=0), node("Less", "sum limit", "go"),
         node("Sub", "v s", "v2")],
        "body", [value("i", [], T.INT64), value("more", [], T.BOOL), value("s", [1, 19]), value("v", [1, 19])],
        [value("go", [], T.BOOL), value("u", [1, 19]), value("v2", [1, 19])])
    model = Model(tmp_path, [node("Loop", "m true s0 v0", "s1 v1", body=body), node("Add", "s1 v1", "y"), node("Mul", "s1 s0", "z")],
                  [value("s0", [1, 19]), value("v0", [1, 19]), value("m", [], T.INT64), value("limit", [])],
                  [value("y", [1, 19]), value("z", [1, 19])],
                  {"w": floats(1, 19, scale=0.2), "one": F(0.5), "true": np.array(True)})
    assert not re.search(r"\bfor %", program_of(model))
    s, v = floats(1, 19, seed=4), floats(1, 19, seed=5)
    for trips in (0, 1, 2, 3, 8):
        model.compare([s, v, np.array(trips), F(1e9)])
    for limit in (-1e9, 9.0, 11.0, 11.8):
        model.compare([s, v, np.array(50), F(limit)])
