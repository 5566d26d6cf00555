"""What must not matter gives the same bits in the field, a few forms: `make fuzz-exact` draws as many as one likes. MCC_FUZZ_SEED: the first."""
import collections
import json
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
    count, _, bad = exact.run_all(N, seed, most=4)
    assert not bad and count["same"] > 0.8 * N, (count, bad)


def test_results_add_up(tmp_path):
    """A network that is in the file is not run again; no form counts twice."""
    for n in (3, 6):
        count, _, bad = exact.run_all(n, 1, ["mlp", "image"], most=3, results=tmp_path / "results")
        assert not bad and count["same"] == n, (count, bad)
    names = [json.loads(line)["name"] for line in (tmp_path / "results").read_text().splitlines()]
    assert names == ["mlp", "image"]


def test_the_same_code_counts_once(tmp_path):
    """Another option that changes nothing; other names of nodes, and a node that goes."""
    subject = exact.subject("mlp", mlp(tmp_path / "net.onnx"), [], tmp_path)
    other = onnx.ModelProto.FromString(subject.model.SerializeToString())
    other.graph.node.insert(0, onnx.helper.make_node("Identity", ["x"], ["same"], "same"))
    other.graph.node[1].input[0] = "same"

    def words():
        library = exact.Library()
        for form in (exact.Form(["-march=native"]), exact.Form(["-march=native", "--sparse=off"]), exact.Form(["-march=native"], "same", other)):
            word, _, seen = exact.judge(library, subject, form, np.random.default_rng(0), tmp_path)
            subject.seen.update(seen)
            yield word

    assert list(exact.apart(words)) == ["same", "again", "again"]


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
    subject = exact.subject("mlp", mlp(tmp_path / "net.onnx"), [], tmp_path)
    form = exact.Form(["-march=native", *options], model=another(subject.model) if changed else None)
    [(word, text, _)] = exact.apart(lambda: iter([exact.judge(exact.Library(), subject, form, np.random.default_rng(0), tmp_path)]))
    assert word == want and ("elements differ" in text) == (want != "same"), (word, text)


def test_extents_that_a_body_declares():
    """It may be given others."""
    f32, make = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["a"], ["b"]), onnx.helper.make_node("Abs", ["e"], ["r"])], "body",
                                  [make("a", f32, [5]), make("e", f32, [5])], [make("b", f32, [5]), make("r", f32, [5])])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Scan", ["x", "z"], ["y", "w"], body=body, num_scan_inputs=1)], "g",
                                   [make("x", f32, ["n"]), make("z", f32, [3, "n"])], [make("y", f32, None), make("w", f32, None)])
    types = equal.types_of(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    assert types["y"] == (f32, [-1]) and types["w"] == (f32, [3, -1])


def test_sizes_that_never_fit(tmp_path):
    """With them an artifact of open sizes ends with an error, and the compiler refuses them as well."""
    f32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x3"], ["y"]), onnx.helper.make_node("Slice", ["x", "from", "to"], ["x3"])][::-1],
                                   "g", [onnx.helper.make_tensor_value_info("x", f32, ["n"])], [onnx.helper.make_tensor_value_info("y", f32, ["n"])],
                                   [onnx.numpy_helper.from_array(np.array([v]), name) for name, v in (("from", 0), ("to", 3))])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    subject = exact.subject("slice", tmp_path / "net.onnx", [], tmp_path)
    at = next(k for k, (_, _, want) in enumerate(subject.sizes) if isinstance(want, int))
    form = exact.Form(["-march=native", *subject.sizes[at][1]], size=at)
    [(word, text, _)] = exact.apart(lambda: iter([exact.judge(exact.Library(), subject, form, np.random.default_rng(0), tmp_path)]))
    assert word == "refused" and "broadcast" in text, (word, text)


def test_what_dies_is_seen():
    """By a signal."""
    with pytest.raises(exact.Died, match="signal 9"):
        list(exact.apart(lambda: iter([os.kill(os.getpid(), 9)])))


def test_equal_networks(tmp_path):
    """Every way is drawn, and each network is valid."""
    seen, rng, model = collections.Counter(), np.random.default_rng(0), onnx.load(image(tmp_path / "net.onnx"))
    for _ in range(100):
        other, said = equal.equal(model, rng)
        onnx.checker.check_model(other, full_check=True)
        seen.update(text.split()[0] for text in said.split("; "))
    assert set(seen) == {way.__name__ for way in equal.ANY + equal.OF_FLOATS}
