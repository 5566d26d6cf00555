"""What fuzzing begins with: corpus.py NAME FOLDER. Files that are there stay; a file's name is the hash of its bytes."""
import hashlib
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from support.tool import DIGITS, ROOT, dense, mcc  # noqa: E402

LARGEST, LARGER = 16384, {"so": 1 << 20, "gguf": 1 << 16}


def hostile(folder):
    sys.path.insert(0, str(ROOT / "tests/hostile"))
    import generate
    return (path for path, case in generate.write(folder) if "special" not in case.name)


def models(folder):
    from conformance import suite
    yield from (case.model for case in suite.cases().values())
    yield from hostile(folder)


def programs(folder):
    from pt2 import test_programs
    from pt2.writer import Program
    yield from test_programs.DATA.glob("*.pt2")
    program = Program()
    n = program.symbol("s0", 2, 40)
    x, w = program.input("x", np.dtype("float32"), (n, 3)), program.weight("w", np.ones((3, 3), np.float32))
    program.output(program.node("aten.mm.default", [x, w], [("y", np.dtype("float32"), (n, 3))]))
    for layout in "CBA":
        yield program.save(folder / f"stored{layout}.pt2", layout=layout)


def language_models(folder):
    from gguf.decoders import Model
    small = dict(width=32, layers=1, heads=2, kv_heads=1, head=16, forward=32, words=32)
    for kind in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        yield Model("llama", kind=kind, **small).file().save(folder / f"{kind}.gguf")
    for kind in ("Q4_K", "Q5_K", "Q6_K"):
        more = small | dict(width=256, words=8, forward=8, head=4)
        yield Model("llama", kind="F32", kinds={"token_embd.weight": kind}, **more).file().save(folder / f"{kind}.gguf")
    for name in ("qwen3moe", "gpt-oss"):
        more = small | dict(experts=2, used=1, kinds={"exps.weight": "MXFP4"}, window=4 * (name == "gpt-oss"), yarn=8, original=64)
        yield Model(name, kind="Q8_0", **more).file().save(folder / f"{name}.gguf")
    for name in ("qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3"):
        window, packed = 4 * (name in ("gemma2", "gemma3", "phi3")), name == "phi3"
        yield Model(name, window=window, packed=packed, biases=name == "qwen2", **small).file().save(folder / f"{name}.gguf")


def configs(folder):
    for i, text in enumerate(["march: native\n", "input:\n  - x:f32[1,3]\n  - 'y:f32[n=1..4]'\nO: 3\n", "limit-rank: 4\nquiet: true\nvariants: all\n",
                              "choose:\n  - 'k1: winograd 4'\n", "threads: [1, 2]\n", "# nothing\n---\noutput: a.so\n"]):
        path = folder / f"{i}.yaml"
        path.write_text(text)
        yield path
    yield from ROOT.rglob("examples/*.yaml")


def artifacts(folder):
    for i, (model, flags) in enumerate([(DIGITS, []), (dense(folder / "dense.onnx"), ["--march=x86-64-v2"]),
                                        (folder / "dense.onnx", ["--target=aarch64-linux-gnu"]), (folder / "dense.onnx", ["-c"])]):
        path = folder / f"{i}.{'o' if '-c' in flags else 'so'}"
        assert mcc(model, "-o", path, *flags).returncode == 0
        yield path
    sys.path.insert(0, str(ROOT / "tests/hostile"))
    import artifacts as hostile_artifacts
    for kind in hostile_artifacts.KINDS:
        path = folder / f"{kind}.so"
        path.write_bytes(hostile_artifacts.make(kind, 20))
        yield path


def arrays(folder):
    for i, a in enumerate([np.zeros((2, 3), np.float32), np.arange(5), np.array(1.5), np.zeros((0, 4), np.int8), np.array([True]),
                           np.zeros(3, np.complex64), np.zeros((1,) * 30, np.float16)]):
        path = folder / f"{i}.npy"
        np.save(path, a)
        yield path


def main(name, folder):
    sources = {"model": models, "pt2": programs, "gguf": language_models, "config": configs, "so": artifacts, "npy": arrays}
    with tempfile.TemporaryDirectory() as scratch:
        n = 0
        for path in sources[name](pathlib.Path(scratch)):
            path = pathlib.Path(path)
            if not path.is_file() or path.stat().st_size > LARGER.get(name, LARGEST):
                continue
            data = path.read_bytes()
            (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
            n += 1
    print(f"{n} files in {folder}")


main(sys.argv[1], pathlib.Path(sys.argv[2]))
