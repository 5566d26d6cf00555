"""Decoders of drawn weights, written node by node as onnxruntime-genai's builder writes them: GroupQueryAttention with packed heads and
rotary inside, SkipSimplifiedLayerNormalization, MatMulNBits in blocks of 32; head and table of tokens are the same bytes.

    Network("smollm2-135m", form="int4").save(folder)      # model.onnx, model.onnx.data, genai_config.json; returns bytes of weights

    python llm_network.py smollm2-135m LAYERS int4 OUT.gguf     # the same weights for llama.cpp, Q4_0 or BF16; needs gguf of PyPI
"""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

# width, layers, heads, heads of keys, inner width, words, bias of the packed heads
SHAPES = {"tiny": (64, 2, 4, 2, 192, 320, True), "smollm2-135m": (576, 30, 9, 3, 1536, 49152, False), "qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151936, True)}
FORMS = {"f32": None, "bf16": None, "int4": 4, "int4-exact": 1}     # bf16: the file of f32; the accuracy_level of the others
MS, BLOCK, ROTATED, EPSILON = "com.microsoft", 32, 8192, 1e-5


class Network:
    def __init__(self, shape, layers=0, form="f32"):
        self.width, n, self.heads, self.keys, self.inner, self.words, self.bias = SHAPES[shape]
        self.layers, self.size, self.level, self.rng = layers or n, self.width // self.heads, FORMS[form], np.random.default_rng(1)
        self.nodes, self.constants, self.weights = [], [], {}

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, op, inputs, results=(0,), domain="", **attributes):
        """results: those that are wanted, by number."""
        name = f"{op}_{len(self.nodes)}"
        out = [f"{name}_{i}" if i in results else "" for i in range(max(results) + 1)]
        self.nodes.append(helper.make_node(op, inputs, out, name, domain=domain, **attributes))
        return [out[i] for i in results] if len(results) > 1 else out[0]

    def drawn(self, role, k, n):
        """[k, n], or [n, blocks, bytes] and [n, blocks] of scales that halves hold exactly, as llama.cpp's do."""
        if self.level is None:
            self.weights[role] = self.rng.standard_normal((k, n), np.float32) / np.float32(k**0.5)
            return [self.constant(role, self.weights[role])]
        low, high = (self.rng.integers(1, 16, (n, k // BLOCK, BLOCK // 2), np.uint8) for _ in range(2))     # around 8: else all logits are alike
        packed = low | high << 4
        scales = (self.rng.uniform(0.15, 0.25, (n, k // BLOCK)) / k**0.5).astype(np.float16).astype(np.float32)      # equal ones would not be stored
        self.weights[role] = packed, scales
        return [self.constant(role, packed), self.constant(role + ".scales", scales)]

    def multiplied(self, x, w, k, n):
        if self.level is None:
            return self.add("MatMul", [x, *w])
        return self.add("MatMulNBits", [x, *w], domain=MS, K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=self.level)

    def product(self, x, role, k, n):
        return self.multiplied(x, self.drawn(role, k, n), k, n)

    def looked_up(self, w):
        if self.level is None:
            return self.add("Gather", [self.add("Transpose", w, perm=[1, 0]), "input_ids"])
        table = self.add("Reshape", [w[0], self.constant("rows", np.array([self.words, self.width // 2]))])
        return self.add("GatherBlockQuantized", [table, "input_ids", w[1]], domain=MS, bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1)

    def layer(self, i, x, skip, total, lengths):
        gain = lambda: self.constant(f"g{len(self.nodes)}", np.ones(self.width, np.float32))
        norm = lambda a, b: self.add("SkipSimplifiedLayerNormalization", [a, b, gain()], (0, 3), MS, epsilon=EPSILON)
        h, rest = norm(x, skip) if skip else (self.add("SimplifiedLayerNormalization", [x, gain()], axis=-1, epsilon=EPSILON), x)
        packed = (self.heads + 2 * self.keys) * self.size
        q = self.product(h, f"{i}.qkv", self.width, packed)
        if self.bias:
            self.weights[f"{i}.bias"] = self.rng.standard_normal(packed, np.float32)
            q = self.add("Add", [q, self.constant(f"{i}.bias", self.weights[f"{i}.bias"])])
        past = [f"past_key_values.{i}.{n}" for n in ("key", "value")]
        self.nodes.append(helper.make_node("GroupQueryAttention", [q, "", "", *past, lengths, total, "cos", "sin"],
                                           [f"a{i}", f"present.{i}.key", f"present.{i}.value"], domain=MS, num_heads=self.heads, kv_num_heads=self.keys,
                                           do_rotary=1))
        h, rest = norm(rest, self.product(f"a{i}", f"{i}.out", self.heads * self.size, self.width))
        gate, up = (self.product(h, f"{i}.{role}", self.width, self.inner) for role in ("gate", "up"))
        y = self.add("Mul", [self.add("Mul", [gate, self.add("Sigmoid", [gate])]), up])
        return rest, self.product(y, f"{i}.down", self.inner, self.width)

    def build(self):
        value = helper.make_tensor_value_info
        turned = np.outer(np.arange(ROTATED), 1e4 ** -(np.arange(self.size // 2) / (self.size // 2)))
        self.constant("cos", np.cos(turned).astype(np.float32)), self.constant("sin", np.sin(turned).astype(np.float32))
        one, axis = self.constant("one", np.array(1)), self.constant("axis", np.array([1]))
        count = self.add("ReduceSum", ["attention_mask", axis], keepdims=0)
        lengths = self.add("Cast", [self.add("Sub", [count, one])], to=T.INT32)
        total = self.add("Cast", [self.add("Gather", [self.add("Shape", ["attention_mask"]), one])], to=T.INT32)
        head = self.drawn("head", self.width, self.words)
        x, skip = self.looked_up(head), None
        for i in range(self.layers):
            x, skip = self.layer(i, x, skip, total, lengths)
        h = self.add("SkipSimplifiedLayerNormalization", [x, skip, self.constant("end", np.ones(self.width, np.float32))], domain=MS, epsilon=EPSILON)
        self.multiplied(h, head, self.width, self.words)
        self.nodes[-1].output[0] = "logits"
        cache = lambda name, rows: [value(f"{name}.{i}.{n}", T.FLOAT, ["b", self.keys, rows, self.size]) for i in range(self.layers) for n in ("key", "value")]
        graph = helper.make_graph(self.nodes, "decoder", [value("input_ids", T.INT64, ["b", "s"]), value("attention_mask", T.INT64, ["b", "t"]),
                                                          *cache("past_key_values", "p")],
                                  [value("logits", T.FLOAT, ["b", "s", self.words]), *cache("present", "r")], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid(MS, 1)], ir_version=10)

    def save(self, folder):
        onnx.save(self.build(), folder / "model.onnx", save_as_external_data=True, location="model.onnx.data")
        (folder / "genai_config.json").write_text(json.dumps(self.genai()))
        return (folder / "model.onnx").stat().st_size + (folder / "model.onnx.data").stat().st_size

    def genai(self):
        cache = {f"{when}_{what}_names": f"{name}.%d.{what}" for when, name in (("past", "past_key_values"), ("present", "present"))
                 for what in ("key", "value")}
        decoder = {"session_options": {"log_id": "genai", "provider_options": []}, "filename": "model.onnx", "head_size": self.size, "hidden_size": self.width,
                   "num_attention_heads": self.heads, "num_hidden_layers": self.layers, "num_key_value_heads": self.keys,
                   "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask"} | {k: v for k, v in cache.items() if k.startswith("past")},
                   "outputs": {"logits": "logits"} | {k: v for k, v in cache.items() if k.startswith("present")}}
        never = self.words - 1      # the token that would end it
        return {"model": {"bos_token_id": never, "eos_token_id": never, "pad_token_id": never, "type": "llama", "vocab_size": self.words,
                          "context_length": ROTATED, "decoder": decoder},
                "search": {"do_sample": False, "early_stopping": False, "max_length": ROTATED, "past_present_share_buffer": True, "num_beams": 1}}

    # ---- llama.cpp

    def rows(self, role, first=0, n=None, turned=0):
        """Rows of what a product multiplies with, as bytes of Q4_0 or f32. turned: heads whose halves llama.cpp wants as neighbours."""
        w = self.weights[role]
        whole = w.shape[1] if self.level is None else len(w[0])
        order = np.arange(first, first + (n or whole - first))
        if turned:
            order = order.reshape(turned, 2, self.size // 2).swapaxes(1, 2).reshape(-1)
        if self.level is None:
            return np.ascontiguousarray(w.T[order])
        packed, scales = (x[order] for x in w)
        numbers = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:2], BLOCK)
        blocks = np.concatenate([scales.astype(np.float16)[..., None].view(np.uint8), numbers[..., :BLOCK // 2] | numbers[..., BLOCK // 2:] << 4], -1)
        return blocks.reshape(len(order), -1)

    def gguf(self, path):
        import gguf
        self.build()
        arch = "qwen2" if self.bias else "llama"      # the first has biases and turns halves of heads, the other neighbours
        kind = gguf.GGMLQuantizationType.BF16 if self.level is None else gguf.GGMLQuantizationType.Q4_0
        w = gguf.GGUFWriter(path, arch)
        for name, x in (("context_length", ROTATED), ("embedding_length", self.width), ("block_count", self.layers),
                        ("feed_forward_length", self.inner), ("head_count", self.heads), ("head_count_kv", self.keys),
                        ("layer_norm_rms_eps", EPSILON), ("rope_freq_base", 1e4), ("key_length", self.size), ("value_length", self.size),
                        ("rope_dimension_count", self.size), ("vocab_size", self.words)):
            getattr(w, f"add_{name}")(x)
        w.add_tokenizer_model("llama"), w.add_tokenizer_pre("default")
        w.add_token_list([b"<unk>", b"<s>", b"</s>"] + [b"t%d" % i for i in range(3, self.words)]), w.add_token_scores([0.0] * self.words)
        w.add_token_types([2, 3, 3] + [1] * (self.words - 3)), w.add_bos_token_id(1), w.add_eos_token_id(2)
        def put(name, rows):
            w.add_tensor(name, gguf.quants.quantize(rows, kind) if self.level is None else rows, raw_dtype=kind)
        gain = np.ones(self.width, np.float32)
        put("token_embd.weight", self.rows("head")), w.add_tensor("output_norm.weight", gain)
        q, k = self.heads * self.size, self.keys * self.size
        for i in range(self.layers):
            b, turn = f"blk.{i}.", not self.bias
            for name, first, n, heads in (("q", 0, q, self.heads), ("k", q, k, self.keys), ("v", q + k, k, 0)):
                put(f"{b}attn_{name}.weight", self.rows(f"{i}.qkv", first, n, heads * turn))
                if self.bias:
                    w.add_tensor(f"{b}attn_{name}.bias", self.weights[f"{i}.bias"][first:first + n])
            for name, role in (("attn_output", "out"), ("ffn_gate", "gate"), ("ffn_up", "up"), ("ffn_down", "down")):
                put(f"{b}{name}.weight", self.rows(f"{i}.{role}"))
            w.add_tensor(f"{b}attn_norm.weight", gain), w.add_tensor(f"{b}ffn_norm.weight", gain)
        w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


if __name__ == "__main__":
    Network(sys.argv[1], int(sys.argv[2]), sys.argv[3]).gguf(pathlib.Path(sys.argv[4]))
