"""What examples/ promises: the make rule rebuilds exactly when it should, the CI step works, README's C code runs."""
import os
import re
import shutil
import subprocess
import time

import numpy as np
import pytest

from support.tool import BUILD, MCC, ROOT, dense, mcc


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples/makefile-rule", folder)
    return folder


def make(folder, *args):
    done = subprocess.run(["make", f"MCC={os.path.abspath(MCC)}", f"MCC_RUNTIME={ROOT}/runtime", *args], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def touch_later(path):
    """Newer than anything that was made so far, on file systems with coarse times too."""
    later = time.time() + 2
    os.utime(path, (later, later))


@pytest.mark.parametrize("name", ["net.onnx", "net.weights", "net.yaml"])
def test_what_rebuilds(project, name):
    assert "net.so" in make(project)
    assert "net.so" not in make(project)
    touch_later(project / name)
    assert "-o net.so" in make(project)


@pytest.mark.parametrize("name", ["make_net.py", "show.c", "Makefile"])
def test_what_does_not_rebuild(project, name):
    make(project)
    touch_later(project / name)
    assert "-o net.so" not in make(project)


def test_the_built_program_runs(project):
    make(project)
    done = subprocess.run(["./show", "./net.so"], cwd=project, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "input x\noutput y\n")


def test_ci_step(project):
    script = ROOT / "examples/ci/build-model.sh"
    env = dict(os.environ, MCC=os.path.abspath(MCC))
    done = subprocess.run([script, "net.onnx", "out.so"], cwd=project, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (project / "out.so").exists() and "supported" in done.stdout
    done = subprocess.run([script, "net.onnx", "small.so"], cwd=project, env=dict(env, MCC_MAX_SIZE="1K"), capture_output=True)
    assert done.returncode != 0 and not (project / "small.so").exists()


def test_readme_program(tmp_path):
    """The C code of the README, with a main around it."""
    code = re.search(r"```c\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    include, body = code.split("\n", 1)
    (tmp_path / "main.c").write_text(f"#include <stdio.h>\n{include}\nint main(void) {{\n{body}\n"
                                     '    printf("%g %g\\n", y[0][0], y[1][2]);\n    return 0;\n}\n')
    subprocess.run(["gcc", "-I", ROOT / "runtime", "-o", tmp_path / "main", tmp_path / "main.c", ROOT / "runtime/mcc_load.c"],
                   check=True)
    model = dense(tmp_path / "net.onnx")
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    np.save(tmp_path / "x.npy", np.arange(1, 9, dtype=np.float32).reshape(2, 4))
    assert mcc("eval", model, "-i", "x=x.npy", "-o", "out", cwd=tmp_path).returncode == 0
    want = np.load(tmp_path / "out/y.npy")
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True)
    got = [float(v) for v in done.stdout.split()]
    np.testing.assert_allclose(got, [want[0, 0], want[1, 2]], rtol=1e-4)


def test_headers_compile_alone(tmp_path):
    for header in ("mcc.h", "mcc_load.h", "mccc.h"):
        path = BUILD / "include" / header
        for compiler, suffix in (("gcc", "c"), ("g++", "cpp")):
            source = tmp_path / f"h.{suffix}"
            source.write_text(f'#include "{path}"\n#include "{path}"\n')
            subprocess.run([compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", source], check=True)


def test_library(tmp_path):
    """libmcc.so from a C program: compiles a model, with its messages through the callback."""
    model = dense(tmp_path / "net.onnx")
    (tmp_path / "main.c").write_text(r'''
#include <stdio.h>
#include "mccc.h"
static void say(void *user, int kind, const char *text, size_t n) { (void)user; printf("%d %.*s", kind, (int)n, text); }
int main(int argc, char **argv)
{
    mccc *c = mccc_new();
    mccc_on_message(c, say, NULL);
    int bad = mccc_set(c, "layuot", "NCHW");
    int good = mccc_set(c, "O", "1");
    int status = mcc_compile(c, argv[1], argv[2]);
    int missing = mcc_compile(c, "missing.onnx", argv[2]);
    mccc_free(c);
    printf("%d %d %d %d\n", bad, good, status, missing);
    return argc != 3;
}
''')
    subprocess.run(["gcc", f"-I{BUILD}/include", "-o", tmp_path / "main", tmp_path / "main.c", f"-L{BUILD}", "-lmcc",
                    f"-Wl,-rpath,{BUILD}"], check=True)
    env = dict(os.environ)
    (tmp_path / "lib").mkdir()
    os.symlink(BUILD / "libmcc.so", tmp_path / "lib/libmcc.so.1")
    os.symlink(MCC, tmp_path / "lib/mcc")
    env["LD_LIBRARY_PATH"] = str(tmp_path / "lib")
    done = subprocess.run([tmp_path / "main", model, tmp_path / "net.so"], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines()[-1] == "2 0 0 3", done.stdout
    assert "did you mean 'layout'" in done.stdout and (tmp_path / "net.so").exists()
    mcc(model, "-O1", "-o", tmp_path / "same.so")
    assert (tmp_path / "same.so").read_bytes() == (tmp_path / "net.so").read_bytes()


def test_install(tmp_path):
    done = subprocess.run(["make", "-s", "-o", "all", "install", f"BUILD={BUILD}", f"DESTDIR={tmp_path}", "PREFIX=/usr"], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("bin/mcc", "lib/libmcc.a", "lib/libmcc.so", "include/mcc.h", "include/mccc.h", "share/mcc/mcc_load.c"):
        assert (tmp_path / "usr" / name).exists(), name


def test_command_reference_is_current():
    page = (ROOT / "docs/commands.md").read_text()
    assert mcc("--reference").stdout in page, "docs/commands.md: put the output of mcc --reference in"


def test_the_fields_of_schedules_are_the_tables():
    page = (ROOT / "docs/reference/schedules.md").read_text()
    text = mcc("--generate=schedules.md").stdout
    assert text in page, "docs/reference/schedules.md: put the output of mcc --generate=schedules.md in"
    names = re.findall(r"^(?:FIELD|ITEMS|POINTED)\([^\"]*\"([^\"]+)\"", (ROOT / "passes/schedule/fields.def").read_text(), re.M)
    assert len(names) > 60 and all(f"- `{n.replace('%u', 'N')}` (" in text for n in names)
