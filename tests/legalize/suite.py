"""The ONNX suite through import, legalize and the reference interpreter: no code generation.

    python tests/legalize/suite.py build/tests/legalize/test_legalize [-k PATTERN] [-v] [--erase] [--update | --check]

Prints counts by reason. --check fails when a case of the list (tests/conformance/passing.py) no longer passes, or when any
result is wrong; --update writes the list.
"""
import argparse
import collections
import fnmatch
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from conformance import suite  # noqa: E402
from conformance.passing import passing, update  # noqa: E402


def data_type(array):
    if array.dtype.kind in "OUS":
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def encode(value):
    if value is None:
        return b"O 0\n"
    if isinstance(value, list):
        return b"S %d\n" % len(value) + b"".join(map(encode, value))
    value = np.asarray(value)
    head = "T %d %d %s\n" % (data_type(value), value.ndim, " ".join(map(str, value.shape)))
    if data_type(value) != onnx.TensorProto.STRING:
        return " ".join(head.split()).encode() + b"\n" + np.ascontiguousarray(value).tobytes()
    texts = [s if isinstance(s, bytes) else str(s).encode() for s in value.reshape(-1)]
    return " ".join(head.split()).encode() + b"\n" + b"".join(struct.pack("<I", len(t)) + t for t in texts)


def encode_port(value, port):
    """Optionals wrap their content."""
    if port.type.WhichOneof("value") == "optional_type" and value is not None:
        return b"O 1\n" + encode(value)
    return encode(value)


def decode(stream):
    kind, *numbers = stream.readline().split()
    if kind != b"T":
        items = [decode(stream) for _ in range(int(numbers[0]))]
        return items if kind == b"S" else (items[0] if items else None)
    code, _, *dims = map(int, numbers)
    count = int(np.prod(dims, dtype=np.int64))
    if code == onnx.TensorProto.STRING:
        texts = [stream.read(struct.unpack("<I", stream.read(4))[0]).decode() for _ in range(count)]
        return np.array(texts, dtype=object).reshape(dims)
    dtype = helper.tensor_dtype_to_np_dtype(code)
    return np.frombuffer(stream.read(count * dtype.itemsize), dtype=dtype).reshape(dims)


class Server:
    def __init__(self, program):
        self.program, self.process = program, None

    def ask(self, model, values, ports):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen([self.program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.process.stdin.write(f"{model}\t{len(values)}\n".encode())
            for value, port in zip(values, ports):
                self.process.stdin.write(encode_port(value, port))
            self.process.stdin.flush()
            line = self.process.stdout.readline().decode(errors="replace")
            if not line:
                raise EOFError
            status, text = line.rstrip("\n").split("\t", 1)
            if status != "ok":
                return status, text, []
            return status, "", [decode(self.process.stdout) for _ in range(int(self.process.stdout.readline()))]
        except (EOFError, BrokenPipeError):
            return "crash", f"signal {-self.process.wait()}", []


def judge(server, case, folder=None):
    feeds, expected = suite.inputs_and_outputs(case)
    model = onnx.load(case.model)
    given = {i.name for i in model.graph.initializer}
    ports = [i for i in model.graph.input if i.name not in given]
    path = suite.erase(model, pathlib.Path(folder, "erased.onnx")) if folder else case.model
    status, text, got = server.ask(path, feeds, ports)
    if status != "ok":
        return status, text
    if len(got) != len(expected):
        return "wrong", f"{len(expected)} outputs expected, got {len(got)}"
    for i, (want, value) in enumerate(zip(expected, got)):
        if how := suite.differs(want, value, case):
            return "wrong", f"output {i}: {how}"
    return "passed", ""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("-k", default="*")
    p.add_argument("-v", action="store_true")
    p.add_argument("--update", action="store_true", help="write tests/conformance/passing.txt")
    p.add_argument("--check", action="store_true", help="only the cases listed there")
    p.add_argument("--erase", action="store_true", help="make every input dim a symbol, drop the outputs' shapes")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(args, folder if args.erase else None)


def run(args, folder):
    server, results, reasons = Server(args.program), {}, collections.Counter()
    way = "interpreted-erased" if args.erase else "interpreted"
    wanted = set(passing(way)) if args.check else None
    for name, case in suite.cases().items():
        if not fnmatch.fnmatch(name, args.k) or (wanted is not None and name not in wanted):
            continue
        status, text = results[name] = judge(server, case, folder)
        if status != "passed":
            reasons[(status, re.sub(r"^\S+\.onnx: |'[^']*'|\d+", "", text)[:110])] += 1
            if args.v or status in ("wrong", "crash", "run"):
                print(f"{status:8} {name}: {text[:300]}", flush=True)
    for (status, text), n in reasons.most_common(60):
        print(f"{n:5} {status:8} {text}")
    counts = collections.Counter(status for status, _ in results.values())
    print(", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    if args.update:
        passed = sorted(name for name, (status, _) in results.items() if status == "passed")
        update(way, passed)
    if args.check and any(status != "passed" for status, _ in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
