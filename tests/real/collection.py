"""The collection of models beside the project (../shared/models): every one compiled and run, compared with the
references stored beside it, one line each, and counts of matched, ran, refused, wrong and crashed.

Between "matched" and "wrong" lies what the collection's own notes say: rtol 1e-3 with atol 1e-5, integers exact, and
the exceptions of RULES. A model without references is run on drawn inputs beside ONNX Runtime.
"""
import collections
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from judge import ATOL, RTOL, Judge

HALF = (1e-2, 5e-3, ())
SMALL = (RTOL, 1e-7, ())
TF = "ops/ort-small/transform__fusion__"
# model -> (rtol, atol, outputs not compared), why
RULES = {
    # Rounding after every node, as the types say, is 1.2e-2 from rounding at the end; outputs reach 6.5.
    "lowp/ultraface_slim320_simplified_fp16": ((1e-2, 2e-2, ()), "the references round to float16 only at the end"),
    "lowp/micro_kws_fp32_fp16": (HALF, "the references are float32 arithmetic on rounded weights"),
    "lowp/mixed_ops_dynamic_batch_fp16": (HALF, "the references are float32 arithmetic on rounded weights"),
    "lowp/attention_no_mask_fp16": (HALF, "float16 rounding differs"),
    "ops/ort-small/transform__propagate_cast__matmul_add_transpose_inputs_cast_product": (HALF, "float16 rounding differs"),
    "quant/micro_kws_qdq": ((4e-3, ATOL, ()), "ties in rounding"),
    "quant/qdq_with_multi_consumer_dq_nodes": ((0, 0.71, ()), "one quantization step of each quantized value"),
    "ops/ort-small/transform__dropout": ((RTOL, ATOL, (1, 2)), "masks O2 and M3: opset 10 does not say their value"),
    "ocr/ppocr_v2_det": (SMALL, "outputs below 2e-6"),
    TF + "layer_norm_with_cast_3": (SMALL, "outputs below 2e-6"),
}
RULES |= {TF + n: (HALF, "float16 rounding differs, elements near zero") for n in (
    "conv_add_fp16", "transpose_cast_matmul_4d_fusion0", "transpose_cast_matmul_4d_fusion1", "layer_norm_fusion_scale_bias",
    "skip_layer_norm_format1_partial_with_cast", "skip_layer_norm_format2_graph_output_with_cast",
    "skip_layer_norm_format2_partial_with_cast", "skip_layer_norm_format3_with_cast")}
# References that were dropped for a reason: whatever happens short of a crash is right.
DROPPED = {TF + "div_mul": "an int64 division by zero", "ops/burn/resize_with_sizes_tensor": "target sizes of 0"}
# Files that break their opset: a refusal is right, and so is the answer of the smallest repair.
BROKEN = {
    "opset/burn_opset_13": "float Mod without fmod", "opset/burn_opset_18": "GroupNormalization's scale is of version 21",
    TF + "fuse-matmul-bn-only-transpose": "5 scales for 1 channel",
    "ops/onnx2c-local/test_resize_downsample_sizes_linear_1D": "no scales before version 13",
    "ops/onnx2c-local/test_resize_downsample_sizes_linear_1D_align": "no scales before version 13",
} | {"ops/burn/" + n: why for why, names in {
    "BitShift of signed integers": ("bitshift_left_scalar", "bitshift_right_scalar", "scalar_bitshift_left_scalar",
                                    "scalar_bitshift_right"),
    "ReduceMin of booleans before version 20": ("reduce_min_bool", "loop_dynamic_cond"),
    "branches of If with inputs": ("nested_if", "nested_if_loop_if"),
    "ends of Slice is a scalar": ("slice_mixed", "slice_shape_gather"),
    "a dimension declared 0": ("where_shapes_from_inputs",)}.items() for n in names}
# negative/: what each must get.
NEGATIVE = {"bad_no_import_domains": "refused", "bad_parallel_invalid_nodes": "refused", "bad_duplicate_node_names": "compiled",
            "bad_no_graph_name": "compiled", "invalid_dim_param_repetition": "shape error"}

REFUSED = {1: "refused", 4: "refused"}
COMPILE_SECONDS, RUN_SECONDS = 300, 300
BAD = ("wrong", "run error", "crashed", "hung", "harness error", "compiler failed")
local = threading.local()


def judge():
    if not hasattr(local, "judge"):
        local.judge = Judge()
    return local.judge


def compile_one(mcc, path, flags, output):
    """(status, text, seconds)"""
    start = time.monotonic()
    try:
        done = subprocess.run([mcc, *flags, "-q", "-j1", path, "-o", output], capture_output=True, text=True, errors="replace",
                              timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        return "compiler failed", f"no end in {COMPILE_SECONDS} s", COMPILE_SECONDS
    lines = [l.removeprefix(f"{path}: ") for l in done.stderr.splitlines() if "error" in l] or done.stderr.splitlines() or [""]
    if done.returncode == 0:
        return "compiled", "", time.monotonic() - start
    status = REFUSED.get(done.returncode, "compiler failed")
    return status, f"{f'exit {done.returncode}: ' if status not in REFUSED.values() else ''}{lines[0]}", time.monotonic() - start


def sets_of(folder):
    found = sorted([*folder.glob("test_data_set_*"), *folder.glob("generated_data_set_*")])
    return [d for d in found if any(d.glob("output_*.pb"))]


def check_negative(name, artifact):
    """What invalid_dim_param_repetition says to sizes that disagree; the others are only compiled."""
    if NEGATIVE[name] != "shape error":
        return "compiled", ""
    x = [np.ones((2, 3), np.float32), np.ones((4, 5), np.float32)]
    status, text = judge().ask(RUN_SECONDS, "feed", artifact, x)
    return ("shape error" if status == "run error" and ": -2: " in text else status), str(text)


def check_one(mcc, root, path, flags, folder):
    name = str(path.parent.relative_to(root))
    output = pathlib.Path(folder, name.replace("/", "_") + ".so")
    status, text, seconds = compile_one(mcc, path, flags, output)
    if status == "compiled":
        rule, why = RULES.get(name, ((RTOL, ATOL, ()), ""))
        if name.startswith("negative/"):
            status, text = check_negative(path.parent.name, output)
        elif sets_of(path.parent):
            status, text = judge().ask(RUN_SECONDS, "data_sets", path, output, sets_of(path.parent), rule)
        else:
            status, text = judge().ask(RUN_SECONDS, "against_runtime", path, output)
        text += f" ({why})" if why else ""
        output.unlink()
    if name.startswith("negative/"):
        want = NEGATIVE.get(path.parent.name, status)
        status, text = ("as it must be" if status == want else "wrong"), f"{status}: {text}"
    if name in DROPPED and status in ("wrong", "run error", "harness error"):
        status, text = "ran", f"{DROPPED[name]}: {text}"
    if name in BROKEN:
        status = "refused" if status == "run error" else status
        text += f" (the file breaks its version: {BROKEN[name]})"
    return name, status, text, seconds


def check(root, flags, only=""):
    """Prints one line a model and the counts; returns the names of those that are wrong."""
    mcc, bad = os.environ["MCC"], []
    counts = collections.defaultdict(collections.Counter)
    models = [p for p in sorted(root.rglob("*.onnx")) if only in str(p.relative_to(root))]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, status, text, seconds in pool.map(lambda p: check_one(mcc, root, p, flags, folder), models):
            print(f"{status:15} {name:52} {seconds:5.1f} s  {text}", flush=True)
            group = name.split("/")[0] if name.startswith(("ops/", "negative/")) else "whole"
            referenced = bool(sets_of(root / name))
            counts[group][status] += 1
            counts[group]["with references"] += referenced
            counts[group]["of these matched"] += referenced and status == "matched"
            if status in BAD:
                bad.append(f"{name}: {status}: {text}")
    for group, count in counts.items():
        print(f"{group}: {sum(n for s, n in count.items() if s not in ('with references', 'of these matched'))} models:",
              ", ".join(f"{n} {s}" for s, n in count.most_common()))
    return bad


if __name__ == "__main__":
    sys.exit(1 if check(pathlib.Path(sys.argv[1]), sys.argv[2:]) else 0)
