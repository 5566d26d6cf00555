"""What debuggers see of a program that runs a compiled network."""
import shutil
import subprocess

import pytest

from support.tool import DIGITS, ROOT, mcc

gdb_only = pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")

HOST = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mcc_load.h"
int main(int argc, char **argv)
{
    (void)argc;
    mcc_lib *lib;
    mcc_ctx *ctx;
    mcc_error error;
    mcc_host host = { .size = sizeof host, .threads = (unsigned)atoi(argv[2]) };
    if (mcc_load(argv[1], &host, &lib, &error) || lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error))
        return puts(error.text), 1;
    static float x[1 << 20], y[1 << 20];
    DLTensor tensors[2];
    int64_t dims[2][8];
    for (int t = 0; t < 2; t++) {
        const mcc_port *port = t ? lib->api->out : lib->api->in;
        tensors[t] = (DLTensor){ .data = t ? y : x, .device = { kDLCPU, 0 }, .ndim = port->ndim, .dtype = { kDLFloat, 32, 1 }, .shape = dims[t] };
        for (int i = 0; i < port->ndim; i++)
            dims[t][i] = port->dims[i].extent > 0 ? port->dims[i].extent : 1;
    }
    puts("loaded");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;)
        if (c == '\n' && lib->api->run(ctx, (const DLTensor *const[]){ tensors }, (DLTensor *const[]){ tensors + 1 }, &error))
            return puts(error.text), 1;
    lib->api->ctx_free(ctx);
    mcc_unload(lib);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """(program, network): the program runs the network for each line that it reads."""
    folder = tmp_path_factory.mktemp("debug")
    (folder / "main.c").write_text(HOST)
    subprocess.run(["gcc", "-std=c11", "-g", "-I", ROOT / "runtime", folder / "main.c", ROOT / "runtime/mcc_load.c", "-o", folder / "main",
                    "-ldl"], check=True)
    done = mcc(DIGITS, "-o", folder / "net.so")
    assert done.returncode == 0, done.stderr
    return folder / "main", folder / "net.so"


def gdb(*args, commands, timeout=30, **more):
    """gdb's output; -nx: without the user's settings. Descriptors of its own stay open, as in a terminal or under an editor."""
    pairs = [word for command in commands for word in ("-ex", command)]
    done = subprocess.run(["gdb", "-batch", "-nx", "-ex", "set confirm off", "-ex", "set debuginfod enabled off", *pairs, *map(str, args)],
                          capture_output=True, text=True, timeout=timeout, **more)
    return done.stdout + done.stderr


@gdb_only
def test_start(program, tmp_path):
    """gdb opens the library by the name that the loader gave to dlopen, in its own process."""
    main, net = program
    lines = tmp_path / "lines"
    lines.write_text("\n")
    said = gdb(main, commands=["break getchar", f"run {net} 1 <{lines}", "info sharedlibrary", "delete", "continue"], stdin=subprocess.PIPE)
    assert "exited normally" in said, said
    assert any(line.rstrip().endswith("/net.so") and str(net.parent) in line for line in said.splitlines()), said


@gdb_only
def test_attach(program):
    main, net = program
    host = subprocess.Popen([main, net, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout.readline() == "loaded\n"
        host.stdin.write("\n")
        host.stdin.flush()
        said = gdb("-p", host.pid, commands=["info sharedlibrary", "detach"], stdin=subprocess.PIPE)
        if "ptrace: Operation not permitted" in said:
            pytest.skip("attaching is forbidden here")
        assert "/net.so" in said, said
    finally:
        host.stdin.close()
        assert host.wait(20) == 0
        host.stdout.close()
