#!/usr/bin/env python3
"""Exports a PyTorch module: segment.py [segment.pt2 or segment.onnx]

The network marks the pixels of an object and names what the picture shows. It was made up for this example (its weights are
drawn, not trained), but its parts are those of real ones: BatchNorm and dropout, whose meaning depends on the mode, strides,
a transposed convolution on the way up, a concatenation with what came down, and shapes that are known when it runs.
"""
import sys

import torch
from torch import nn


def block(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.Hardswish())


class Segment(nn.Module):
    """image (n, 3, h, w), h and w multiples of 4 -> mask (n, 1, h, w) in [0, 1], label (n, 5)."""

    def __init__(self):
        super().__init__()
        self.stem, self.down1, self.down2 = block(3, 8), block(8, 16, 2), block(16, 32, 2)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1 = block(32, 16), block(16, 8)
        self.mask = nn.Conv2d(8, 1, 1)
        self.label = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 5))

    def forward(self, image):
        full = self.stem(image)
        half = self.down1(full)
        deep = self.down2(half)
        x = self.join2(torch.cat([self.up2(deep), half], 1))
        x = self.join1(torch.cat([self.up1(x), full], 1))
        return torch.sigmoid(self.mask(x)), self.label(deep).softmax(1)


def make():
    """The same weights every time; statistics as if it had been trained."""
    torch.manual_seed(1)
    net = Segment()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.05, 0.1)
    return net.eval()          # BatchNorm by its statistics, no dropout


def export(path):
    n, h, w = torch.export.Dim("n", max=64), 4 * torch.export.Dim("h", min=4, max=256), 4 * torch.export.Dim("w", min=4, max=256)
    program = torch.export.export(make(), (torch.zeros(2, 3, 32, 48),), dynamic_shapes={"image": {0: n, 2: h, 3: w}})
    torch.export.save(program, path)


def export_onnx(path):
    net, axes = make(), {0: "n", 2: "h", 3: "w"}
    torch.onnx.export(
        net, (torch.zeros(1, 3, 32, 32),), path, opset_version=16,
        input_names=["image"], output_names=["mask", "label"],                # the names that callers will use
        dynamic_axes={"image": axes, "mask": axes, "label": {0: "n"}})        # what may differ from run to run


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "segment.pt2"
    (export_onnx if path.endswith(".onnx") else export)(path)
