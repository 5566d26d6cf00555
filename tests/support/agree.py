"""`mcc check` and `mcc compile` agree: tests that compile ask both, through this.

A compilation that gave something, or that refused the model (1, or 4 where a limit was reached), must be what check says too.
Statuses 2 and 3 depend on what check does not do (outputs, code); 5 is a defect in either.
"""
import os
import subprocess

COMMANDS = ("check", "run", "bench", "inspect", "diff", "reduce", "eval", "verify", "prove")
OTHERWISE = ("emit=", "target=wasm",   # a header, or one function, may have no words for what a shared object does
             "stop-after", "help", "h", "version", "list-", "print-config", "###", "reference", "generate", "calibrate", "worker", "Werror")
SHARED = ("input=", "overridable=", "config=", "limit-", "allow-hard-links")
NOT_CHECKED = ("limit-worker", "limit-cache", "limit-compile-", "max-")   # what check does not make, less of, or not with these options


def option(word):
    """What follows the dashes; "" for other words."""
    return word.lstrip("-") if word.startswith("-") else ""


def model_of(args):
    """The model that this command compiles to code, or None."""
    words = [str(a) for a in args]
    files = [w for k, w in enumerate(words) if not option(w) and words[k - 1:k] not in (["-o"], ["-MF"])]
    if not words or words[0] in COMMANDS or any(option(w).startswith(OTHERWISE) for w in words):
        return None
    files = files[1:] if files and files[0] == "compile" else files
    return files[0] if len(files) == 1 and files[0].endswith(".onnx") else None


def disagreement(mcc, args, status, said, **more):
    """Text where check's status is not that of the compilation with these arguments, else ""."""
    model = model_of(args)
    if model is None or status not in (0, 1, 4, 5) or any(option(str(a)).startswith(NOT_CHECKED) for a in args):
        return ""
    if status == 5:
        return f"internal error: {said}"
    words = [str(a) for a in args if option(str(a)).startswith(SHARED)]
    done = subprocess.run([mcc, "check", model, *words], capture_output=True, text=True, errors="replace", **more)
    return "" if done.returncode == status else (
        f"mcc check {model}: {done.returncode} {done.stderr}\nmcc {' '.join(map(str, args))}: {status} {said}")


def wanted():
    """MCC_AGREE=0 leaves the question out."""
    return os.environ.get("MCC_AGREE", "1") != "0"
