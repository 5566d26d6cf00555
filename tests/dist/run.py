"""make check-dist: each package of make dist installed and used where nothing of this tree is.

The tarball's program runs in a folder that holds it and a network, and no libc; the .deb is installed by the dpkg of a bare Debian 12
that debootstrap makes (kept in DIST/debian); the wheel by pip into a fresh venv. Needs root for the first two (chroot), debootstrap and
Debian's and PyPI's packages for the others. A second build must be the same bytes. Packages for hosts of another architecture are unpacked and
their programs run by qemu-user: what they compile are the bytes that this machine's mcc compiles. Ends with one line for each,
status 1 where one failed."""
import contextlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits/digits.onnx"
TARBALL_MOST = 20_000_000
SAID = {"two builds": "the same bytes", "workflow": "as its schema says"}


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def one(dist, pattern):
    found = list(dist.glob(pattern))
    assert len(found) == 1, (pattern, found)
    return found[0]


def chroot(folder, *command):
    """With what every container has: /proc and /dev/null; in a mount namespace of its own, so nothing stays mounted."""
    for name in ("proc", "tmp", "dev"):
        (folder / name).mkdir(exist_ok=True)
    if not (folder / "dev/null").exists():
        (folder / "dev/null").touch()
    return run("unshare", "--mount", "sh", "-ec", 'mount --rbind /proc "$0/proc"; mount --bind /dev/null "$0/dev/null"; exec chroot "$0" "$@"',
               folder, *command)


def check_tarball(dist, folder):
    """Unpacked, the program works alone: no libc, no shell, no other file."""
    archive = one(dist, "*.tar.xz")
    assert archive.stat().st_size <= TARBALL_MOST, archive.stat().st_size
    run("tar", "-xf", archive, "-C", folder)
    tree = one(folder, "mcc-*")
    assert {path.name for path in tree.iterdir()} >= {"bin", "include", "share"} and (tree / "share/man/man1/mcc.1").exists()
    assert "statically linked" in run("file", "-b", tree / "bin/mcc") if shutil.which("file") else True
    assert b"INTERP" not in subprocess.run(["readelf", "-lW", tree / "bin/mcc"], capture_output=True).stdout
    bare = folder / "bare"
    bare.mkdir()
    shutil.copy(tree / "bin/mcc", bare)
    shutil.copy(DIGITS, bare)
    chroot(bare, "/mcc", "digits.onnx", "--no-cache", "-o", "digits.so")
    assert "kernel   conv1 (Conv) + relu1 (Relu)" in chroot(bare, "/mcc", "inspect", "digits.onnx")


def check_deb(dist, folder, made):
    debian = dist / "debian"
    if not (debian / "usr/bin/dpkg").exists():
        shutil.rmtree(debian, ignore_errors=True)
        run("debootstrap", "--variant=minbase", "bookworm", debian)
    shutil.copy(one(dist, "*.deb"), debian / "mcc.deb")
    shutil.copy(DIGITS, debian / "root")
    assert not (debian / "usr/bin/mcc").exists(), "installed by an earlier run that was broken off"
    chroot(debian, "dpkg", "-i", "/mcc.deb")
    try:
        chroot(debian, "mcc", "/root/digits.onnx", "--no-cache", "-o", "/root/digits.so")
        assert (debian / "root/digits.so").read_bytes() == made.read_bytes()
        assert chroot(debian, "mcc", "run", "/root/digits.onnx").startswith("probability f32[1,10]: ")
        assert "all kernels" in chroot(debian, "mcc", "bench", "/root/digits.so", "--runs=10")
        assert not chroot(debian, "dpkg", "--audit").strip()
    finally:
        chroot(debian, "dpkg", "--purge", "mcc")
    assert not (debian / "usr/bin/mcc").exists() and not (debian / "usr/share/mcc").exists()


USE = """
import mcc, numpy, inspect, pathlib
m = mcc.load(mcc.compile(%r))
y = m(numpy.zeros((2, 1, 8, 8), numpy.float32))
assert y.shape == (2, 10) and abs(y.sum() - 2) < 1e-5 and pathlib.Path(mcc.__file__).with_name("py.typed").exists()
print("used", mcc.__file__)
"""


TYPED = """import mcc
m = mcc.load(mcc.compile("net.onnx", "net.so", "-O1"), threads=2)
names: list[str] = [port.name for port in m.inputs if not port.dynamic]
slowest: float = max(row.ms for row in m.profile(1.0, runs=3))
bytes_: int = m.plan(1.0).bytes
y: object = m(1.0)
"""


def check_wheel(dist, folder, made):
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", one(dist, "*.whl"))
    bare = dict(os.environ, PATH="/usr/bin:/bin")
    for name in ("MCC", "MCC_BUILD", "PYTHONPATH"):
        bare.pop(name, None)
    said = run(venv / "bin/python", "-c", USE % str(DIGITS), cwd=folder, env=bare)
    assert said.startswith(f"used {venv}"), said
    assert (folder / "digits.so").read_bytes() == made.read_bytes()
    assert re.match(r"mcc \d", run(venv / "bin/mcc", "--version", env=bare))
    run(venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "mypy")
    (folder / "typed.py").write_text(TYPED)
    run(venv / "bin/mypy", "--strict", "typed.py", cwd=folder, env=bare)
    (folder / "typed.py").write_text(TYPED + "mcc.load(3)\n")
    wrong = subprocess.run([venv / "bin/mypy", "--strict", "typed.py"], cwd=folder, env=bare, capture_output=True, text=True)
    assert wrong.returncode == 1 and "Found 1 error " in wrong.stdout, wrong.stdout
    run(venv / "bin/pip", "uninstall", "-q", "-y", "mcc")
    assert not (venv / "bin/mcc").exists()


BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc")
# e_ident and e_type of executables (static ones are EXEC), e_machine: 183, AArch64.
FOREIGN = {"aarch64": r":mcc-check-dist:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
                      r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:%s:F"}


@contextlib.contextmanager
def foreign_programs(arch):
    """Programs of arch can be started, also by one another: mcc starts its workers from its own file."""
    if not (BINFMT / "register").exists():
        run("mount", "-t", "binfmt_misc", "none", BINFMT)
    (BINFMT / "register").write_text(FOREIGN[arch] % shutil.which(f"qemu-{arch}"))
    try:
        yield
    finally:
        (BINFMT / "mcc-check-dist").write_text("-1")


def check_foreign(dist, folder, arch, native):
    """All three hold one program. It runs, compiles for its own CPU and for this one, and runs what it compiled."""
    archive = one(dist, "*.tar.xz")
    assert archive.stat().st_size <= TARBALL_MOST, archive.stat().st_size
    run("tar", "-xf", archive, "-C", folder)
    program = one(folder, "mcc-*") / "bin/mcc"
    assert "AArch64" in run("readelf", "-hW", program) and "INTERP" not in run("readelf", "-lW", program)
    wheel = one(dist, "*.whl")
    run(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--platform",
        f"manylinux2014_{arch}", "--target", folder / "wheel", wheel)
    run("dpkg-deb", "-x", one(dist, "*.deb"), folder / "deb")
    assert run("dpkg-deb", "-f", one(dist, "*.deb"), "Architecture").strip() == "arm64"
    for other in (folder / "wheel/bin/mcc", folder / "deb/usr/bin/mcc"):
        assert other.read_bytes() == program.read_bytes(), other
    libc = dict(os.environ, QEMU_LD_PREFIX=f"/usr/{arch}-linux-gnu")
    with foreign_programs(arch):
        for target in (arch, platform.machine()):
            said = [f"--target={target}-linux-gnu", DIGITS, "--no-cache", "-o"]
            run(native, *said, folder / "native.so")
            run(program, *said, folder / "foreign.so")
            assert (folder / "native.so").read_bytes() == (folder / "foreign.so").read_bytes(), target
        assert run(program, "run", DIGITS, env=libc).startswith("probability f32[1,10]: ")


def check_same(dist, again):
    """What was built in another folder: the same packages."""
    for pattern in ("*.tar.xz", "*.whl", "*.deb", "SHA256SUMS"):
        first, second = one(dist, pattern), one(again, pattern)
        assert first.name == second.name and first.read_bytes() == second.read_bytes(), f"{first} and {second} differ"


def check_workflow(folder):
    """By the schema of the workflows' host, which the package brings."""
    run(sys.executable, "-m", "venv", folder / "schema")
    run(folder / "schema/bin/pip", "install", "-q", "--disable-pip-version-check", "check-jsonschema")
    check = [folder / "schema/bin/check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
    workflow = ROOT / ".github/workflows/check.yml"
    run(*check, workflow, workflow.with_name("windows.yml"), workflow.with_name("macos.yml"))
    (folder / "wrong.yml").write_text(workflow.read_text().replace("runs-on:", "runs-at:"))
    assert subprocess.run([*check, folder / "wrong.yml"], capture_output=True).returncode == 1


def report(checks, said):
    """Carries out (name, function) one after another, a line each; how many failed."""
    failed = 0
    for name, check in checks:
        try:
            check()
            print(f"{name}: {said(name)}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{name}: FAILED\n{error}", flush=True)
    return failed


def main(dist, again, arch):
    dist, again = pathlib.Path(dist).resolve(), pathlib.Path(again).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = folder / "bare/digits.so"        # of the tarball's program
        checks = [("two builds", lambda: check_same(dist, again))]
        if arch == platform.machine():
            checks += [("tarball", lambda: check_tarball(dist, folder)), ("wheel", lambda: check_wheel(dist, folder, made)),
                       ("deb", lambda: check_deb(dist, folder, made)), ("workflow", lambda: check_workflow(folder))]
        else:
            checks += [(f"packages for {arch}", lambda: check_foreign(dist, folder, arch, os.environ["MCC"]))]
        return report(checks, lambda name: SAID.get(name, "installed and used")) != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
