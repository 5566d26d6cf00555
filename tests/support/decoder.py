"""Language models step by step, through the names that exporters give their inputs: onnxruntime-genai's builder (past_key_values.N.key,
present.N.key, attention_mask) and graphs of standard operators with growing or static caches (key_cache.N, updated_key_cache.N, write_indices).

    Compiled("net.so").tokens([1, 2, 3], 6)         # tokens and logits of the last position, step by step
    Compiled("net.so", room=64).tokens([1, 2, 3], 6)    # caches in one buffer of 64 rows, where ports have an alias; where they have room, in that
    Reference("net.onnx").tokens([1, 2, 3], 6)      # ONNX Runtime
"""
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from support.artifact import TYPES, Artifact
from support.compare import Model, node
from support.tool import value


def is_cache(name):
    return name.startswith("past_key_values.") or "_cache." in name and not name.startswith("updated_")


def attention_with_caches(folder, size):
    """Attention of one head of 64 columns, whose keys and values, of `size` columns, are caches that grow: past_k and k give present_k."""
    nodes = [*(node("Concat", f"past_{i} {i}", f"present_{i}", axis=1) for i in "kv"), node("Transpose", "present_k", "kt", perm=[0, 2, 1]),
             node("MatMul", "q kt", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p present_v", "y")]
    widths = {"k": 64, "v": size}
    return Model(folder, nodes, [value("q", ["b", "n", 64]), *(value(f"past_{i}", ["b", "p", w]) for i, w in widths.items()),
                                 *(value(i, ["b", "n", w]) for i, w in widths.items())],
                 [value("y", ["b", "n", size]), *(value(f"present_{i}", ["b", "t", w]) for i, w in widths.items())])


def cache_of(output):
    """The input that an output is one step later; None: it is no cache."""
    for head, name in (("present.", "past_key_values."), ("updated_", "")):
        if output.startswith(head):
            return name + output[len(head):]
    return None


def feed(names, ids, seen, caches):
    """ids: [texts, n], the new tokens behind `seen` others."""
    total, place = seen + ids.shape[1], {}
    for name in names:
        place[name] = (caches[name] if is_cache(name) else ids if name == "input_ids" else np.ones((len(ids), total), np.int64) if name == "attention_mask"
                       else np.arange(seen, total, dtype=np.int64)[None].repeat(len(ids), 0) if name == "position_ids"
                       else np.full(len(ids), seen if name == "write_indices" else total))
    return place


class Decoder:
    """step(ids) gives the logits [n, words] of new tokens; what it keeps are caches."""

    def begin(self, room):
        """dims: {name: (dims, type)} of inputs, open ones None."""
        self.seen = 0
        fill = lambda d, i: d if d is not None else 1 if i == 0 else room if i == 2 else self.size
        self.caches = {n: np.zeros([fill(d, i) for i, d in enumerate(dims)], elem) for n, (dims, elem) in self.dims.items() if is_cache(n)}

    def tokens(self, prompt, steps):
        self.begin(self.room)
        found, logits, ids = [], [], np.array([prompt], np.int64)
        for _ in range(steps):
            logits.append(self.step(ids)[-1].copy())
            found.append(int(logits[-1].argmax()))
            ids = np.array([found[-1:]], np.int64)
        return found, logits


class Reference(Decoder):
    room = 0

    def __init__(self, path, size=16, threads=1):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, threads
        self.session, self.size = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]), size
        types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        self.dims = {i.name: ([d if isinstance(d, int) else None for d in i.shape], types.get(i.type, np.float32)) for i in self.session.get_inputs()}
        self.begin(0)

    def step(self, ids):
        out = dict(zip((o.name for o in self.session.get_outputs()), self.session.run(None, feed(self.dims, ids, self.seen, self.caches))))
        self.caches |= {cache_of(n): x for n, x in out.items() if cache_of(n) in self.caches}
        self.seen += ids.shape[1]
        return out["logits"][0]


class Compiled(Decoder):
    def __init__(self, path, room=0, size=16, threads=1):
        self.artifact, self.room, self.size = Artifact(path, threads=threads), room, size
        self.dims = {p.name.decode(): ([p.dims[d].extent if p.dims[d].extent >= 0 else None for d in range(p.ndim)],
                                       TYPES[p.dtype.code, p.dtype.bits]) for p in self.artifact.inputs}
        self.names = [p.name.decode() for p in self.artifact.outputs]
        alias = [p.alias for p in self.artifact.outputs]
        self.shares = all(a and self.artifact.inputs[a - 1].name.decode() == cache_of(n) for a, n in zip(alias, self.names) if cache_of(n))
        assert self.shares or not room, "an output without an alias"
        rooms = {p.dims[2].room for p in self.artifact.inputs if is_cache(p.name.decode())}
        self.grows = len(rooms) == 1 and 0 not in rooms and self.shares
        self.room = room = min(rooms) if self.grows else room
        logits = self.artifact.outputs[self.names.index("logits")]
        self.words, self.last = logits.dims[2].extent, logits.dims[1].extent == 1
        self.begin(room)

    def step(self, ids):
        until = lambda rows: {n: x[:, :, :rows] for n, x in self.caches.items()} if self.grows else self.caches
        given = list(feed(self.dims, ids, self.seen, until(self.seen)).values())
        if self.room:
            rows, caches = 1 if self.last else ids.shape[1], until(self.seen + ids.shape[1])
            out = self.artifact.run_into(given, [caches.get(cache_of(n), np.zeros((1, rows, self.words), np.float32) if n == "logits" else None)
                                                 for n in self.names])
        else:
            out = self.artifact.run(given)
            self.caches |= {cache_of(n): x for n, x in zip(self.names, out) if cache_of(n)}
        self.seen += ids.shape[1]
        return out[self.names.index("logits")][0]


def grouped(folder, cache=T.FLOAT, scales=0, **attributes):
    """GroupQueryAttention of 4 heads and 2, size 16, the number of tokens from the mask's shape, as in exporters' files. scales: of the caches."""
    names = ["query", "key", "value", "past_key", "past_value", "seqlens"]
    shapes = [["b", "s", 64], ["b", "s", 32], ["b", "s", 32], ["b", 2, "p", 16], ["b", 2, "p", 16]]
    inputs = [value(n, s, cache if n.startswith("past") else T.FLOAT) for n, s in zip(names, shapes)]
    inputs += [value("seqlens", ["b"], T.INT32), value("mask", ["b", "t"], T.INT64)]
    more = ["", "", "", "", "", "k_scale", "v_scale"] if scales else []
    inputs += [value(n, [scales]) for n in more if n]
    nodes = [node("Shape", "mask", "dims"), node("Gather", "dims one", "long"), node("Cast", "long", "total", to=T.INT32),
             helper.make_node("GroupQueryAttention", [*names, "total", *more], ["y", "k", "v"], domain="com.microsoft", num_heads=4, kv_num_heads=2,
                              **attributes)]
    graph = helper.make_graph(nodes, "grouped", inputs, [helper.make_empty_tensor_value_info(o) for o in ("y", "k", "v")],
                              [numpy_helper.from_array(np.array(1), "one")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10),
              folder / "net.onnx")
    return Model(folder, path=folder / "net.onnx")
