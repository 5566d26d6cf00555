"""What this machine's CPU has, for tests whose subject or whose reference depends on it."""
import pathlib
import platform

V4 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def flags():
    """The feature words of /proc/cpuinfo."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return set(next((l for l in lines if l.startswith("flags")), "").partition(":")[2].split())


def levels():
    """-march options of the x86-64 levels that code can be run for here."""
    found = ["x86-64-v2"] + ["x86-64-v3"] * ({"avx2", "fma"} <= flags()) + ["x86-64-v4"] * (V4 <= flags())
    return tuple(f"-march={level}" for level in found)


def saturates():
    """Do ONNX Runtime's products of unsigned and signed bytes saturate the sums of pairs at 16 bits? On x86-64 without VNNI they do."""
    return platform.machine() == "x86_64" and not flags() & {"avx512_vnni", "avx_vnni"}
