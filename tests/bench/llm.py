#!/usr/bin/env python3
"""Language models beside ONNX Runtime on the same file: prefill, and one token behind a past, in turns.

usage: llm.py [--shapes tiny,smollm2-135m,qwen2.5-0.5b] [--forms f32,int4] [--layers N] [--past 128,1024] [--prefill 128] [--threads N]
              [--rounds N] [--seconds S]                               make bench-llm SHAPES=smollm2-135m FORMS=int4 LAYERS=6

Networks have the shape of the model that they are called after, the operators that onnxruntime-genai's builder writes (GroupQueryAttention
with packed heads and rotary inside, SkipSimplifiedLayerNormalization, MatMulNBits of blocks of 32 with accuracy_level 4), and drawn weights. Caches lie
in one buffer for past and present in both, as onnxruntime-genai has them (here: ONNX Runtime with I/O binding). First eight greedy tokens of
both are compared. Then milliseconds of each, the ratio (above 1: mcc is faster), that with --last-logits, which ONNX Runtime has not, and the
file's and the artifact's size. With one thread times are processor time, so that a busy machine may be measured too; with more they are of the clock.
"""
import argparse
import ctypes
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import turns  # noqa: E402
from support.decoder import Compiled, Reference, cache_of, feed, is_cache  # noqa: E402
from support.tool import MCC  # noqa: E402

# width, layers, heads, heads of keys, inner width, words, bias of the packed heads
SHAPES = {"tiny": (64, 2, 4, 2, 192, 320, True), "smollm2-135m": (576, 30, 9, 3, 1536, 49152, False), "qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151936, True)}
MS, BLOCK, STEPS, ROTATED = "com.microsoft", 32, 8, 4096


class Network:
    """A decoder, written node by node."""

    def __init__(self, shape, layers, form):
        self.width, n, self.heads, self.keys, self.inner, self.words, self.bias = SHAPES[shape]
        self.layers, self.size, self.form, self.rng = layers or n, SHAPES[shape][0] // SHAPES[shape][2], form, np.random.default_rng(1)
        self.nodes, self.constants = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op, inputs, results=(0,), domain="", **attributes):
        """results: those that are wanted, by number."""
        name = f"{op}_{len(self.nodes)}"
        out = [f"{name}_{i}" if i in results else "" for i in range(max(results) + 1)]
        self.nodes.append(helper.make_node(op, inputs, out, name, domain=domain, **attributes))
        return [out[i] for i in results] if len(results) > 1 else out[0]

    def product(self, x, k, n):
        name = f"w{len(self.nodes)}"
        if self.form == "f32":
            return self.add("MatMul", [x, self.constant(name, self.rng.standard_normal((k, n), np.float32) / np.float32(k**0.5))])
        blocks = -(-k // BLOCK)
        packed = self.constant(name, self.rng.integers(0, 256, (n, blocks, BLOCK // 2), np.uint8))
        scales = self.constant(name + "s", np.full((n, blocks), 0.2 / k**0.5, np.float32))
        return self.add("MatMulNBits", [x, packed, scales], domain=MS, K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=4)

    def layer(self, i, x, skip, total, lengths):
        gain = lambda: self.constant(f"g{len(self.nodes)}", np.ones(self.width, np.float32))
        norm = lambda a, b: self.add("SkipSimplifiedLayerNormalization", [a, b, gain()], (0, 3), MS, epsilon=1e-5)
        h, rest = norm(x, skip) if skip else (self.add("SimplifiedLayerNormalization", [x, gain()], axis=-1, epsilon=1e-5), x)
        packed = (self.heads + 2 * self.keys) * self.size
        q = self.product(h, self.width, packed)
        if self.bias:
            q = self.add("Add", [q, self.constant(f"b{i}", self.rng.standard_normal(packed, np.float32))])
        past = [f"past_key_values.{i}.{n}" for n in ("key", "value")]
        self.nodes.append(helper.make_node("GroupQueryAttention", [q, "", "", *past, lengths, total, "cos", "sin"],
                                           [f"a{i}", f"present.{i}.key", f"present.{i}.value"], domain=MS, num_heads=self.heads, kv_num_heads=self.keys,
                                           do_rotary=1))
        h, rest = norm(rest, self.product(f"a{i}", self.heads * self.size, self.width))
        gate, up = (self.product(h, self.width, self.inner) for _ in range(2))
        y = self.add("Mul", [self.add("Mul", [gate, self.add("Sigmoid", [gate])]), up])
        return rest, self.product(y, self.inner, self.width)

    def save(self, path):
        value = helper.make_tensor_value_info
        turned = np.outer(np.arange(ROTATED), 1e4 ** -(np.arange(self.size // 2) / (self.size // 2)))
        self.constant("cos", np.cos(turned).astype(np.float32)), self.constant("sin", np.sin(turned).astype(np.float32))
        one, axis = self.constant("one", np.array(1)), self.constant("axis", np.array([1]))
        count = self.add("ReduceSum", ["attention_mask", axis], keepdims=0)
        lengths = self.add("Cast", [self.add("Sub", [count, one])], to=T.INT32)
        total = self.add("Cast", [self.add("Gather", [self.add("Shape", ["attention_mask"]), one])], to=T.INT32)
        table = self.constant("table", self.rng.standard_normal((self.words, self.width), np.float32))
        x, skip = self.add("Gather", [table, "input_ids"]), None
        for i in range(self.layers):
            x, skip = self.layer(i, x, skip, total, lengths)
        h = self.add("SkipSimplifiedLayerNormalization", [x, skip, self.constant("end", np.ones(self.width, np.float32))], domain=MS, epsilon=1e-5)
        self.product(h, self.width, self.words)
        self.nodes[-1].output[0] = "logits"
        cache = lambda head, rows: [value(f"{head}.{i}.{n}", T.FLOAT, ["b", self.keys, rows, self.size]) for i in range(self.layers) for n in ("key", "value")]
        graph = helper.make_graph(self.nodes, "decoder", [value("input_ids", T.INT64, ["b", "s"]), value("attention_mask", T.INT64, ["b", "t"]),
                                                          *cache("past_key_values", "p")],
                                  [value("logits", T.FLOAT, ["b", "s", self.words]), *cache("present", "r")], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid(MS, 1)], ir_version=10)
        onnx.save(model, path, save_as_external_data=True, location=path.name + ".data")
        return path.stat().st_size + path.with_name(path.name + ".data").stat().st_size


def drawn_caches(decoder, room):
    decoder.begin(room)
    rng = np.random.default_rng(3)
    return {n: rng.standard_normal(x.shape, np.float32) for n, x in decoder.caches.items()}


def call_of_mcc(decoder, ids, seen, room):
    """A step as a function without arguments: everything is in its place."""
    caches, keep, a = drawn_caches(decoder, room), [], decoder.artifact
    given = a.tensors(list(feed(decoder.dims, ids, seen, caches).values()), keep)
    logits = np.zeros((1, 1 if decoder.last else ids.shape[1], decoder.words), np.float32)
    out = a.tensors([caches.get(cache_of(n), logits) for n in decoder.names], keep)
    keep.append(caches)
    return lambda keep=keep: a.check("run", a.api.run(a.ctx, given, out, ctypes.byref(a.error)))


def call_of_ort(decoder, ids, seen, room, words):
    caches = drawn_caches(decoder, room)
    held = {n: onnxruntime.OrtValue.ortvalue_from_numpy(x) for n, x in feed(decoder.dims, ids, seen, caches).items()}
    binding = decoder.session.io_binding()
    for name, x in held.items():
        binding.bind_ortvalue_input(name, x)
    logits = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, ids.shape[1], words), np.float32))
    for o in decoder.session.get_outputs():
        binding.bind_ortvalue_output(o.name, held[cache_of(o.name)] if is_cache(cache_of(o.name) or "") else logits)
    return lambda: decoder.session.run_with_iobinding(binding)


def measure(o, shape, form, folder):
    network, path = Network(shape, o.layers, form), folder / "net.onnx"
    size = network.save(path)
    start = time.monotonic()
    for name, flags in (("all.so", ()), ("last.so", ("--last-logits",))):
        subprocess.run([MCC, "-q", path, "-march=native", "-o", folder / name, *flags], check=True)
    seconds, room = (time.monotonic() - start) / 2, max(o.past) + o.prefill + STEPS
    mine, last = (Compiled(folder / n, room, network.size, o.threads) for n in ("all.so", "last.so"))
    theirs = Reference(path, network.size, o.threads)
    prompt = np.random.default_rng(2).integers(0, network.words, 16).tolist()
    want, got = (d.tokens(prompt, STEPS)[0] for d in (theirs, mine))
    equal = sum(w == g for w, g in zip(want, got))
    print(f"{shape} {form}, {network.layers} layers: {size / 1e6:.0f} MB, .so {(folder / 'all.so').stat().st_size / 1e6:.0f} MB, compiled in {seconds:.1f} s; "
          f"{equal} of {STEPS} tokens equal", flush=True)
    draw = lambda n: np.random.default_rng(4).integers(0, network.words, (1, n))
    cases = [(f"prefill {o.prefill}", draw(o.prefill), 0)] + [(f"decode behind {p}", draw(1), p) for p in o.past]
    for name, ids, seen in cases:
        calls = [call_of_ort(theirs, ids, seen, room, network.words), call_of_mcc(mine, ids, seen, room), call_of_mcc(last, ids, seen, room)]
        a, b, c = (t * 1e3 for t in turns.medians(turns.alternate(calls, o.rounds, o.seconds)))
        print(f"  {name:20} ONNX Runtime {a:8.2f} ms   mcc {b:8.2f} ms   ratio {a / b:5.2f}   last logits {c:8.2f} ms", flush=True)
    return equal == STEPS or form != "f32"      # 8-bit activations are ONNX Runtime's own rounding


def main():
    words = lambda text: text.split(",")
    p = argparse.ArgumentParser()
    p.add_argument("--shapes", type=words, default=["smollm2-135m"])
    p.add_argument("--forms", type=words, default=["f32", "int4"])
    p.add_argument("--past", type=lambda t: [int(n) for n in t.split(",")], default=[128, 1024])
    for name, value in (("layers", 0), ("prefill", 128), ("threads", 1), ("rounds", 5)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--seconds", type=float, default=0.5)
    o = p.parse_args()
    if o.threads > 1:
        turns.clock = time.perf_counter
    good = True
    for shape in o.shapes:
        for form in o.forms:
            with tempfile.TemporaryDirectory() as folder:
                good &= measure(o, shape, form, pathlib.Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
