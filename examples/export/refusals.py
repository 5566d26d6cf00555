#!/usr/bin/env python3
"""What PyTorch's exporter or mcc refuse, or take in a way that nobody meant, and what to write instead; each is tried.

usage: refusals.py MCC FOLDER      with mcc.py on the Python path

The wrong form must bring the message in `says`, or, where neither program can notice anything, a wrong result. The right
form must compile and give PyTorch's results for `inputs`, whose shapes differ from those that the exporter saw.
"""
import dataclasses
import math
import pathlib
import subprocess
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import mcc

warnings.simplefilter("ignore")
PICTURE = torch.ones(2, 3, 8, 8)


@dataclasses.dataclass
class Case:
    name: str
    cure: str
    wrong: object                       # function or module of x
    right: object
    by: str = "mcc"                     # who speaks: exporter, mcc; nobody: the result is wrong
    says: str = ""
    axes: dict = dataclasses.field(default_factory=lambda: {0: "n"})
    example: torch.Tensor = PICTURE
    inputs: tuple = (torch.rand(5, 3, 8, 8) - 0.5,)
    export: dict = dataclasses.field(default_factory=dict)      # more for the exporter, in the wrong form
    flags: tuple = ()                                           # more for mcc, in the right form


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Branch(nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            y = x * 2
        else:
            y = x - 1
        return y


class Length(nn.Module):
    def forward(self, x):
        state = torch.zeros(3, 8, 8)
        for t in range(x.shape[0]):
            state = torch.tanh(state + x[t])
        return state


class Unknown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.sigmoid(x)

    @staticmethod
    def symbolic(g, x):
        return g.op("mylib::Swish", x)


class Known(Unknown):
    @staticmethod
    def symbolic(g, x):
        return g.op("Mul", x, g.op("Sigmoid", x))


def fourier(x):
    turn = 2 * math.pi / 8 * torch.outer(torch.arange(8.0), torch.arange(5.0))
    return torch.sqrt((x @ torch.cos(turn)) ** 2 + (x @ torch.sin(turn)) ** 2)


def inverse(x):
    a, b, c, d = x[:, 0, 0], x[:, 0, 1], x[:, 1, 0], x[:, 1, 1]
    return torch.stack([d, -b, -c, a], 1).reshape(-1, 2, 2) / (a * d - b * c).reshape(-1, 1, 1)


NORM = nn.BatchNorm2d(3)
FALLBACK = torch.onnx.OperatorExportTypes.ONNX_ATEN_FALLBACK

CASES = [
    Case("complex numbers", "products with cosines and sines", lambda x: torch.fft.rfft(x).abs(), fourier, "exporter", "fft_rfft"),
    Case("pooling to 3 x 3 of any size", "pool to 1 x 1, or leave height and width fixed", lambda x: F.adaptive_avg_pool2d(x, 3),
         lambda x: F.adaptive_avg_pool2d(x, 1), "exporter", "adaptive_avg_pool2d", {0: "n", 2: "h", 3: "w"},
         inputs=(torch.rand(1, 3, 12, 20),)),
    Case("operators of PyTorch's own", "write the operation out", torch.inverse, inverse, says="org.pytorch.aten",
         example=torch.eye(2).repeat(2, 1, 1), inputs=(torch.rand(4, 2, 2) + 3 * torch.eye(2),), export={"operator_export_type": FALLBACK}),
    Case("operators of your own", "a symbolic of ONNX operators, or a model function", Unknown.apply, Known.apply, says="mylib.Swish"),
    Case("squeeze of a symbolic dimension", "say what it is: --input=x:f32[n,1,8,8]; or x[:, 0]", lambda x: x.squeeze(1).permute(0, 2, 1),
         lambda x: x.squeeze(1).permute(0, 2, 1), says="the predicate is always true", axes={0: "n", 1: "c"},
         example=torch.rand(2, 1, 8, 8), inputs=(torch.rand(5, 1, 8, 8),),
         flags=("-q", "--input=x:f32[n,1,8,8]")),
    Case("training mode", "module.eval() before the export", NORM, NORM, says="statistics of the batch",
         export={"training": torch.onnx.TrainingMode.TRAINING}),
    Case("F.dropout without the mode", "F.dropout(x, 0.5, self.training), or nn.Dropout", lambda x: F.dropout(x, 0.5),
         lambda x: F.dropout(x, 0.5, False), says="drops elements at random"),
    Case("if on a tensor's value", "torch.jit.script", Branch(), torch.jit.script(Branch()), "nobody",
         inputs=(torch.ones(3, 3, 8, 8), -3 * torch.ones(3, 3, 8, 8))),
    Case("a loop over a tensor", "torch.jit.script", Length(), torch.jit.script(Length()), "nobody",
         inputs=(torch.rand(7, 3, 8, 8), torch.rand(1, 3, 8, 8))),
]


def module_of(form, training=False):
    module = form if isinstance(form, nn.Module) else Function(form)
    return module if isinstance(module, torch.jit.ScriptModule) else module.train(training)


def export(case, form, path, **more):
    """What the exporter says against it; "" when it wrote the file."""
    try:
        torch.onnx.export(module_of(form, "training" in more), (case.example,), path, opset_version=16, input_names=["x"],
                          output_names=["y"], dynamic_axes={"x": case.axes}, **more)
    except Exception as error:      # the exporter has many kinds
        return str(error)
    return ""


def compile_net(command, path, *flags):
    done = subprocess.run([command, path, *flags, "-o", path.with_suffix(".so")], capture_output=True, text=True)
    return done.stderr.strip()


def same(case, path):
    net = mcc.load(path.with_suffix(".so"))
    for x in case.inputs:
        with torch.no_grad():
            want, got = module_of(case.right)(x), torch.from_numpy(net(x))
        if want.shape != got.shape or not torch.allclose(want, got, 1e-4, 1e-5):
            return False
    return True


def attempt(case, command, folder):
    """What was said about the wrong form; raises where a form does not do what this file says of it."""
    wrong, right = folder / "wrong.onnx", folder / "right.onnx"
    said = export(case, case.wrong, wrong, **case.export)
    if case.by != "exporter":
        said = said or compile_net(command, wrong)
    if case.by == "nobody":
        if said or same(case, wrong):
            raise AssertionError(f"{case.name}: the wrong form is right, or found: {said}")
        said = "(nothing: the result is wrong)"
    elif case.says not in said:
        raise AssertionError(f"{case.name}: not what was expected: {said}")
    problem = export(case, case.right, right) or compile_net(command, right, *case.flags)
    if problem or not same(case, right):
        raise AssertionError(f"{case.name}: the cure does not help: {problem}")
    return said


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for case in CASES:
        said = attempt(case, command, folder).splitlines()[0]
        print(f"{case.name}\n    {case.by}: {said[:300]}\n    instead: {case.cure}: compiles, same results as PyTorch")


if __name__ == "__main__":
    main()
