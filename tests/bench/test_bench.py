"""mcc bench: the calibration and the kernels of a network beside it."""
import collections
import dataclasses
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bench import callers, calls, llm, llm_network
from bench.forms import FORMS, measure
from bench.run import seconds_of
from support.tool import DIGITS, MCC, ROOT, mcc, result


def test_calibration():
    done = mcc("bench", "--calibrate", "--roofline", "--threads", 2)
    assert done.returncode == 0, done.stderr
    values = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert values["threads"] == "2"
    number = {k: float(v.split()[0]) for k, v in values.items()}
    assert 0 < number["flops"] <= number["flops-best"] * 1.001
    assert number["round-trip"] > 0
    assert len([k for k in number if k.startswith("read-")]) == 5 and all(number[k] > 0 for k in number)


def test_peers_that_are_missing():
    """A peer that cannot load is a line with the reason, and the others are measured."""
    done = subprocess.run([sys.executable, ROOT / "tests/bench/run.py", "--ungated", "--rounds", "1", "--seconds", "0.05", "--peers", "aoti",
                           DIGITS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "aoti cannot load digits.onnx: [\"ModuleNotFoundError: No module named 'torch'\"]" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("digits ")).split()
    assert row[-1] == "-" and float(row[3]) > 0
    assert re.search(r"  to open, ms \(processor time\): mcc [\d.]+ \([\d.]+\), ort [\d.]+ \([\d.]+\)$", done.stdout, re.M)
    done = subprocess.run([sys.executable, ROOT / "tests/bench/run.py", "--peers", "tvm"], capture_output=True, text=True)
    assert done.returncode == 2 and "no peer is called tvm: there are mcc, " in done.stderr


def test_bound_on_unseen_samples():
    """make bench-error, of the network that is here: the exit status says whether the bound and the accuracy hold."""
    done = subprocess.run([sys.executable, ROOT / "tests/bench/kept.py", "--splits", "2", "digits"], capture_output=True, text=True)
    assert done.returncode == 0, done
    assert re.fullmatch(r"digits +2 of 2 splits of 48 samples within 1% on 64 others; largest [\d.]+ %; products: .*; right [\d.]+ % in f32, "
                        r"[\d.]+ %: -?[\d.]+ points lost\n", done.stdout), done.stdout


def test_choices():
    """make bench-choices, of the network that is here: a row; a peer whose packages are missing is a line with the reason."""
    done = subprocess.run([sys.executable, ROOT / "tests/bench/chosen.py", "--samples", "8", "--unseen", "4", "--rounds", "1", "--peers", "nncf", DIGITS],
                          capture_output=True, text=True)
    assert done.returncode == 0, done
    head, skipped, row, mean = done.stdout.splitlines()
    assert skipped == "  skip nncf: [\"ModuleNotFoundError: No module named 'nncf'\"]"
    assert re.fullmatch(r"digits( +[\d.]+){5}( +[\d.]+%){2} +[\d.]+  (\d+ in )?.*", row) and float(row.split()[6][:-1]) <= 2, row
    assert re.fullmatch(r"ONNX Runtime in f32 over mcc: geometric mean [\d.]+, least [\d.]+ \(1 networks\)", mean), mean


def test_pruned():
    done = subprocess.run([sys.executable, ROOT / "tests/bench/chosen.py", "--pruned", "--rounds", "1", DIGITS], capture_output=True, text=True)
    assert done.returncode == 0, done
    row, mean = done.stdout.splitlines()
    differ = re.fullmatch(r"digits +dense [\d.]+ ms, sparse [\d.]+ ms: [\d.]+; outputs differ by ([\d.e+-]+)", row)
    assert differ and float(differ[1]) < 1e-5, row
    assert re.fullmatch(r"dense over sparse: geometric mean [\d.]+, least [\d.]+ \(1 networks\)", mean), mean


def test_roofline(tmp_path):
    assert mcc(DIGITS, "-o", tmp_path / "digits.so").returncode == 0
    done = mcc("bench", "--roofline", "--runs", 20, tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("us/run"):].splitlines()
    lost = [float(line.split()[1]) for line in table[1:-1]]
    assert lost and lost == sorted(lost, reverse=True), table
    kernels = result("bench", "--roofline", "--runs", 20, tmp_path / "digits.so")["kernels"]
    assert len(kernels) == len(lost) and all(k["limit_ns"] > 0 and k["limited_by"] in ("fma", "memory") for k in kernels)
    assert any(n["operator"] == "Conv" for k in kernels if k["flops"] for n in k["nodes"])
    assert "all kernels" in table[-1]


def test_calls(tmp_path):
    """The driver runs what it is to time; its figures are for a quiet machine, so here they only are in order."""
    runtime = calls.HERE.parents[1] / "runtime"
    subprocess.run([*os.environ.get("CC", "cc").split(), "-O2", "-D_GNU_SOURCE", f"-I{runtime.parent}", calls.HERE / "calls.c",
                    runtime / "mcc_load.c", "-o", tmp_path / "calls", "-ldl"], check=True)
    for name, model in calls.networks(tmp_path).items():
        times = calls.time_call(tmp_path / "calls", model)
        assert 0 < times[0] <= times[1] <= times[2], name


def test_gaps_are_times():
    assert [seconds_of(t) for t in ("0", "100us", "20ms", "1s")] == pytest.approx([0, 1e-4, 0.02, 1])


def test_callers_are_counted_together():
    """Each caller has a thread, and what all of them did is summed: no more than so many sleeps fit a second."""
    ran = collections.Counter()

    def sleep():
        ran[threading.get_ident()] += 1
        time.sleep(0.01)

    assert 0 < callers.rate(sleep, 1, 0.1) <= 100 and len(ran) == 1
    ran.clear()
    start = time.perf_counter()
    rate = callers.rate(sleep, 3, 0.1)
    assert len(ran) == 3 and (sum(ran.values()) - 3) / (time.perf_counter() - start) <= rate <= 300

def test_forms(tmp_path):
    """Forms are compared with ONNX Runtime before they are timed: plain, with an open shape, and of a shape that the data decides."""
    assert len(FORMS) >= 40
    for name in ("Gelu 128x3072", "GRU open 32 steps batch 1 64 to 64", "NonZero 512x512"):
        row, end = measure(name, FORMS[name], [], 1, tmp_path)
        assert end in ("held", "slow"), row
    wrong = FORMS["Gelu 128x3072"]
    assert measure("wrong", dataclasses.replace(wrong, opset=19), [], 1, tmp_path)[1] == "refused"


@pytest.mark.parametrize("form", ["f32", "int4", "int4-exact", "bf16"])
def test_language_models(form):
    """A tiny decoder through all of it: tokens equal to ONNX Runtime's, a line for each case, and one for what is not installed."""
    done = subprocess.run([sys.executable, ROOT / "tests/bench/llm.py", "--shapes", "tiny", "--forms", form, "--rounds", "1", "--past", "5,20",
                           "--prefill", "7", "--peers", "OpenVINO"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(rf"tiny {form}, 2 layers, 1 thread: \d+ MB, .so \d+ MB, compiled in [\d.]+ s and \d+ MB", lines[0])
    assert any(line.startswith("  OpenVINO is left out: ModuleNotFoundError") for line in lines) == (form == "bf16")
    for name in ("mcc", "mcc last"):
        equal = re.search(rf"  (\d+) of 35 tokens of {name} are ONNX Runtime's", done.stdout)
        assert int(equal[1]) == 35 or form == "bf16"
    times = [re.fullmatch(r"  (.*?) +mcc [\d.]+ ms   mcc last [\d.]+ ms   ORT [\d.]+ ms, [\d.]+(   [\d.]+ GB/s, \d+ % of [\d.]+|   \d+ GOP/s.*)?", line)
             for line in lines[-3:]]
    assert [t[1] for t in times] == ["prefill 7", "decode behind 5", "decode behind 20"] and all("GB/s" in t[2] for t in times[1:])


def test_rows_of_language_models():
    done = subprocess.run([sys.executable, ROOT / "tests/bench/llm_rows.py", "--rows", "shape", "--shapes", "tiny", "--rounds", "1", "--threads", "1,2"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    heads = ["tiny int4, 2 layers: ", "  streams, 1 thread: ", "  streams, 2 threads: ", "  adapters of rank 16: ", "  adapters of rank 16 in bf16: "]
    assert [line.startswith(head) for line, head in zip(done.stdout.splitlines(), heads, strict=True)] == [True] * 5


def test_language_models_of_several_threads():
    done = subprocess.run([sys.executable, ROOT / "tests/bench/llm.py", "--shapes", "tiny", "--forms", "int4", "--rounds", "1", "--past", "0",
                           "--prefill", "7", "--threads", "1,2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [m[1] for m in map(re.compile(r"tiny int4, 2 layers, (\d) threads?: ").match, lines) if m] == ["1", "2"]
    assert [m[1] for m in (re.fullmatch(r"  (.*?) +mcc [\d.]+ times as fast as with 1", line) for line in lines[-2:])] == ["prefill 7", "decode behind 0"]


@pytest.mark.parametrize("form", ["f32", "int4"])
def test_wrong_tokens_fail_the_run(form, tmp_path):
    """An mcc that compiles a network of other weights has other tokens, which the exit code says."""
    other = llm_network.Network("tiny", 0, form)
    other.rng = np.random.default_rng(12345)
    other.save(tmp_path)
    liar = tmp_path / "mcc"
    liar.write_text(f'#!/bin/sh\nshift 2\nexec "{MCC}" -q "{tmp_path}/model.onnx" "$@"\n')
    liar.chmod(0o755)
    done = subprocess.run([sys.executable, ROOT / "tests/bench/llm.py", "--shapes", "tiny", "--forms", form, "--rounds", "1", "--past", "5",
                           "--prefill", "7"], capture_output=True, text=True, env=os.environ | {"MCC": str(liar)})
    equal = re.search(r"  (\d+) of 18 tokens of mcc are ONNX Runtime's", done.stdout)
    assert done.returncode == 1 and int(equal[1]) < 18, done.stderr


def test_tokens_are_compared_up_to_a_tie():
    want = [(7, [7]), (3, [3, 9]), (5, [5])]
    assert llm.agreement(want, want) == (3, 0, 0)
    assert llm.agreement(want, [(7, [7]), (9, [3, 9]), (1, [1])]) == (1, 0, 2)
    assert llm.agreement(want, [(7, [7]), (4, [3, 4]), (5, [5])]) == (1, 2, 0)       # a tie for this one only


def test_networks_for_llama():
    """Rows for llama.cpp hold the numbers of the file: blocks of a half and 16 bytes, halves of each head's rows as neighbours."""
    for form, shape in (("int4", "smollm2-135m"), ("f32", "tiny")):
        n = llm_network.Network(shape, 1, form)
        n.words = 64
        n.build()
        for role, first, count, turned in (("head", 0, None, 0), ("0.qkv", 0, n.width, n.heads), ("0.qkv", n.width, n.keys * n.size, 0)):
            rows = n.rows(role, first, count, turned)
            if form == "f32":
                w, got = n.weights[role].T, rows
            else:
                packed, scales = n.weights[role]
                w = (np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:2], 32).astype(np.float32) - 8) * scales[..., None]
                blocks = rows.reshape(len(rows), -1, 18)
                q = blocks[..., 2:]
                got = (np.concatenate([q & 15, q >> 4], -1).astype(np.float32) - 8) * np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
                w, got = w.reshape(len(w), -1), got.reshape(len(got), -1)
            w = w[first:first + (count or len(w))]
            half = n.size // 2
            where = [h * n.size + j * half + i for h in range(turned) for i in range(half) for j in range(2)] or list(range(len(w)))
            assert (got == w[where]).all(), (form, role)


def test_a_quantizer_that_takes_too_long(tmp_path, capsys):
    """It has a row, and the others go on."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    args = f"types.SimpleNamespace(compressor_python={str(slow)!r}, peer_most=0.2)"
    call = f"chosen.quantized('neural-compressor', 'net.onnx', {str(tmp_path)!r}, {args})"
    done = subprocess.run([sys.executable, "-c", f"import types, chosen; print({call})"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "tests/bench")})     # what it imports has paths of its own
    assert re.search(r"neural-compressor +no network within 0\.2 s\s+None", done.stdout), done.stderr


def test_what_strict_costs(tmp_path):
    """A line for each network; the status is that of the ratios."""
    done = subprocess.run([sys.executable, ROOT / "tests/bench/strict.py", "--rounds", "1", "--seconds", "0.001", DIGITS], capture_output=True, text=True)
    assert re.match(r"digits +[\d.]+ ms +[\d.]+\n--strict over the default, -march=native: geometric mean ([\d.]+), least \1, most \1$", done.stdout), done
