"""Operands of stored concats lie in the result: dense blocks, where each concat begins with the one before, copy nothing.

Random blocks (shuffled and repeated operands, concats and operands that are results as well, channels that do not fill
blocks, symbolic batches) against ONNX Runtime; and one plain dense block, of whose concats no kernel is left but the last
piece's.
"""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from support.artifact import Artifact
from support.tool import mcc, remarks, save, value


class Block:
    def __init__(self, seed, channels):
        self.rng, self.nodes, self.constants, self.channels = np.random.default_rng(seed), [], {}, {"x": channels}

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def add(self, op, inputs, channels, **attributes):
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        self.channels[name] = channels
        return name

    def conv(self, x, m, k):
        c, n = self.channels[x], len(self.nodes)
        self.constants[f"w{n}"] = (self.rng.standard_normal((m, c, k, k)) / np.sqrt(c * k * k)).astype(np.float32)
        self.constants[f"b{n}"] = self.rng.standard_normal(m).astype(np.float32)
        return self.add("Conv", [x, f"w{n}", f"b{n}"], m, pads=[k // 2] * 4)

    def concat(self, values):
        return self.add("Concat", values, sum(self.channels[v] for v in values), axis=1)


def random_block(path, seed):
    b = Block(seed, 16 if seed % 2 else 24)
    features, results = [b.add("Relu", ["x"], b.channels["x"])], []
    for _ in range(int(b.rng.integers(2, 6))):
        listed = list(features)
        if b.chance(0.2):
            b.rng.shuffle(listed)
        if b.chance(0.15):
            listed.append(listed[0])
        whole = b.concat(listed) if len(listed) > 1 else listed[0]
        read = b.add("Relu", [whole], b.channels[whole]) if b.chance(0.7) else whole
        new = b.conv(read, b.pick(16, 32, 8, 24), b.pick(1, 3))
        features.append(b.add("Tanh", [new], b.channels[new]) if b.chance(0.3) else new)
        results += [v for v in (whole, features[-1]) if b.chance(0.15)]
    last = b.concat(features)
    results += [b.conv(last, 8, b.pick(1, 3))] + [last] * b.chance(0.2)
    return save(path, b.nodes, [value("x", ["n", b.channels["x"], 7, 5])],
                [value(v, ["n", b.channels[v], 7, 5]) for v in dict.fromkeys(results)], b.constants)


@pytest.mark.parametrize("seed", range(6))
def test_random_blocks(tmp_path, seed):
    model, so = random_block(tmp_path / "block.onnx", seed), tmp_path / "block.so"
    r = mcc(model, "-o", so, f"--layout={('auto', 'auto', 'NHWC')[seed % 3]}")
    assert r.returncode == 0, r.stderr
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    with Artifact(so, threads=2) as a:
        for n in (1, 3):
            x = np.random.default_rng(seed).standard_normal((n, 16 if seed % 2 else 24, 7, 5)).astype(np.float32)
            for got, want in zip(a.run([x]), session.run(None, {"x": x})):
                assert got.shape == want.shape
                assert np.abs(got - want).max() <= 3e-5 * np.abs(want).max()


def test_dense_block_copies_nothing(tmp_path):
    b = Block(0, 32)
    features = [b.conv("x", 32, 1)]
    for _ in range(5):
        whole = b.concat(features) if len(features) > 1 else features[0]
        features.append(b.conv(b.add("Relu", [whole], b.channels[whole]), 16, 3))
    b.conv(b.concat(features), 8, 1)
    model = save(tmp_path / "dense.onnx", b.nodes, [value("x", [1, 32, 10, 10])], [value(b.nodes[-1].output[0], [1, 8, 10, 10])],
                 b.constants)
    found = remarks("-Rpass-analysis=schedule", model, "-o", tmp_path / "dense.so", "--variants=x86-64-v3")
    assert found and not any(row["operator"] == "Concat" and "(map)" in row["message"] for row in found), found
