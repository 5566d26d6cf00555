#!/usr/bin/env python3
"""Networks compiled here, to be run on another machine that has no compiler: cases of the ONNX suite and a linked network, with the
answers that the same code gives on Linux. make windows-bundle, macos-bundle; .github/workflows/windows.yml and macos.yml carry it there.

usage: bundle.py TARGET FOLDER [EVERY]     with MCC and MCC_BUILD set; run there: python run.py
"""
import pathlib
import shutil
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conformance import suite  # noqa: E402
from conformance.passing import passing  # noqa: E402
from support.artifact import Artifact  # noqa: E402
from support.foreign import Foreign  # noqa: E402
from support.tool import DIGITS, ROOT, compile_to  # noqa: E402

ROWS = {"x86_64": "x86-64-v3", "aarch64": "armv8-a"}   # what every machine to rent has
FILES = ["runtime/mcc.py", "runtime/mcc.h", "runtime/mcc_load.h", "runtime/mcc_load_file.h", "runtime/mcc_note.h", "runtime/mcc_load.c",
         "runtime/mcc_load_windows.c", "runtime/mcc_load_macos.c"]
MAIN = r"""/* For bundle_run.py: loads the network that is named, and runs one that is linked in. */
#include <math.h>
#include <stdio.h>

#define NET_IMPLEMENTATION
#include "net.h"

#include "mcc_load.h"

int main(int argc, char **argv)
{
    static float x[1][1][8][8], y[1][10];
    mcc_lib *lib;
    mcc_error error;
    float sum = 0;
    if (argc != 2 || mcc_load(argv[1], NULL, &lib, &error)) {
        puts(argc == 2 ? error.text : "no network is named");
        return 1;
    }
    mcc_unload(lib);
    if (net_run(1, (const float(*)[1][8][8])x, y)) {
        puts(net_error());
        return 1;
    }
    for (int i = 0; i < 10; i++)
        sum += y[0][i];
    return fabsf(sum - 1) > 1e-4f;
}
"""


def plain(values):
    """Are they what mcc.py and .npz files hold?"""
    return all(isinstance(v, np.ndarray) and v.dtype.kind in "fiub" and v.dtype.isbuiltin for v in values)


def answers(arch, path, feeds):
    if arch != "x86_64":
        with Foreign(arch) as machine:
            return machine.call(path, feeds)
    with Artifact(path, threads=1) as a:
        return a.call(feeds)


def make(target, folder, every):
    arch = target.split("-")[0]
    windows = "windows" in target
    suffix = ".dll" if windows else ".dylib" if "macos" in target else ".so"
    options = [f"-march={ROWS[arch]}"]
    folder.mkdir(parents=True, exist_ok=True)
    cases = suite.cases()
    for name in [n for n in passing() if n not in suite.RANDOM][::every]:
        feeds, _ = suite.inputs_and_outputs(cases[name])
        if not feeds or not plain(feeds):
            continue
        here = compile_to(folder / "here.so", cases[name].model, f"--target={arch}-linux", *options)
        outputs = answers(arch, here, feeds)
        if plain(outputs):
            stem = folder / name.replace("/", "_")
            compile_to(stem.with_suffix(suffix), cases[name].model, f"--target={target}", *options)
            np.savez(stem.with_suffix(".npz"), **{f"in{i}": x for i, x in enumerate(feeds)}, **{f"out{i}": y for i, y in enumerate(outputs)})
        here.unlink()
    compile_to(folder / ("net.lib" if windows else "net.a"), DIGITS, f"--target={target}", "--emit=header", *options)
    (folder / "bundle_main.c").write_text(MAIN)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    shutil.copy(pathlib.Path(__file__).with_name("bundle_run.py"), folder / "run.py")


if __name__ == "__main__":
    make(sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 4)
