"""What stands beside a network: configuration files, records of schedules, --choose, .npy files, and artifacts.

FILES is a table like that of constructs.py: name -> (command, the largest size, (folder, n) -> arguments behind the command).
"""
import os
import subprocess

import artifacts
from generate import F32, floats, model, node, value
from onnxwire import encode

MCC = os.environ.get("MCC", "build/mcc")
SCHEDULE = ("-march=x86-64-v3", "--no-cache", "-j1", "-stop-after=schedule")


def network(folder, nodes, inputs, outputs):
    path = folder / "net.onnx"
    path.write_bytes(encode("Model", model(nodes, inputs, outputs)))
    return path


def kernels(folder, n):
    """n kernels in a row, named n0, n1, ..."""
    names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
    return network(folder, [node("Softmax", names[i], names[i + 1], f"n{i}") for i in range(n)], [value("x", F32, [4, 8])], [value("y", F32, [4, 8])])


def ports(folder, n):
    return network(folder, [node("Neg", f"x{i}", f"y{i}", f"n{i}") for i in range(n)], [value(f"x{i}", F32, ["s"]) for i in range(n)],
                   [value(f"y{i}", F32, ["s"]) for i in range(n)])


def written(folder, name, lines):
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def choose(folder, n):
    asked = written(folder, "asked.txt", (f"--choose=n{i}:store=yes" for i in range(n)))
    return [kernels(folder, n), f"@{asked}", "-o", folder / "out.txt"]


def choose_yaml(folder, n):
    config = written(folder, "net.yaml", ["choose:", *(f"  - n{i}:store=yes" for i in range(n))])
    return [kernels(folder, n), f"--config={config}", "-o", folder / "out.txt"]


def inputs_yaml(folder, n):
    config = written(folder, "net.yaml", ["input:", *(f"  - {{name: x{i}, dtype: f32, shape: [3]}}" for i in range(n))])
    return [ports(folder, n), f"--config={config}", "-o", folder / "out.txt"]


def nested_yaml(folder, n):
    return [kernels(folder, 1), f"--config={written(folder, 'net.yaml', ['input: ' + '[' * n + ']' * n])}", "-o", folder / "out.txt"]


def keys_yaml(folder, n):
    config = written(folder, "net.yaml", ["input:", "  - {name: x, dtype: f32, shape: [" + "1, " * n + "1]}"])
    return [kernels(folder, 1), f"--config={config}", "-o", folder / "out.txt"]


def schedules(folder, n):
    net, records = kernels(folder, n), folder / "records.txt"
    subprocess.run([MCC, *SCHEDULE, "-q", net, "-o", records], check=True)
    return [net, f"--schedules={records}", "-o", folder / "out.txt"]


def npy(header, data=b""):
    header = header.encode()
    header += b" " * (-(len(header) + 13) % 64) + b"\n"
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + data


def fed(text, data=lambda n: b""):
    def files(folder, n):
        (folder / "x.npy").write_bytes(npy(text(n), data(n)))
        net = network(folder, [node("Neg", "x", "y")], [value("x", F32, ["s"])], [value("y", F32, ["s"])])
        return [net, f"--feed=x={folder / 'x.npy'}", "-o", folder / "out"]
    return files


def feeds(folder, n):
    asked = written(folder, "asked.txt", (f"--feed=x{i}=random:{i}" for i in range(n)))
    return [ports(folder, n), f"@{asked}", "--input=x0:f32[2]", "-o", folder / "out"]


def head(shape, more=""):
    return "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), %s}" % (shape, more)


def artifact(kind, *more):
    def files(folder, n):
        path = folder / "net.so"
        path.write_bytes(artifacts.make(kind, n))
        return [path, *(folder / word[1:] if word.startswith("=") else word for word in more)]
    return files


FILES = {
    "choose": (SCHEDULE, 100_000, choose), "choose-yaml": (SCHEDULE, 100_000, choose_yaml), "inputs-yaml": (SCHEDULE, 100_000, inputs_yaml),
    "nested-yaml": (SCHEDULE, 100_000, nested_yaml), "shape-yaml": (SCHEDULE, 100_000, keys_yaml), "schedules": (SCHEDULE, 100_000, schedules),
    "npy-dims": (("eval",), 100_000, fed(lambda n: head("1, " * n))), "npy-keys": (("eval",), 100_000, fed(lambda n: head("1,", "'k': 1, " * n))),
    "npy-spaces": (("eval",), 100_000, fed(lambda n: head("1," + " " * n))), "npy-nested": (("eval",), 100_000, fed(lambda n: head("(" * n + ")" * n))),
    "npy-data": (("eval",), 100_000, fed(lambda n: head(f"{n},"), lambda n: floats(*range(n)))), "feeds": (("eval",), 100_000, feeds),
}
for _kind in artifacts.KINDS:
    FILES[f"inspect-{_kind}"] = ("inspect",), 10_000, artifact(_kind)
    FILES[f"report-{_kind}"] = ("report",), 10_000, artifact(_kind, "--no-run", "-q", "-o", "=page.html")
