#!/usr/bin/env python3
"""Compares the compiled network with the PyTorch module: compare.py segment.so, with mcc.py on the Python path."""
import math
import sys

import torch

import mcc
import segment

SIZES = [(1, 16, 16), (1, 64, 48), (5, 20, 100), (2, 224, 224)]


def main():
    net, compiled = segment.make(), mcc.load(sys.argv[1])
    worst = 0.0
    for n, h, w in SIZES:
        image = torch.rand(n, 3, h, w)
        with torch.no_grad():
            want = net(image)
        got = compiled(image=image)              # torch tensors go in as they are, numpy arrays come out
        error = max((torch.from_numpy(g) - t).abs().max().item() for g, t in zip(got, want))
        worst = max(worst, error if math.isfinite(error) else math.inf)
        print(f"n={n} h={h} w={w}: largest difference {error:.1e}")
    try:
        compiled(image=torch.rand(1, 3, 30, 32))
        sys.exit("a height that is not a multiple of 4 was taken")
    except mcc.Error as error:
        print(f"h=30: {error}")
    sys.exit(0 if worst < 1e-4 else "the results differ")


if __name__ == "__main__":
    main()
