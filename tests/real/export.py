#!/usr/bin/env python3
"""Exports real networks with random weights to ONNX, f32, evaluation mode; batch size symbolic ("n"), or 1 under
NAME_static. NAME_bn keeps BatchNormalization as nodes, where the exporter folds it into the convolutions otherwise.

usage: export.py FOLDER [NAME...]      (torch and torchvision: Debian's, make deps-bench, or those of make bench-open)

Weights depend on the name alone. Every weight is made to matter: normalisations are kept away from the identity and
zero parameters are drawn, so that a wrong layer shows in the output. What is there already is kept.
"""
import inspect
import math
import pathlib
import sys
import warnings
import zlib

import torch
import torchvision

IMAGE_NETS = ["mobilenet_v3_small", "mobilenet_v3_large", "resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "vgg16",
              "densenet121", "convnext_tiny", "efficientnet_b0", "shufflenet_v2_x1_0", "swin_t", "vit_b_16"]
TOKENS = 128


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, width = x.shape[0], self.out.in_features
        split = lambda t: t.reshape(batch, TOKENS, self.heads, width // self.heads).permute(0, 2, 1, 3)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width // self.heads), -1)
        return self.out((weights @ v).permute(0, 2, 1, 3).reshape(batch, TOKENS, width))


def unfuse_attention(module):
    """Makes a MultiheadAttention compute by ordinary operators: its fused operator has no ONNX form."""
    width, heads = module.embed_dim, module.num_heads

    def forward(query, key, value, need_weights=False, **_):
        batch, tokens = query.shape[0], query.shape[1]
        parts = torch.nn.functional.linear(query, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
        q, k, v = (p.reshape(batch, tokens, heads, width // heads).permute(0, 2, 1, 3) for p in parts)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width // heads), -1)
        return module.out_proj((weights @ v).permute(0, 2, 1, 3).reshape(batch, tokens, width)), None

    module.forward = forward


class Layer(torch.nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads), torch.nn.LayerNorm(width)
        self.up, self.down, self.norm2 = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width), torch.nn.LayerNorm(width)

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Bert(torch.nn.Module):
    """The BERT-base encoder: token numbers (n, 128) -> last hidden states, pooled first state."""

    def __init__(self, layers=12, width=768, heads=12, inner=3072, words=30522):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(512, width)
        self.norm = torch.nn.LayerNorm(width)
        self.layers = torch.nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))
        self.pool = torch.nn.Linear(width, width)

    def forward(self, tokens):
        x = self.norm(self.words(tokens) + self.places(torch.arange(TOKENS)).unsqueeze(0))
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pool(x[:, 0]))


def image_net(name):
    # what PyTorch's own draws depends on its version
    torch.nn.init.trunc_normal_ = lambda tensor, mean=0.0, std=1.0, *_, **__: torch.nn.init.normal_(tensor, mean, std)
    net = getattr(torchvision.models, name)(weights=None)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.uniform_(-0.1, 0.1)
        elif isinstance(module, torch.nn.MultiheadAttention):
            unfuse_attention(module)
    for key, parameter in net.named_parameters():
        if key.endswith("layer_scale"):
            parameter.data.uniform_(0.2, 0.6)
        elif not parameter.data.any():
            parameter.data.normal_(0, 0.02)
    return net


def network(name):
    """The module in evaluation mode, and an input."""
    kind = name.removesuffix("_static").removesuffix("_bn")
    torch.manual_seed(zlib.crc32(kind.encode()))
    if kind == "bert":
        return Bert().eval(), torch.zeros(1, TOKENS, dtype=torch.int64)
    return image_net(kind).eval(), torch.zeros(1, 3, 224, 224)


def export(folder, name):
    path = folder / f"{name}.onnx"
    if path.exists():
        return
    unfolded, static = name.removesuffix("_static").endswith("_bn"), name.endswith("_static")
    net, example = network(name)
    partial = folder / f".{name}.partial"
    old = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}   # newer ones have two exporters
    with torch.no_grad():
        torch.onnx.export(net, example, str(partial), opset_version=17, input_names=["x"],
                          dynamic_axes=None if static else {"x": {0: "n"}}, **old,
                          training=torch.onnx.TrainingMode.PRESERVE if unfolded else torch.onnx.TrainingMode.EVAL)
    partial.rename(path)
    print(f"exported {name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def main():
    warnings.filterwarnings("ignore")
    torch.nn.functional.dropout = lambda x, *_, **__: x   # torchvision's swin asks for it in training mode, with p = 0
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or IMAGE_NETS + ["bert"]:
        export(folder, name)


if __name__ == "__main__":
    main()
