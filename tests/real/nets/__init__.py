"""Networks for pt2.py: NETS of {name: (maker, inputs)}. inputs() gives up to three sets of inputs: the first is exported, the second has
another size of batch, the third other sizes too; {argument or position: tensor}.
"""
import importlib

import torch

NETS = {}


def row(name, make, inputs):
    NETS[name] = make, inputs


def floats(*shapes):
    return lambda: [{0: torch.randn(shape)} for shape in shapes]


def image(side, *other, channels=3):
    """other: height and width of the third set."""
    return floats((2, channels, side, side), (3, channels, side, side), *([(1, channels, *other)] if other else []))


def named(name, *shapes):
    return lambda: [{name: torch.randn(shape)} for shape in shapes]


ABSENT = []    # packages that are not installed
for table in "torchvision timm transformers diffusers vit_pytorch torch".split():
    try:
        importlib.import_module(f"real.nets.of_{table}")
    except ImportError as e:
        ABSENT.append(f"{table}: {e}")
