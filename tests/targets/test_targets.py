"""Cross-compiled digits under qemu-user: the same answers as on this machine, for each target and CPU level."""
import platform
import re
import shutil
import subprocess

import pytest

from support.tool import DIGITS, ROOT, mcc

TEST_SET = ROOT / "examples/digits/digits.test"
SOURCES = [ROOT / "examples/digits/digits.c", ROOT / "runtime/mcc_load.c"]


def answers(text):
    return re.search(r"read: .*", text)[0], re.search(r"\d+ of \d+ pictures right", text)[0]


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    assert mcc(DIGITS, "-o", folder / "digits.so").returncode == 0
    subprocess.run(["gcc", "-std=gnu11", "-O1", f"-I{ROOT}/runtime", "-o", folder / "digits", *SOURCES], check=True)
    done = subprocess.run([folder / "digits", folder / "digits.so", TEST_SET], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "digits", answers(done.stdout)


@pytest.fixture(scope="session")
def foreign(tmp_path_factory):
    """The program for an architecture."""
    def build(arch):
        if arch not in made:
            for tool in (f"qemu-{arch}", "clang-19", "ld.lld-19"):
                assert shutil.which(tool), f"{tool} is missing: make deps"
            made[arch] = tmp_path_factory.mktemp(arch) / "digits"
            subprocess.run(["clang-19", f"--target={arch}-linux-gnu", "-fuse-ld=lld", "-std=gnu11", "-O1", f"-I{ROOT}/runtime",
                            "-o", made[arch], *SOURCES], check=True)
        return made[arch]
    made = {}
    return build


def emulate(arch, program, artifact, *options):
    return subprocess.run([f"qemu-{arch}", *options, program, artifact, TEST_SET], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_cross(arch, native, foreign, tmp_path):
    done = mcc(f"--target={arch}-linux-gnu", DIGITS, "-o", tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    done = emulate(arch, foreign(arch), tmp_path / "digits.so", "-L", f"/usr/{arch}-linux-gnu")
    assert done.returncode == 0, done.stderr
    assert answers(done.stdout) == native[1]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU levels of x86-64")
@pytest.mark.parametrize("cpu,variants", [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3"), ("Haswell", "x86-64-v3,x86-64-v2")])
def test_cpu_levels(cpu, variants, native, tmp_path):
    done = mcc(f"--variants={variants}", DIGITS, "-o", tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    done = emulate("x86_64", native[0], tmp_path / "digits.so", "-cpu", cpu)
    assert done.returncode == 0, done.stderr
    assert answers(done.stdout) == native[1]


# What -march and -mattr ask for, and a CPU that has it all or that lacks a part of it.
FEATURES = [("x86_64", "--march=x86-64-v3", "Nehalem", False),
            ("x86_64", "--march=x86-64-v3", "Haswell,-bmi2", False),
            ("x86_64", "--march=x86-64-v2 --mattr=+avx2,+fma", "Nehalem", False),
            ("x86_64", "--march=x86-64-v2 --mattr=+avx2,+fma", "Haswell", True),
            ("x86_64", "--march=x86-64-v2 --mattr=+avx2,+fma", "Haswell,-bmi2", True),
            ("x86_64", "--march=x86-64-v2 --mattr=+fma", "Haswell,-fma", False),
            ("x86_64", "--march=x86-64-v3 --mattr=+fma4", "Haswell", False), ("x86_64", "--march=x86-64-v3 --mattr=+xop", "Haswell", False),
            ("x86_64", "--march=x86-64-v3 --mattr=+fma4,-sse4a", "Haswell", True), ("x86_64", "--march=x86-64-v3 --mattr=-fma", "Haswell,-fma", True),
            ("x86_64", "--march=x86-64-v3 --mattr=+avx512vbmi,+avx512vl", "max", False),
            ("x86_64", "--march=x86-64-v3 --mattr=+prefer-128-bit", "Haswell", True),
            ("aarch64", "--march=armv8-a --mattr=+dotprod", "cortex-a53", False), ("aarch64", "--march=armv8-a --mattr=+dotprod", "max", True),
            ("aarch64", "--march=armv8-a --mattr=+i8mm", "cortex-a76", False), ("aarch64", "--march=armv8-a --mattr=+sve2", "a64fx", False),
            ("aarch64", "--march=armv8-a --mattr=+fullfp16", "cortex-a76", True), ("riscv64", "--march=rv64gc --mattr=+v", "rv64", False)]


@pytest.mark.parametrize("arch,options,cpu,runs", FEATURES)
def test_features_are_asked_for(arch, options, cpu, runs, native, foreign, tmp_path):
    if arch == "x86_64" and platform.machine() != "x86_64":
        pytest.skip("CPU levels of x86-64")
    done = mcc(f"--target={arch}-linux-gnu", *options.split(), DIGITS, "-o", tmp_path / "digits.so")
    assert done.returncode == 0, done.stderr
    program, more = (native[0], []) if arch == "x86_64" else (foreign(arch), ["-L", f"/usr/{arch}-linux-gnu"])
    done = emulate(arch, program, tmp_path / "digits.so", "-cpu", cpu, *more)
    if runs:
        assert done.returncode == 0 and answers(done.stdout) == native[1], done.stderr
    else:
        assert done.returncode == 2 and "this CPU cannot run the code, which needs at least" in done.stderr


@pytest.mark.parametrize("options,says", [
    ("--mattr=+nosuch", "these can: cx16, sahf"), ("--mattr=+avx3", "did you mean 'avx"), ("--mattr=-sse2", "cannot be disabled"),
    ("--march=v3 --mattr=+avx512vbmi", "add +avx512vl"), ("--march=v4 --mattr=-avx512vl", "add +avx512vl"),
    ("--target=aarch64-linux-gnu --mattr=+fma4", "not a feature of aarch64"), ("--march=x86-64-v5", "did you mean 'x86-64-v"),
    ("--variants=v3,v9", "there is no CPU 'v9'"), ("--march=armv8-a", "is a CPU of aarch64"), ("--march=x86-64-v3,", "there is no CPU ''"),
    ("--target=riscv64-pc-windows-msvc", "there is for x86_64-linux, "), ("--target=riscv64-apple-darwin", "there is for x86_64-linux, "),
    ("--target=x86_64-linux-gnux32", "there is for x86_64-linux, "), ("--target=aarch64_be-linux-gnu", "there is for x86_64-linux, "),
    ("--target=x86_64-unknown-freebsd", "there is for x86_64-linux, "), ("--target=aarch64-linux-gnu_ilp32", "there is for x86_64-linux, "),
    ("--target=x86_64-linux-gnu-more", "there is for x86_64-linux, "), ("--target=", "there is for x86_64-linux, ")])
def test_there_is_no_such_target(options, says, tmp_path):
    done = mcc(*options.split(), DIGITS, "-o", tmp_path / "digits.so")
    assert done.returncode == 2 and says in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["compile", "compile -o n.so", "run", "bench", "diff", "report", "quantize", "quantize -o n.so"])
def test_no_command_has_such_a_target(command, tmp_path):
    done = mcc(*command.split(), DIGITS, "--target=x86_64-plan9", cwd=tmp_path)
    assert done.returncode == 2 and "there is no code for the target 'x86_64-plan9'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["x86_64", "x86_64-linux-gnu", "x86_64-unknown-linux-musl", "x86_64-linux", "arm64-linux-gnu",
                                    "riscv64gc-unknown-linux-gnu"])
def test_targets_of_linux(target, tmp_path):
    done = mcc(f"--target={target}", DIGITS, "--stop-after=emit", "-o", tmp_path / "loops")
    assert done.returncode == 0, done.stderr
