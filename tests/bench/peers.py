"""The programs that take part in the bench, each in a process of its own that keeps one network loaded.

A worker (python peers.py NAME MODEL THREADS FOLDER) writes its outputs for the inputs in FOLDER to FOLDER/NAME.npz, says
how long opening took, by the clock and in processor time, and then answers each line "SECONDS RUNS GAP CLOCK" with the times of single
runs, GAP seconds apart, in milliseconds.
All compute in f32; versions are those of requirements.txt beside this file. "mcc" takes the artifact MODEL.so, "aoti" the PyTorch module
that MODEL was exported from.
"""
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

import turns

HERE = pathlib.Path(__file__).resolve().parent


# ---- the programs: generators (model, threads, inputs) --------------------------------------------------------------
# They import and convert up to the first yield, open up to the second (which is timed), and end with (run, outputs); run() is what is timed.

def mcc(model, threads, inputs):
    import ctypes
    sys.path.insert(0, str(HERE.parent))
    from support.artifact import Artifact
    yield
    artifact, keep = Artifact(model, threads=threads), []
    yield
    outputs = [np.asarray(r, order="C") for r in artifact.run(inputs)]
    given = artifact.tensors(inputs, keep)
    wanted = artifact.tensors(outputs, keep)
    call, ctx, error = artifact.api.run, artifact.ctx, ctypes.byref(artifact.error)
    if call(ctx, given, wanted, error) and b"run_dlpack" in artifact.error.text:     # the data decides a shape
        run = artifact.renewed(given)
        yield lambda held=keep: run(), lambda: outputs
        return

    def run(held=(keep, artifact)):         # what the descriptors point to lives as long as the function
        if call(ctx, given, wanted, error):
            sys.exit(f"mcc: {artifact.error.text}")
    yield run, lambda: outputs


def ort(model, threads, inputs):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    yield
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    yield
    binding = session.io_binding()
    for port, x in zip(session.get_inputs(), inputs):
        binding.bind_ortvalue_input(port.name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    for port in session.get_outputs():
        binding.bind_output(port.name)
    yield lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu


def openvino(model, threads, inputs):
    import openvino
    yield
    core = openvino.Core()
    net = core.read_model(str(model))
    net.reshape({p.any_name: list(x.shape) for p, x in zip(net.inputs, inputs)})
    exact = os.environ.get("MCC_BENCH_PRECISION", "f32") == "f32"   # else as it is by default
    compiled = core.compile_model(net, "CPU", {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
                                  | ({"INFERENCE_PRECISION_HINT": "f32"} if exact else {}))
    yield
    request = compiled.create_infer_request()
    for i, x in enumerate(inputs):
        request.set_input_tensor(i, openvino.Tensor(x))
    yield request.infer, lambda: [t.data for t in request.output_tensors]


def ncnn(model, threads, inputs):
    """Converted by pnnx; every half-precision option is off, Winograd and the like are as they come."""
    import importlib.util
    import ncnn
    base = pathlib.Path.cwd() / pathlib.Path(model).stem
    shapes = ",".join(f"[{','.join(map(str, x.shape))}]{'i64' if x.dtype == np.int64 else 'f32'}" for x in inputs)
    tool = pathlib.Path(importlib.util.find_spec("pnnx").origin).parent / "pnnx"     # the package itself wants torch
    subprocess.run([str(tool), str(model), f"inputshape={shapes}", "fp16=0", f"ncnnparam={base}.ncnn.param",
                    f"ncnnbin={base}.ncnn.bin", f"ncnnpy={base}_ncnn.py", f"pnnxparam={base}.pnnx.param", f"pnnxbin={base}.pnnx.bin",
                    f"pnnxpy={base}_pnnx.py", f"pnnxonnx={base}.pnnx.onnx"], check=True, stdout=subprocess.DEVNULL)
    yield
    net = ncnn.Net()
    net.opt.num_threads = threads
    for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage", "use_vulkan_compute"):
        setattr(net.opt, name, False)
    if net.load_param(f"{base}.ncnn.param") or net.load_model(f"{base}.ncnn.bin"):
        raise RuntimeError("ncnn cannot load what pnnx made")
    yield
    mats = [ncnn.Mat(x[0] if x.dtype == np.float32 else x[0].astype(np.int32)).clone() for x in inputs]
    names = [f"out{i}" for i in range(len(net.output_names()))]
    result = []

    def run():
        extractor = net.create_extractor()
        for i, m in enumerate(mats):
            extractor.input(f"in{i}", m)
        result[:] = [extractor.extract(n)[1] for n in names]
    yield run, lambda: [np.array(m)[None] for m in result]


def MNN(model, threads, inputs):
    """Converted in this process: importing MNN.tools would install another package."""
    import _tools
    import MNN
    converted = str(pathlib.Path.cwd() / (pathlib.Path(model).stem + ".mnn"))
    _tools.mnnconvert(["MNNConvert", "-f", "ONNX", "--modelFile", str(model), "--MNNModel", converted, "--bizCode", "bench"])
    yield
    interpreter = MNN.Interpreter(converted)
    session = interpreter.createSession({"backend": "CPU", "numThread": threads, "precision": "high"})
    yield
    ports = interpreter.getSessionInputAll(session)
    types = {np.dtype(np.float32): MNN.Halide_Type_Float, np.dtype(np.int64): MNN.Halide_Type_Int, np.dtype(np.int32): MNN.Halide_Type_Int}
    for port, x in zip(ports.values(), inputs):
        value = x.astype(np.int32) if x.dtype == np.int64 else x
        tensor = MNN.Tensor(x.shape, types[x.dtype], value, MNN.Tensor_DimensionType_Caffe)
        interpreter.resizeTensor(port, tuple(x.shape))
        interpreter.resizeSession(session)
        port.copyFrom(tensor)

    def outputs():
        found = []
        for t in interpreter.getSessionOutputAll(session).values():
            host = MNN.Tensor(t.getShape(), MNN.Halide_Type_Float, np.zeros(t.getShape(), np.float32), MNN.Tensor_DimensionType_Caffe)
            t.copyToHostTensor(host)
            found.append(np.array(host.getData(), np.float32).reshape(t.getShape()))
        return found
    yield lambda: interpreter.runSession(session), outputs


def deepsparse(model, threads, inputs):
    """For weights that are mostly zeros."""
    import deepsparse
    yield
    engine = deepsparse.compile_model(str(model), batch_size=1, num_cores=threads)
    yield
    yield lambda: engine.run(inputs, val_inp=False), lambda: engine.run(inputs)


def aoti(model, threads, inputs):
    """AOTInductor's package of the module, its weights frozen: half the time of what is the default."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.getcwd()
    import torch
    sys.path.insert(0, str(HERE.parent / "real"))
    import export
    import torch._inductor
    torch.set_num_threads(threads)
    torch._inductor.config.freezing = True
    net, tensors = export.network(pathlib.Path(model).stem)[0], [torch.from_numpy(x) for x in inputs]
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(torch.export.export(net, tuple(tensors)))
    yield
    compiled = torch._inductor.aoti_load_package(package)
    yield
    yield lambda: compiled(*tensors), lambda: [t.numpy() for t in torch.utils._pytree.tree_leaves(compiled(*tensors))]


def loaded(steps, model, threads, inputs):
    """(run, outputs)"""
    return list(steps(model, threads, inputs))[-1]


load_mcc, load_ort = functools.partial(loaded, mcc), functools.partial(loaded, ort)
ALONE = "mcc-alone"     # the artifact with one thread, beside that with several
OURS, PEERS, TORCH = "ours", "peers", "torch"
PROGRAMS = {"mcc": (mcc, OURS), ALONE: (mcc, OURS), "ort": (ort, OURS), "openvino": (openvino, PEERS), "ncnn": (ncnn, PEERS), "MNN": (MNN, PEERS),
            "aoti": (aoti, TORCH), "deepsparse": (deepsparse, PEERS)}     # and whose Python has what it imports


# ---- the worker -----------------------------------------------------------------------------------------------------

def work(name, model, threads, folder):
    stored = np.load(folder / "inputs.npz")
    inputs = [np.ascontiguousarray(stored[k]) for k in sorted(stored.files, key=lambda k: int(k[4:]))]
    reply = os.fdopen(os.dup(1), "w")          # the peers' own messages go elsewhere
    os.dup2(2, 1)
    (folder / name).mkdir(exist_ok=True)
    os.chdir(folder / name)
    steps = PROGRAMS[name][0](model, threads, inputs)
    next(steps)
    clocks = time.perf_counter, time.process_time
    start = [clock() for clock in clocks]
    next(steps)
    open_ms = [(clock() - begin) * 1e3 for clock, begin in zip(clocks, start)]
    run, outputs = next(steps)
    run()
    np.savez(folder / f"{name}.npz", *[np.asarray(o) for o in outputs()])
    print(json.dumps({"open_ms": open_ms}), file=reply, flush=True)
    for line in sys.stdin:
        seconds, least, gap = (float(x) for x in line.split()[:3])
        clock = getattr(time, line.split()[3])
        run()
        end, times = time.perf_counter() + seconds, []
        while len(times) < least or (time.perf_counter() < end and len(times) < 100000):
            if gap:
                time.sleep(gap)
            start = clock()
            run()
            times.append((clock() - start) * 1e3)
        print(json.dumps(times), file=reply, flush=True)


class Peer:
    """The other end. info is None when the peer could not load the network."""

    def __init__(self, name, model, threads, folder, python):
        self.name, self.log = name, open(folder / f"{name}.log", "w")
        self.process = subprocess.Popen([python, __file__, name, str(model), str(threads), str(folder)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cpus(threads)))
        self.info = json.loads(self.process.stdout.readline() or "null")
        self.turns = []                    # lists of times
        self.gap = 0                       # seconds between runs
        self.clock = "perf_counter"        # of module time

    def turn(self, seconds, runs):
        self.process.stdin.write(f"{seconds} {runs} {self.gap} {self.clock}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def settle(self):
        turns.settle(self.process.pid)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()

    @property
    def median(self):
        return statistics.median(statistics.median(t) for t in self.turns) if self.turns else None

    def spread(self):
        """p10 .. p90 of single runs over the median, in per cent."""
        times = sorted(t for turn in self.turns for t in turn)
        return [100 * (times[int(q * (len(times) - 1))] / statistics.median(times) - 1) for q in (0.1, 0.9)] if times else [0, 0]


def cpus(threads):
    return sorted(os.sched_getaffinity(0))[:threads]


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4]))
