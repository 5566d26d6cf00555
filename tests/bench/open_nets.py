#!/usr/bin/env python3
"""Networks of packages with random weights, for tests/bench/open.py: exported with open sizes by both exporters of torch.

usage: open_nets.py FOLDER [SUBSTRING...]      with the packages of open_requirements.txt

A row of NETS is a network: what makes it and its inputs, and the sizes that stay open. It is written as NAME-dynamo.onnx and
NAME-old.onnx, with its inputs in NAME.npz. What is there already is kept. A line says what is missing or not exported, and why.
"""
import dataclasses
import importlib
import os
import pathlib
import sys
import warnings
import zlib

import numpy as np

TEXT, IMAGE, SOUND = (2, 64), (2, 3, 128, 96), (2, 8000)


@dataclasses.dataclass
class Net:
    """package.make(...) with inputs of these shapes; open: the open dims of every input, by name. A dim with the same name is equal."""
    make: object
    inputs: dict
    open: dict
    package: str = "transformers"


# ---- how networks are made ------------------------------------------------------------------------------------------

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256}
GROUPED = {**SMALL, "num_key_value_heads": 2}
ENCODER_DECODER = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                   "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 256}
SPEECH = {**SMALL, "vocab_size": 32, "conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
          "mask_time_prob": 0.0, "layerdrop": 0.0}


def of_config(module, kind, **config):
    """The model `kind` of transformers, of a configuration with these numbers."""
    def make(package):
        base = importlib.import_module(f"transformers.models.{module}")
        name = max((n for n in dir(base) if n.endswith("Config") and kind.startswith(n.removesuffix("Config"))), key=len)
        made = getattr(base, name)(**config)
        made.use_cache, made.pad_token_id = False, 0
        try:
            return getattr(base, kind)._from_config(made, attn_implementation="sdpa")
        except ValueError:   # it has none but its own
            return getattr(base, kind)._from_config(made, attn_implementation="eager")
    return make


def of_timm(name, **more):
    return lambda package: package.create_model(name, pretrained=False, **more)


def of_vision(path, **more):
    def make(package):
        base, _, name = path.rpartition(".")
        return getattr(importlib.import_module(f"torchvision.models.{base}".rstrip(".")), name)(weights=None, **more)
    return make


def warp(torch, levels=5, width=16):
    """Frames between two others, as networks of flow compute them, in f16: 37 Resizes, 10 GridSamples."""
    nn, f = torch.nn, torch.nn.functional
    def resized(x, scale):
        return f.interpolate(x, scale_factor=scale, mode="bilinear", align_corners=False)

    class Warp(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Sequential(nn.Conv2d(11, width, 3, 2, 1), nn.PReLU(width), nn.Conv2d(width, width, 3, 1, 1),
                                                     nn.PReLU(width), nn.Conv2d(width, 5, 3, 1, 1)) for _ in range(levels))

        def forward(self, x):
            x = resized(resized(x.half(), 1 / 8), 8.0)   # smooth, or rounded places give other elements
            a, b, height, width = x[:, :3], x[:, 3:], x.shape[2], x.shape[3]
            places = lambda n: torch.arange(n) * (2 / (n - 1)) - 1
            rows = places(height).half().view(1, -1, 1, 1).expand(x.shape[0], -1, width, 1)
            columns = places(width).half().view(1, 1, -1, 1).expand(x.shape[0], height, -1, 1)
            grid, flow, mask = torch.cat([columns, rows], 3), torch.zeros_like(x[:, :4]), torch.zeros_like(x[:, :1])
            for level, convs in enumerate(self.convs):
                scale = 2.0 ** (levels - 1 - level)
                small = [resized(v, 1 / scale) for v in (a, b, flow, mask)]
                more = resized(convs(torch.cat(small, 1)), 2.0)
                more = f.interpolate(resized(more, scale), size=(height, width), mode="nearest") if level else \
                    f.interpolate(more, size=(height, width), mode="bilinear")
                flow, mask = flow + more[:, :4] / 64, mask + more[:, 4:]
                a, b = (f.grid_sample(x[:, i * 3:i * 3 + 3], grid + flow[:, i * 2:i * 2 + 2].permute(0, 2, 3, 1), padding_mode="border",
                                      align_corners=True) for i in range(2))
            part = torch.sigmoid(mask)
            return resized(a * part + b * (1 - part), 2.0)
    return Warp().half()


def text(module, kind, **config):
    return Net(of_config(module, kind, **config), {"input_ids": TEXT}, {0: "batch", 1: "length"})


def masked(module, kind, **config):
    return Net(of_config(module, kind, **config), {"input_ids": TEXT, "attention_mask": TEXT}, {0: "batch", 1: "length"})


def sound(module, kind, **config):
    return Net(of_config(module, kind, **config), {"input_values": SOUND}, {0: "batch", 1: "samples"})


def images(make, package, shape=IMAGE, sizes=True):
    return Net(make, {"x": shape}, {0: "batch", **({2: "height", 3: "width"} if sizes else {})}, package)


# ---- the table ------------------------------------------------------------------------------------------------------

NETS = {
    "bert": masked("bert", "BertModel", **SMALL),
    "roberta": masked("roberta", "RobertaModel", **SMALL),
    "distilbert": masked("distilbert", "DistilBertModel", dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=256),
    "albert": masked("albert", "AlbertModel", embedding_size=32, **SMALL),
    "electra": masked("electra", "ElectraModel", embedding_size=32, **SMALL),
    "deberta-v2": masked("deberta_v2", "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32, **SMALL),
    "mpnet": masked("mpnet", "MPNetModel", **SMALL),
    "modernbert": masked("modernbert", "ModernBertModel", **SMALL),
    "gpt2": text("gpt2", "GPT2LMHeadModel", **GPT),
    "gpt-neo": text("gpt_neo", "GPTNeoForCausalLM", hidden_size=64, num_layers=2, num_heads=4, vocab_size=256, window_size=32,
                    attention_types=[[["global", "local"], 1]]),
    "gpt-neox": text("gpt_neox", "GPTNeoXForCausalLM", **SMALL),
    "bloom": text("bloom", "BloomForCausalLM", hidden_size=64, n_layer=2, n_head=4, vocab_size=256),
    "opt": text("opt", "OPTForCausalLM", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, vocab_size=256,
                word_embed_proj_dim=64),
    "llama": text("llama", "LlamaForCausalLM", **GROUPED),
    "mistral": text("mistral", "MistralForCausalLM", **GROUPED),
    "qwen2": text("qwen2", "Qwen2ForCausalLM", **GROUPED),
    "qwen3": text("qwen3", "Qwen3ForCausalLM", head_dim=16, **GROUPED),
    "gemma": text("gemma", "GemmaForCausalLM", head_dim=16, **GROUPED),
    "phi": text("phi", "PhiForCausalLM", **SMALL),
    "t5-encoder": masked("t5", "T5EncoderModel", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=256),
    "bart": Net(of_config("bart", "BartModel", **ENCODER_DECODER), {"input_ids": TEXT, "decoder_input_ids": (2, 48)},
                {0: "batch", 1: {"input_ids": "length", "decoder_input_ids": "words"}}),
    "whisper-encoder": Net(lambda p: of_config("whisper", "WhisperModel", num_mel_bins=16, max_source_positions=64, **ENCODER_DECODER)(p).encoder,
                           {"input_features": (2, 16, 128)}, {0: "batch"}),
    "wav2vec2": sound("wav2vec2", "Wav2Vec2ForCTC", **SPEECH),
    "hubert": sound("hubert", "HubertModel", **SPEECH),
    "wavlm": sound("wavlm", "WavLMModel", **SPEECH),
    "vit": images(of_config("vit", "ViTModel", image_size=96, **SMALL), "transformers", (2, 3, 96, 96), sizes=False),
    "segformer": images(of_config("segformer", "SegformerForSemanticSegmentation", hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1],
                                  num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=64), "transformers"),
    "dpt-dinov2": images(of_config("dinov2", "Dinov2Model", image_size=98, patch_size=14, **SMALL), "transformers", (2, 3, 98, 98), sizes=False),
    "clip-text": masked("clip", "CLIPTextModel", **SMALL),
    "resnet18": images(of_vision("resnet18"), "torchvision"),
    "mobilenet-v3": images(of_vision("mobilenet_v3_small"), "torchvision"),
    "efficientnet-b0": images(of_vision("efficientnet_b0"), "torchvision"),
    "shufflenet": images(of_vision("shufflenet_v2_x0_5"), "torchvision"),
    "convnext": images(of_vision("convnext_tiny"), "torchvision", sizes=False),
    "deeplab": images(of_vision("segmentation.deeplabv3_mobilenet_v3_large", weights_backbone=None), "torchvision"),
    "lraspp": images(of_vision("segmentation.lraspp_mobilenet_v3_large", weights_backbone=None), "torchvision"),
    "fcn": images(of_vision("segmentation.fcn_resnet50", weights_backbone=None), "torchvision"),
    "vit-timm": images(of_timm("vit_tiny_patch16_224", img_size=96), "timm", (2, 3, 96, 96), sizes=False),
    "vit-dynamic": images(of_timm("vit_tiny_patch16_224", img_size=96, dynamic_img_size=True), "timm", (2, 3, 96, 96)),
    "mobilevit": images(of_timm("mobilevit_xxs"), "timm", (2, 3, 128, 128), sizes=False),
    "mixer": images(of_timm("mixer_s32_224", img_size=96), "timm", (2, 3, 96, 96), sizes=False),
    "regnet": images(of_timm("regnety_002"), "timm"),
    "ghostnet": images(of_timm("ghostnet_050"), "timm"),
    "levit": images(of_timm("levit_128s"), "timm", (2, 3, 224, 224), sizes=False),
    "poolformer": images(of_timm("poolformer_s12"), "timm"),
    "efficientformer": images(of_timm("efficientvit_b0"), "timm"),
    "warp-f16": images(warp, "torch", (2, 6, 128, 96)),
    "swin-v2": images(of_timm("swinv2_cr_tiny_ns_224", img_size=64, window_size=4), "timm", (2, 3, 64, 64), sizes=False),
}


# ---- export ---------------------------------------------------------------------------------------------------------

def example(net):
    """The inputs: words of a vocabulary, masks of ones, samples."""
    rng = np.random.default_rng(1)
    return {name: (np.ones(s, np.int64) if "mask" in name else rng.integers(3, 30, s)) if "ids" in name or "mask" in name
            else rng.standard_normal(s).astype(np.float32) for name, s in net.inputs.items()}


def open_dims(net):
    """{input: {dim: name}}; a dict in place of a name has one for each input."""
    return {i: {d: n[i] if isinstance(n, dict) else n for d, n in net.open.items()} for i in net.inputs}


def first_tensors(result, torch):
    """The tensors of a result, whatever it is wrapped in."""
    if isinstance(result, torch.Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else []
    return [t for part in parts for t in first_tensors(part, torch)]


def wrap(model, names, torch):
    """The model as a function of its inputs in order, with plain tensors for results."""
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            given = inputs if names == ["x"] or names == ["pixel_values"] else ()
            result = self.model(*given) if given else self.model(**dict(zip(names, inputs)))
            return tuple(first_tensors(result, torch))
    return Wrapped().eval()


def export(net, name, folder, dynamo, torch):
    path = folder / f"{name}-{'dynamo' if dynamo else 'old'}.onnx"
    if path.exists():
        return
    torch.manual_seed(zlib.crc32(name.encode()))
    model = wrap(net.make(importlib.import_module(net.package)), list(net.inputs), torch)
    feeds, dims = example(net), open_dims(net)
    args = tuple(torch.from_numpy(a) for a in feeds.values())
    partial = folder / f".{path.name}"
    if dynamo:
        shapes = (tuple({d: torch.export.Dim.DYNAMIC for d in of} for of in dims.values()),)
        torch.onnx.export(model, args, str(partial), dynamo=True, dynamic_shapes=shapes, input_names=list(net.inputs),
                          external_data=False, verbose=False)
    else:
        torch.onnx.export(model, args, str(partial), dynamo=False, opset_version=17, dynamic_axes=dims, input_names=list(net.inputs))
    np.savez(folder / f"{name}.npz", **feeds)
    partial.rename(path)


def main():
    warnings.filterwarnings("ignore")
    report = os.fdopen(os.dup(1), "w")   # the exporters' own messages go elsewhere
    os.dup2(2, 1)
    folder, only = pathlib.Path(sys.argv[1]), sys.argv[2:] or [""]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import torch
    except ImportError as e:
        print(f"missing: {e.name}: no network of a package is exported", file=report)
        return
    for name, net in NETS.items():
        if not any(o in name for o in only):
            continue
        for dynamo in (True, False):
            try:
                with torch.no_grad():
                    export(net, name, folder, dynamo, torch)
            except Exception as e:   # whatever an exporter throws is a line of the report
                text = (str(e).strip().splitlines() or [type(e).__name__])[0]
                reason = f"missing: {e.name}" if isinstance(e, ImportError) and e.name else f"not exported: {text[:110]}"
                print(f"{name}-{'dynamo' if dynamo else 'old':28} {reason}", file=report, flush=True)


if __name__ == "__main__":
    main()
