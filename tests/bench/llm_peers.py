"""The programs that take part in make bench-llm, each in a process of its own that keeps one decoder loaded.

    python llm_peers.py NAME '{"folder": ..., "form": ..., "threads": 1, "room": 2048, ...}'

The worker answers each line of its input, a JSON list, with a line of JSON:
    ["prefill", TOKENS, RUNS]          milliseconds of each run of drawn tokens, nothing before them
    ["decode", PAST, STEPS]            milliseconds of each greedy step behind PAST drawn tokens; what was chosen
and for each token that was chosen those whose logits are at most "tie" of the scale below its own.
A step is what a program that talks does: the token goes in, the next one is chosen (the largest logit). With one thread times are processor
time, so that a busy machine may be measured too; with more they are of the clock. What is not installed says so in its first line.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]


def drawn(words, n):
    return np.random.default_rng(4).integers(0, words, n)


class Mcc:
    """The artifact, caches in one buffer for past and present. What changes from step to step is written where the call reads it."""
    file, batch = "all.so", 1

    def __init__(self, o):
        from support.decoder import Compiled
        self.decoder = Compiled(pathlib.Path(o["folder"]) / self.file, o["room"], o["size"], o["threads"])

    def operands(self, n):
        """{name: array} of inputs for n tokens; a run that sees less than the room has a shorter mask."""
        from support.decoder import feed
        place = feed(self.decoder.dims, np.zeros((1, n), np.int64), self.decoder.room - n, self.decoder.caches)
        self.ids = np.zeros((self.batch, n), np.int64)
        return place | {"input_ids": self.ids, "attention_mask": place["attention_mask"].repeat(self.batch, 0)}

    def call(self, n):
        """Run n tokens behind self.seen others, into self.logits."""
        from support.decoder import cache_of
        d, keep, place = self.decoder, [], self.operands(n)
        self.logits = np.zeros((self.batch, 1 if d.last else n, d.words), np.float32)
        self.given = d.artifact.tensors(list(place.values()), keep)
        self.out = d.artifact.tensors([d.caches.get(cache_of(name), self.logits) for name in d.names], keep)
        self.mask, self.n, self.keep = self.given[list(place).index("attention_mask")].contents, n, (keep, place)

    def begin(self):
        self.decoder.begin(self.decoder.room)
        self.decoder.caches = {n: x.repeat(self.batch, 0) for n, x in self.decoder.caches.items()}
        self.seen, self.n = 0, 0

    def rewind(self, n):
        self.seen = n

    def feed(self, ids):
        if self.n != len(ids):
            self.call(len(ids))
        a = self.decoder.artifact
        self.ids[:], self.mask.shape[1] = ids, self.seen + len(ids)
        a.check("run", a.api.run(a.ctx, self.given, self.out, ctypes.byref(a.error)))
        self.seen += len(ids)
        return self.logits[0, -1]


class Last(Mcc):
    file = "last.so"


class Ort:
    """A plain session; I/O binding puts past and present into one buffer, as onnxruntime-genai has them."""

    def __init__(self, o):
        import onnxruntime
        from support.decoder import Reference
        self.values = onnxruntime.OrtValue.ortvalue_from_numpy
        self.decoder, self.room = Reference(pathlib.Path(o["folder"]) / "model.onnx", o["size"], o["threads"]), o["room"]

    def begin(self):
        from support.decoder import cache_of
        d = self.decoder
        d.begin(self.room)
        self.binding, self.seen = d.session.io_binding(), 0
        held = {n: self.values(x) for n, x in d.caches.items()}
        for n, x in held.items():
            self.binding.bind_ortvalue_input(n, x)
        for output in d.session.get_outputs():
            if cache_of(output.name) in held:
                self.binding.bind_ortvalue_output(output.name, held[cache_of(output.name)])
            else:
                self.words, self.logits = output.shape[2], None

    def rewind(self, n):
        self.seen = n

    def feed(self, ids):
        self.binding.bind_ortvalue_input("input_ids", self.values(np.array([ids], np.int64)))
        self.binding.bind_ortvalue_input("attention_mask", self.values(np.ones((1, self.seen + len(ids)), np.int64)))
        if self.logits is None or self.logits.shape()[1] != len(ids):
            self.logits = self.values(np.zeros((1, len(ids), self.words), np.float32))
            self.binding.bind_ortvalue_output("logits", self.logits)
        self.decoder.session.run_with_iobinding(self.binding)
        self.seen += len(ids)
        return self.logits.numpy()[0, -1]


class Genai:
    """onnxruntime-genai on the same folder. Its next token is chosen when it is asked for, and computed by the step behind that."""

    def __init__(self, o):
        import onnxruntime_genai
        self.og, self.room = onnxruntime_genai, o["room"]
        config = self.og.Config(o["folder"])
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": o["threads"]}}}}))
        self.model = self.og.Model(config)

    def begin(self):
        params = self.og.GeneratorParams(self.model)
        params.set_search_options(max_length=self.room, do_sample=False, early_stopping=False)
        self.generator = self.og.Generator(self.model, params)

    def rewind(self, n):
        self.generator.rewind_to(n)

    def feed(self, ids):
        self.generator.append_tokens(np.array(ids, np.int32))
        return self.generator.get_logits()[0, -1]


class Llama:
    """llama.cpp, which computes the last token's logits only."""

    def __init__(self, o):
        import llama_cpp
        self.api, path = llama_cpp, str(pathlib.Path(o["folder"]) / "model.gguf").encode()
        self.silent = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.silent, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        p = llama_cpp.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = o["room"], 512, 512, o["threads"], o["threads"]
        self.context = llama_cpp.llama_init_from_model(self.model, p)
        if not self.context:
            raise RuntimeError("llama.cpp cannot load what gguf wrote")
        self.words = o["words"]

    def begin(self):
        self.rewind(0)

    def rewind(self, n):
        self.api.llama_memory_seq_rm(self.api.llama_get_memory(self.context), 0, n, -1)

    def feed(self, ids):
        for i in range(0, len(ids), 512):
            part = ids[i:i + 512]
            tokens = (ctypes.c_int32 * len(part))(*part)      # which the batch points to
            if self.api.llama_decode(self.context, self.api.llama_batch_get_one(tokens, len(part))):
                raise RuntimeError("llama_decode")
        return np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, -1), (self.words,))


class OpenVino:
    """Reads the file as it is; prefill only, since its caches would be copied from call to call."""
    decodes = False

    def __init__(self, o):
        import openvino
        exact = {"INFERENCE_PRECISION_HINT": "f32"} if o["form"] == "f32" else {}
        compiled = openvino.Core().compile_model(str(pathlib.Path(o["folder"]) / "model.onnx"), "CPU", {
            "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": o["threads"]} | exact)
        self.request, self.openvino = compiled.create_infer_request(), openvino
        self.caches = {p.any_name: np.zeros((1, o["keys"], 0, o["size"]), np.float32) for p in compiled.inputs if p.any_name.startswith("past")}

    def begin(self):
        pass

    def feed(self, ids):
        one = np.array([ids], np.int64)
        self.request.infer({"input_ids": one, "attention_mask": np.ones_like(one)} | self.caches)
        return self.request.get_tensor("logits").data[0, -1]


CONTENDERS = {"mcc": Mcc, "mcc last": Last, "ORT": Ort, "genai": Genai, "llama.cpp": Llama, "OpenVINO": OpenVino}


# ---- the worker -----------------------------------------------------------------------------------------------------

class Worker:
    def __init__(self, name, o):
        self.contender, self.words, self.tie, self.past = CONTENDERS[name](o), o["words"], o["tie"], None
        self.clock = time.process_time if o["threads"] == 1 else time.perf_counter

    def timed(self, ids):
        start = self.clock()
        logits = self.contender.feed(ids)
        token = int(logits.argmax())
        ms = (self.clock() - start) * 1e3
        return ms, token, np.flatnonzero(logits >= logits[token] - self.tie * np.abs(logits).max()).tolist()

    def prefill(self, tokens, runs):
        """The first run is not counted: what it allocates (logits of all tokens, caches) the others find."""
        ids, times, rewinds = drawn(self.words, tokens).tolist(), [], getattr(self.contender, "rewind", None)
        self.contender.begin()
        self.past, (_, token, near) = None, self.timed(ids)
        for _ in range(runs):
            rewinds and rewinds(0)
            ms, token, near = self.timed(ids)
            times.append(ms)
        return {"ms": times, "tokens": [token], "near": [near]}

    def decode(self, past, steps):
        if not getattr(self.contender, "decodes", True):
            return None
        if self.past != past:
            self.contender.begin()
            self.first = self.timed(drawn(self.words, past).tolist())[1:] if past else [1, [1]]
            self.past = past
        else:
            self.contender.rewind(past)
        times, tokens, near = [], [self.first[0]], [self.first[1]]
        for _ in range(steps):
            ms, *chosen = self.timed(tokens[-1:])
            for found, new in zip((times, tokens, near), (ms, *chosen)):
                found.append(new)
        return {"ms": times, "tokens": tokens, "near": near}


def main():
    name, o = sys.argv[1], json.loads(sys.argv[2])
    reply = os.fdopen(os.dup(1), "w")          # the peers' own messages go elsewhere
    os.dup2(2, 1)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-o["threads"]:])
    try:
        worker = Worker(name, o)
    except (ImportError, OSError, RuntimeError) as e:
        print(json.dumps({"missing": f"{type(e).__name__}: {str(e).splitlines()[0][:150]}"}), file=reply, flush=True)
        return
    print(json.dumps({}), file=reply, flush=True)
    for line in sys.stdin:
        case, *numbers = json.loads(line)
        print(json.dumps(getattr(worker, case)(*numbers)), file=reply, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
