"""MobileNetV3: stand-ins with the block tables of the real networks, narrowed (tests/real compiles the exported ones).

What must hold of any of them: equal to ONNX Runtime for N = 1 and, from one shared object, for every N; after `fuse` no
activation is a kernel of its own, whatever its spelling and whether batch normalisation is folded.
"""
import collections

import numpy as np
import pytest

from support.compare import Model, floats
from support.mobilenet import Network
from support.tool import mcc, value

SIDE, CLASSES = 64, 10
# what the block tables say: Conv, Gemm, HardSwish, HardSigmoid, Relu, residual Add; parameters at full width
COUNTS = {"small": (52, 2, 19, 9, 14, 6), "large": (62, 2, 21, 8, 19, 10)}
PARAMETERS = {"small": 2542856, "large": 5483032}
OPERATORS = ("Conv", "Gemm", "HardSwish", "HardSigmoid", "Relu", "Add")


def stand_in(folder, kind, batch, keep_norm=False, pieces=False):
    nodes, constants = Network(kind, 0.25, CLASSES, keep_norm, pieces).build()
    return Model(folder, nodes, [value("x", [batch, 3, SIDE, SIDE])], [value("y", [batch, CLASSES])], constants,
                 13 if pieces else 17)


def compare(model, x, flags=("-O2",)):
    """Within 1e-4 relative; what is near zero, within 5e-5 of the largest output (in double precision both are that far off)."""
    want = model.want([x])
    model.compare([x], want, flags, rtol=1e-4, atol=5e-5 * max(np.abs(want[0]).max(), 0.2))


def stand_alone_activations(model):
    """Kernels after fuse that only apply scalar functions to one tensor. (Maps with a broadcast are the squeeze-and-excitation
    multiplications; a lone identity is a copy into a padded buffer.)"""
    lines = model.kernels()
    assert len(lines) > 60
    return [l for l in lines if l.startswith("map: ") and "broadcast" not in l and not l.endswith("identity")]


@pytest.mark.parametrize("kind", ["small", "large"])
def test_the_table_is_the_networks(kind):
    nodes, constants = Network(kind).build()
    census = collections.Counter(n.op_type for n in nodes)
    assert tuple(census[o] for o in OPERATORS) == COUNTS[kind]
    nodes, constants = Network(kind, keep_norm=True).build()
    norms = {n for node in nodes if node.op_type == "BatchNormalization" for n in node.input[3:]}
    assert sum(a.size for name, a in constants.items() if name not in norms) == PARAMETERS[kind]


@pytest.mark.parametrize("keep_norm", [False, True], ids=["folded", "norms"])
@pytest.mark.parametrize("kind", ["small", "large"])
def test_fixed_and_symbolic_batch(kind, keep_norm, tmp_path):
    (tmp_path / "one").mkdir()
    one = stand_in(tmp_path / "one", kind, 1, keep_norm)
    compare(one, floats(1, 3, SIDE, SIDE))
    every = stand_in(tmp_path, kind, "n", keep_norm)
    for n in (1, 2, 5):
        compare(every, floats(n, 3, SIDE, SIDE, seed=n))
    assert not stand_alone_activations(one) and not stand_alone_activations(every)


@pytest.mark.parametrize("kind", ["small", "large"])
def test_activations_in_pieces(kind, tmp_path):
    model = stand_in(tmp_path, kind, "n", pieces=True)
    x = floats(2, 3, SIDE, SIDE)
    compare(model, x)
    assert not stand_alone_activations(model)
    (tmp_path / "named").mkdir()
    named = stand_in(tmp_path / "named", kind, "n")
    assert np.array_equal(model.run([x], "-O2")[0], named.run([x], "-O2")[0])


def test_what_the_other_options_give(tmp_path):
    """Nothing fused, and every layout: the same answers."""
    model = stand_in(tmp_path, "small", "n")
    x = floats(2, 3, SIDE, SIDE)
    compare(model, x, ["-O0", "--layout=NCHW", "--layout=NHWC", "--layout=NC16c"])


CPUS = [(words[1], words[0]) for words in map(str.split, mcc("-march=help").stdout.splitlines())
        if len(words) > 1 and words[1] in ("x86_64", "aarch64", "riscv64")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """At full width, so that strips, stages and blocks are weighed against caches."""
    nodes, constants = Network("large").build()
    return Model(tmp_path_factory.mktemp("whole"), nodes, [value("x", [1, 3, 224, 224])], [value("y", [1, 1000])], constants, 17)


@pytest.mark.parametrize("arch, cpu", CPUS, ids=[cpu for _, cpu in CPUS])
def test_decided_for_every_cpu(arch, cpu, whole):
    """What is decided once for all variants follows the best CPU of the artifact, which may be any row of target.def."""
    done = mcc("-q", f"--target={arch}-linux-gnu", f"-march={cpu}", "-stop-after=schedule", whole.path, "-o", "-")
    assert done.returncode == 0, done.stderr
