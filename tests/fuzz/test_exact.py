"""What must not matter gives the same bits in the field, a few forms: `make fuzz-exact` draws as many as one likes. MCC_FUZZ_SEED: the first."""
import collections
import contextlib
import os

import numpy as np
import onnx
import pytest

from cli.test_prove import image, mlp
from fuzz import equal, exact

N = 60


def test_forms():
    seed = int(os.environ.get("MCC_FUZZ_SEED", 1))
    print(f"{N} forms from seed {seed}")
    count, _, bad = exact.run(N, seed, most=4)
    assert not bad and count["same"] > 0.8 * N, (count, bad)


def another(model):
    """One weight has another sign."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    w = onnx.numpy_helper.to_array(made.graph.initializer[0]).copy()
    w.flat[0] = -w.flat[0]
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(w, made.graph.initializer[0].name))
    return made


@pytest.mark.parametrize("options, changed, want", [([], False, "same"), (["--break-kernel=first"], False, "differs"), ([], True, "proved")])
def test_what_differs_is_seen(tmp_path, options, changed, want):
    """Wrong code; and right code for another network, which the proof takes for right."""
    with contextlib.closing(exact.Runner()) as runner:
        subject = exact.subject("mlp", mlp(tmp_path / "net.onnx"), [], tmp_path, runner)
        form = exact.Form(["-march=native", *options], model=another(subject.model) if changed else None, threads=3)
        word, text = exact.judge(subject, form, np.random.default_rng(0), tmp_path, runner)
    assert word == want and ("elements differ" in text) == (want != "same"), (word, text)


def test_equal_networks(tmp_path):
    """Every way is drawn, and each network is valid."""
    seen, rng, model = collections.Counter(), np.random.default_rng(0), onnx.load(image(tmp_path / "net.onnx"))
    for _ in range(100):
        other, said = equal.equal(model, rng)
        onnx.checker.check_model(other, full_check=True)
        seen.update(text.split()[0] for text in said.split("; "))
    assert set(seen) == {way.__name__ for way in equal.ANY + equal.OF_FLOATS}
