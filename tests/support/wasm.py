"""WebAssembly modules in Node.js, through runtime/mcc.mjs (wasm.mjs has the protocol).

    with Wasm() as machine:
        outputs = machine.call("net.wasm", [x, y])
"""
import base64
import json
import pathlib
import select
import shutil
import subprocess

import ml_dtypes
import numpy as np

from support.artifact import Error, ModelError

NODE = shutil.which("node")
SECONDS = 600
HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"f32": np.float32, "f64": np.float64, "bool": np.bool_, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
         "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
         "f8e8m0": ml_dtypes.float8_e8m0fnu} | {f"{k}{n}": np.dtype(f"{k}{n // 8}") for k in "iu" for n in (8, 16, 32, 64)}


class Wasm:
    process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def call(self, path, arrays, optional=(), threads=None):
        """As Foreign.call, of plain tensors. threads: of a module that is made for them."""
        arrays = [np.asarray(a) for a in arrays]
        if self.process is None:
            self.process = subprocess.Popen([NODE, HERE / "wasm.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        inputs = [{"data": base64.b64encode(np.ascontiguousarray(a).tobytes()).decode(), "shape": a.shape} for a in arrays]
        self.process.stdin.write(json.dumps({"path": str(path), "threads": threads, "inputs": inputs}) + "\n")
        self.process.stdin.flush()
        ready = select.select([self.process.stdout], [], [], SECONDS)[0]
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.__exit__()
            raise EOFError("node has ended") if ready else TimeoutError(f"no answer in {SECONDS} s")
        answer = json.loads(line)
        if "error" in answer:
            raise ModelError("run", Error(code=-1, text=answer["error"].encode()[:247]))
        return [np.frombuffer(base64.b64decode(o["data"]), TYPES[o["type"]]).reshape(o["shape"]) for o in answer["outputs"]]
