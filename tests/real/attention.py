#!/usr/bin/env python3
"""Attention as exporters write it: small transformers with drawn weights, `sdpa` and `eager`, batch and length dynamic, as .onnx (dynamo)
and .pt2. A line for each: how many of its attentions are one kernel with open sizes, a fixed batch, and all sizes fixed; how far the
results of the .onnx are from PyTorch's; and what is in the way of each other one (-Rpass-missed=attention).

usage: attention.py [NAME[:WAY]...]      with a Python that has torch, transformers, onnx and onnxscript; exports once, into BUILD/attention
"""
import contextlib
import io
import logging
import os
import pathlib
import re
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from support.artifact import Artifact  # noqa: E402
from support.tool import BUILD, mcc  # noqa: E402

BOUND = 2e-3   # of the largest element
ELEM = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.INT64: "i64"}
LAYERS = dict(num_hidden_layers=2, num_attention_heads=4, hidden_size=64, intermediate_size=96)
TEXT = dict(LAYERS, vocab_size=99, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)
SHARED = dict(TEXT, num_key_value_heads=2)
WINDOW = dict(SHARED, head_dim=16, sliding_window=16)
PAIR = dict(vocab_size=99, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=96, decoder_ffn_dim=96, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
GPT = dict(vocab_size=99, n_embd=64, n_layer=2, n_head=4, n_positions=128)
LATENT = dict(SHARED, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
              first_k_dense_replace=2)
IMAGE = dict(LAYERS, image_size=64)
NETS = {   # name: what it reads, its configuration
    "bert": ("words", TEXT), "distilbert": ("words", dict(vocab_size=99, dim=64, n_layers=2, n_heads=4, hidden_dim=96)),
    "modernbert": ("words", dict(TEXT, global_attn_every_n_layers=2, local_attention=16, cls_token_id=1, sep_token_id=2)),
    "mpnet": ("words", TEXT), "clip_text_model": ("words", TEXT),
    "deberta-v2": ("words", dict(TEXT, relative_attention=True, position_buckets=32, pos_att_type="p2c|c2p", share_att_key=True)),
    "gpt2": ("tokens", GPT), "gptj": ("tokens", dict(GPT, rotary_dim=8)), "gpt_neox": ("tokens", TEXT),
    "gpt_neo": ("tokens", dict(vocab_size=99, hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=16)),
    "opt": ("tokens", dict(TEXT, ffn_dim=96, word_embed_proj_dim=64)), "bloom": ("tokens", dict(vocab_size=99, hidden_size=64, n_layer=2, n_head=4)),
    "mpt": ("tokens", dict(vocab_size=99, d_model=64, n_layers=2, n_heads=4, max_seq_len=128)), "falcon": ("tokens", dict(TEXT, alibi=True)),
    "llama": ("tokens", SHARED), "mistral": ("tokens", WINDOW), "qwen2": ("tokens", dict(WINDOW, use_sliding_window=True, max_window_layers=1)),
    "qwen3": ("tokens", dict(SHARED, head_dim=16)), "gemma": ("tokens", dict(SHARED, head_dim=16)),
    "gemma2": ("tokens", dict(WINDOW, attn_logit_softcapping=50.0, query_pre_attn_scalar=16)),
    "gemma3_text": ("tokens", dict(WINDOW, query_pre_attn_scalar=16)), "phi": ("tokens", TEXT), "phi3": ("tokens", SHARED),
    "cohere": ("tokens", SHARED), "cohere2": ("tokens", WINDOW), "olmo": ("tokens", SHARED), "starcoder2": ("tokens", WINDOW),
    "stablelm": ("tokens", SHARED), "deepseek_v2": ("tokens", LATENT), "deepseek_v3": ("tokens", LATENT),
    "t5": ("pair", dict(vocab_size=99, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0)),
    "bart": ("pair", PAIR), "whisper": ("sound", dict(PAIR, max_source_positions=64, max_target_positions=64, num_mel_bins=16)),
    "vit": ("image", IMAGE), "clip_vision_model": ("image", dict(IMAGE, patch_size=16)), "siglip_vision_model": ("image", IMAGE),
    "beit": ("image", dict(IMAGE, use_relative_position_bias=True)),
    "swin": ("image", dict(image_size=64, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4)),
    "segformer": ("image", dict(image_size=64, hidden_sizes=[32, 64], depths=[1, 1], num_attention_heads=[1, 2], num_encoder_blocks=2, sr_ratios=[4, 2])),
}


class Network(torch.nn.Module):
    def __init__(self, net, reads):
        super().__init__()
        self.net, self.reads = net, reads

    def forward(self, x, mask=None, y=None):
        named = {"words": dict(input_ids=x, attention_mask=mask), "tokens": dict(input_ids=x, attention_mask=mask, use_cache=False),
                 "pair": dict(input_ids=x, attention_mask=mask, decoder_input_ids=y, use_cache=False),
                 "sound": dict(input_features=x, decoder_input_ids=y, use_cache=False), "image": dict(pixel_values=x)}
        return self.net(**named[self.reads])[0]


def export(name, way, stem):
    reads, settings = NETS[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **settings)
    kind = transformers.AutoModelForCausalLM if reads == "tokens" else transformers.AutoModel
    net = kind.from_config(config, attn_implementation=way).eval()
    for p in net.parameters():
        if p.dim() > 1 or not p.any():
            torch.nn.init.normal_(p, 0, 0.15)
    b, n, t = (torch.export.Dim(d, min=2, max=120) for d in "bnt")
    words, y, mask = torch.randint(3, 99, (2, 24)), torch.randint(3, 99, (2, 20)), torch.ones(2, 24, dtype=torch.int64)
    mask[1, 20:] = 0
    text = ((words, mask, y), ({0: b, 1: n}, {0: b, 1: n}, {0: b, 1: t}))
    args, dims = {"words": (text[0][:2], text[1][:2]), "tokens": (text[0][:2], text[1][:2]), "pair": text,
                  "sound": ((torch.randn(2, 16, 128), None, y), ({0: b}, None, {0: b, 1: t})), "image": ((torch.randn(2, 3, 64, 64),), ({0: b},))}[reads]
    module = Network(net, reads)
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        program = torch.export.export(module, args, dynamic_shapes=dims, strict=False)
        np.savez(f"{stem}.npz", y=module(*args).numpy(), **{f"x{i}": a.numpy() for i, a in enumerate(args) if a is not None})
        torch.export.save(program, f"{stem}.pt2")
        torch.onnx.export(program, dynamo=True, external_data=False, verbose=False).save(f"{stem}.onnx")


def found(path, model, fixed):
    """How many attentions of the file are one kernel, with the dims `fixed` of each input as they were exported."""
    flags = []
    for i, (x, shape) in enumerate(model if fixed else ()):
        dims = [str(n) if k in fixed else d for k, (d, n) in enumerate(zip(shape[1], shape[0]))]
        flags.append(f"--input={x}:{shape[2]}[{','.join(dims)}]")
    text = path.with_suffix(".schedule")
    done = mcc(path, "-q", "-march=x86-64-v3", "-stop-after=schedule", "-o", text, *flags)
    return len(re.findall(r"^schedule (?!.* version: ).*: attention$", text.read_text(), re.M)) if done.returncode == 0 else "refused"


def check(name, way, folder):
    stem = folder / f"{name}-{way}"
    path, recorded = stem.with_suffix(".onnx"), None
    if not path.exists():
        export(name, way, stem)
    recorded, graph = np.load(f"{stem}.npz"), onnx.load(path)
    feeds = [recorded[k] for k in recorded if k != "y"]
    model = [(i.name, (x.shape, [d.dim_param or str(d.dim_value) for d in i.type.tensor_type.shape.dim], ELEM[i.type.tensor_type.elem_type]))
             for i, x in zip(graph.graph.input, feeds)]
    there = sum(n.op_type in ("Softmax", "Attention") for n in graph.graph.node)
    counts = [found(path, model, f) for f in ((), (0,), range(4))] + [found(stem.with_suffix(".pt2"), model, f) for f in ((), range(4))]
    artifact = stem.with_suffix(".so")
    done = mcc(path, "-o", artifact, "-march=native", "-Rpass-missed=attention")
    with Artifact(artifact) as a:
        y = a.run(feeds)[0]
    off = float(np.abs(y - recorded["y"]).max() / np.abs(recorded["y"]).max())
    ok = off <= BOUND and all(c == there for c in counts[:3]) and all(c in (there, "refused") for c in counts[3:])
    print(f"{'ok  ' if ok else 'FAIL'} {stem.name:28} {there} attentions, one kernel: onnx {counts[0]} {counts[1]} {counts[2]}, pt2 {counts[3]} {counts[4]}; "
          f"off {off:.1e}", *re.findall(r"its scores: (.*) \[", done.stderr), sep="\n     " if not ok else "", flush=True)
    return ok


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    folder, failed = BUILD / "attention", 0
    folder.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[1:] or NETS:
        name, _, way = wanted.partition(":")
        for way in [way] if way else ["sdpa", "eager"]:
            try:
                failed += not check(name, way, folder)
            except Exception as e:   # what transformers or torch.export refuses
                print(f"skip {name}-{way}: {type(e).__name__}: {str(e).splitlines()[0][:120]}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
