"""Small language models with drawn weights as GGUF files, and what they compute, in f64 with NumPy: one token after the other, no cache."""
import dataclasses

import numpy as np

from gguf.writer import File


@dataclasses.dataclass
class Model:
    """kinds: those of single matrices, by the end of the name."""
    architecture: str
    width: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    forward: int = 96
    words: int = 160
    base: float = 10000.0
    epsilon: float = 1e-5
    window: int = 0
    tied: bool = False
    biases: bool = False
    packed: bool = False          # queries, keys and values, and gate and up, are one matrix each
    rotated: int = 0              # of a head; 0: all
    factor: float = 0             # of linear scaling
    factors: tuple = ()           # of rotary pairs: rope_freqs, or rope_factors_short and _long
    magnitude: float = 0
    original: int = 0             # context, beyond which the long factors count, or which YaRN begins with
    yarn: float = 0               # its factor
    experts: int = 0              # in all layers but the first `dense` ones; each of width `forward`
    used: int = 2
    dense: int = 0
    kind: str = "F32"             # of matrices
    kinds: dict = dataclasses.field(default_factory=dict)
    lively: bool = False          # layers move the residual stream a lot: greedy tokens differ from one another
    seed: int = 1

    def __post_init__(self):
        self.w, self.rng = {}, np.random.default_rng(self.seed)
        self.gemma = self.architecture.startswith("gemma")
        self.post = self.architecture in ("gemma2", "gemma3")
        self.head_norms = self.architecture in ("qwen3", "qwen3moe", "gemma3")
        self.oss = self.architecture == "gpt-oss"

    # ---- the file

    def drawn(self, f, name, *shape, scale=None):
        matrix = len(shape) > 1 and "bias" not in name
        if self.lively and matrix and "token_embd" in name:
            scale = (0.02 if self.gemma else 0.3) if self.tied else 1
        elif self.lively and ("attn_output" in name or "ffn_down" in name):
            scale = 2 / np.sqrt(shape[-1])
        x = self.rng.standard_normal(shape) * (scale or (0.6 / np.sqrt(shape[-1]) if matrix else 0.1)) + (0 if matrix or "bias" in name else 1)
        kind = next((k for end, k in self.kinds.items() if name.endswith(end)), self.kind) if matrix else "F32"
        self.w[name] = f.tensor(name, kind, x.astype(np.float32)).astype(np.float64)

    def product(self, f, name, rows, columns):
        self.drawn(f, name + ".weight", rows, columns)
        if self.oss or self.biases and ("attn_q" in name or "attn_k" in name or "attn_v" in name):
            self.drawn(f, name + ".bias", rows)

    def expert_layer(self, f, at):
        self.product(f, at + "ffn_gate_inp", self.experts, self.width)
        for name, rows, columns in (("gate", self.forward, self.width), ("up", self.forward, self.width), ("down", self.width, self.forward)):
            self.drawn(f, at + f"ffn_{name}_exps.weight", self.experts, rows, columns)
            if self.oss:
                self.drawn(f, at + f"ffn_{name}_exps.bias", self.experts, rows, scale=4)    # beyond the limit, too

    def file(self):
        f = File(self.architecture)
        for name, v in (("block_count", self.layers), ("embedding_length", self.width), ("feed_forward_length", self.forward), ("context_length", 512),
                        ("attention.head_count", self.heads), ("attention.head_count_kv", self.kv_heads), ("attention.key_length", self.head),
                        ("attention.value_length", self.head), ("rope.dimension_count", self.rotated or self.head)):
            f.own(name, "u32", v)
        f.own("attention.layer_norm_rms_epsilon", "f32", self.epsilon)
        f.own("rope.freq_base", "f32", self.base)
        if self.window:
            f.own("attention.sliding_window", "u32", self.window)
        if self.factor:
            f.own("rope.scaling.type", "str", "linear")
            f.own("rope.scaling.factor", "f32", self.factor)
        if self.magnitude:
            f.own("rope.scaling.attn_factor", "f32", self.magnitude)
        if self.experts:
            for name, v in (("expert_count", self.experts), ("expert_used_count", self.used), ("expert_feed_forward_length", self.forward)):
                f.own(name, "u32", v)
        if self.yarn:
            f.own("rope.scaling.type", "str", "yarn")
            f.own("rope.scaling.factor", "f32", self.yarn)
        if self.original:
            f.own("rope.scaling.original_context_length", "u32", self.original)
        self.drawn(f, "token_embd.weight", self.words, self.width, scale=1)
        q, kv = self.heads * self.head, self.kv_heads * self.head
        for i in range(self.layers):
            at = f"blk.{i}."
            norms = ["attn_norm", "post_attention_norm" if self.oss else "ffn_norm"] + ["post_attention_norm", "post_ffw_norm"] * self.post
            for norm in norms:
                self.drawn(f, at + norm + ".weight", self.width)
            for norm in ["attn_q_norm", "attn_k_norm"] * self.head_norms:
                self.drawn(f, at + norm + ".weight", self.head)
            if self.oss:
                self.drawn(f, at + "attn_sinks.weight", self.heads)
            if self.packed:
                self.product(f, at + "attn_qkv", q + 2 * kv, self.width)
                self.product(f, at + "ffn_up", 2 * self.forward, self.width)
            else:
                dense = [("ffn_gate", self.forward), ("ffn_up", self.forward)] * self.is_dense(i)
                for name, rows in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] + dense:
                    self.product(f, at + name, rows, self.width)
            self.product(f, at + "attn_output", self.width, q)
            if self.is_dense(i):
                self.product(f, at + "ffn_down", self.width, self.forward)
            else:
                self.expert_layer(f, at)
        self.drawn(f, "output_norm.weight", self.width)
        if not self.tied:
            self.drawn(f, "output.weight", self.words, self.width, scale=0.3)
        for name, list_ in zip(["rope_freqs"] if len(self.factors) == 1 else ["rope_factors_short", "rope_factors_long"], self.factors):
            self.w[name] = f.tensor(name + ".weight", "F32", np.asarray(list_)).astype(np.float64)
        return f

    def is_dense(self, layer):
        return not self.experts or layer < self.dense

    # ---- what it computes

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.w[name + ".weight"]

    def by(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    def windowed(self, layer):
        every = {"gemma2": 2, "gemma3": 6, "phi3": 1, "gpt-oss": 2}.get(self.architecture)
        return bool(self.window and every) and (every == 1 or layer % every < every - 1)

    def rotate(self, x, layer, total):
        """x [tokens, heads, head]."""
        n = self.rotated or self.head
        local = self.architecture == "gemma3" and self.windowed(layer)
        frequency = (10000.0 if local else self.base) ** (-np.arange(n // 2) * 2 / n) / (1 if local else self.factor or 1)
        if len(self.factors) == 1:
            frequency = frequency / self.w["rope_freqs"]
        elif self.factors:
            frequency = frequency / self.w["rope_factors_long" if total > self.original else "rope_factors_short"]
        magnitude = self.magnitude or 1
        if self.yarn:
            low, high = (n * np.log(self.original / (turns * 2 * np.pi)) / (2 * np.log(self.base)) for turns in (32, 1))
            low, high = max(np.floor(low), 0), min(np.ceil(high), n - 1)
            slow = np.clip((np.arange(n // 2) - low) / max(high - low, 0.001), 0, 1)
            frequency = frequency * (1 - slow) + frequency / self.yarn * slow
            magnitude *= 1 + 0.1 * np.log(self.yarn)
        angle = np.arange(len(x))[:, None, None] * frequency
        c, s = np.cos(angle) * magnitude, np.sin(angle) * magnitude
        y = x.copy()
        a, b = (np.s_[..., :n:2], np.s_[..., 1:n:2]) if self.architecture == "llama" else (np.s_[..., :n // 2], np.s_[..., n // 2:n])
        y[a], y[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return y

    def attention(self, x, layer):
        at, n = f"blk.{layer}.", len(x)
        q, kv = self.heads * self.head, self.kv_heads * self.head
        if self.packed:
            q, k, v = np.split(self.by(x, at + "attn_qkv"), [q, q + kv], -1)
        else:
            q, k, v = (self.by(x, at + name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = (a.reshape(n, -1, self.head) for a in (q, k, v))
        if self.head_norms:
            q, k = self.norm(q, at + "attn_q_norm"), self.norm(k, at + "attn_k_norm")
        q, k = self.rotate(q, layer, n), self.rotate(k, layer, n)
        k, v = (np.repeat(a, self.heads // self.kv_heads, 1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(self.head)
        if self.architecture == "gemma2":
            scores = 50 * np.tanh(scores / 50)
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        seen = (j <= i) & ((i - j < self.window) | (not self.windowed(layer)))
        scores = np.where(seen, scores, -np.inf)
        if self.oss:        # one more score of each head, which weighs nothing
            sinks = np.broadcast_to(self.w[at + "attn_sinks.weight"][:, None, None], (self.heads, n, 1))
            scores, v = np.concatenate([scores, sinks], -1), np.concatenate([v, np.zeros((1, *v.shape[1:]))])
        p = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)
        return self.by(y, at + "attn_output")

    def expert(self, x, at, e):
        gate, up = (self.w[at + f"ffn_{name}_exps.weight"][e] @ x + self.w.get(at + f"ffn_{name}_exps.bias", [0] * self.experts)[e] for name in ("gate", "up"))
        if self.oss:
            gate, up = np.minimum(gate, 7), np.clip(up, -7, 7) + 1
        y = gate / (1 + np.exp(-gate * (1.702 if self.oss else 1))) * up
        return self.w[at + "ffn_down_exps.weight"][e] @ y + self.w.get(at + "ffn_down_exps.bias", [0] * self.experts)[e]

    def feed_forward(self, x, layer):
        at = f"blk.{layer}."
        if not self.is_dense(layer):
            router, y = self.by(x, at + "ffn_gate_inp"), np.zeros_like(x)
            for t, numbers in enumerate(router):
                best = np.argsort(-numbers)[:self.used]
                weights = np.exp(numbers[best] - numbers[best].max())
                y[t] = sum(w * self.expert(x[t], at, e) for w, e in zip(weights / weights.sum(), best))
            return y
        gate, up = np.split(self.by(x, at + "ffn_up"), 2, -1) if self.packed else (self.by(x, at + "ffn_gate"), self.by(x, at + "ffn_up"))
        gate = gate * (0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3))) if self.gemma else 1 / (1 + np.exp(-gate)))
        return self.by(gate * up, at + "ffn_down")

    def logits(self, tokens):
        """[tokens, words]."""
        x = self.w["token_embd.weight"][tokens] * (np.sqrt(self.width) if self.gemma else 1)
        for i in range(self.layers):
            at = f"blk.{i}."
            y = self.attention(self.norm(x, at + "attn_norm"), i)
            x = x + (self.norm(y, at + "post_attention_norm") if self.post else y)
            y = self.feed_forward(self.norm(x, at + ("post_attention_norm" if self.oss else "ffn_norm")), i)
            x = x + (self.norm(y, at + "post_ffw_norm") if self.post else y)
        y = self.norm(x, "output_norm") @ self.w["output.weight" if not self.tied else "token_embd.weight"].T
        return 30 * np.tanh(y / 30) if self.architecture == "gemma2" else y
