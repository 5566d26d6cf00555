"""What docs/abi.md promises of number 1: layouts stay, members are only appended, and a host of the oldest header runs what mcc writes today."""
import re
import subprocess

import numpy as np
import pytest
from onnx import helper

from support.tool import ROOT, mcc, save, value

OLD = ROOT / "tests/runtime/abi_1.h"
NOW = ROOT / "runtime/mcc.h"
GROWS = {"mcc_api", "mcc_host"}        # the rest keeps its size, so that arrays of it can be indexed
SIZES = {"mcc_error": 256, "mcc_symbol": 48, "mcc_dim": 24, "mcc_port": 48, "mcc_node": 56, "mcc_value": 32, "mcc_host": 80, "mcc_api": 184,
         "DLTensor": 48, "DLManagedTensorVersioned": 80}        # of the oldest header, on every 64-bit target that mcc has

HOST = r"""
#define _GNU_SOURCE
#include HEADER
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int events;
static void event(void *user, uint32_t node, int end, uint64_t ns)
{
    (void)node, (void)ns;
    events += end && *(int *)user == 7;
}

#define ASK(what) do { if (!(what)) { fprintf(stderr, "%s\n", #what); return 1; } } while (0)
int main(int argc, char **argv)
{
    /* The struct ends where no memory is: an artifact that reads more than `size` dies here. */
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mcc_host *host = (mcc_host *)(page + 4096 - sizeof *host);
    int seven = 7;
    ASK(page != MAP_FAILED && !mprotect(page + 4096, 4096, PROT_NONE) && argc == 2);
    *host = (mcc_host){.size = sizeof *host, .user = &seven, .threads = 1, .event = event};
    union {
        void *p;
        const mcc_api *(*f)(uint32_t);
    } query = {dlsym(dlopen(argv[1], RTLD_NOW), "mcc_query")};
    ASK(query.p && !query.f(0) && !query.f(2) && query.f(MCC_ABI));
    const mcc_api *api = query.f(MCC_ABI);
    mcc_model *model;
    mcc_ctx *ctx;
    mcc_error error = {0};
    ASK(api->abi == 1 && api->size >= sizeof *api && api->n_in == 1 && api->n_out == 1 && api->n_sym == 1);
    ASK(!strcmp(api->in[0].name, "x") && api->in[0].ndim == 2 && api->in[0].dims[0].extent == -1 && api->in[0].dims[1].extent == 3);
    ASK(!strcmp(api->sym[0].name, "n") && !api->sym[0].reserved[0] && !api->sym[0].reserved[1] && !api->in[0].reserved[0]);
    ASK(api->open(host, &model, &error) == MCC_OK && api->ctx_new(model, NULL, 0, &ctx, &error) == MCC_OK);
    float x[6] = {1, -2, 3, -4, 5, -6}, y[6] = {0};
    int64_t shape[2] = {2, 3}, found[2], *shapes[1] = {found};
    DLTensor in = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, NULL, 0}, out = in;
    const DLTensor *const ins[1] = {&in};
    DLTensor *const outs[1] = {&out};
    DLManagedTensorVersioned *made[1];
    mcc_value given = {.kind = MCC_TENSOR, .present = 1, .tensor = &in}, got = {0};
    size_t bytes;
    out.data = y;
    ASK(api->plan(model, ins, shapes, &bytes, &error) == MCC_OK && found[0] == 2 && found[1] == 3);
    ASK(api->run(ctx, ins, outs, &error) == MCC_OK && events > 0);
    for (int i = 0; i < 6; i++)
        printf("%g ", (double)y[i]);
    ASK(api->run_dlpack(ctx, ins, made, &error) == MCC_OK && !memcmp(made[0]->dl_tensor.data, y, sizeof y));
    made[0]->deleter(made[0]);
    ASK(api->run_values(ctx, &given, &got, &error) == MCC_OK && !memcmp(got.tensor->data, y, sizeof y));
    api->value_release(ctx, &got);
    shape[1] = 4;
    ASK(api->run(ctx, ins, outs, &error) == MCC_E_SHAPE && error.code == MCC_E_SHAPE && error.text[0]);
    api->cancel(ctx);
    api->ctx_free(ctx);
    api->close(model);
    return 0;
}
"""


def members(text):
    """{struct: names of its members}."""
    found = {}
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for body, name in re.findall(r"typedef struct\s*\w*\s*\{(.*?)\}\s*(\w+);", text, re.S):
        found[name] = []
        for line in body.split(";"):
            function = re.findall(r"^\s*[^(]*\(\*(\w+)\)", line, re.S)
            found[name] += function or re.findall(r"\**(\w+)(?:\[\d+\])?\s*(?:,|$)", line.strip())
    return found


def layout(folder, header):
    """{struct: (size, {member: (offset, size)})} as the compiler has it, and the codes and flags."""
    text = header.read_text()
    structs = members(text)
    names = re.findall(r"\b(MCC_[A-Z_0-9]+|kDL\w+)\s*=", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    lines = [f'    printf("{s} - 0 %zu\\n", sizeof({s}));\n' + "".join(
        f'    printf("{s} {m} %zu %zu\\n", offsetof({s}, {m}), sizeof((({s} *)0)->{m}));\n' for m in ms) for s, ms in structs.items()]
    lines += [f'    printf("= {n} 0 %lld\\n", (long long)({n}));\n' for n in names]
    source = folder / "layout.c"
    source.write_text(f'#include "{header}"\n#include <stdio.h>\nint main(void)\n{{\n{"".join(lines)}    return 0;\n}}\n')
    subprocess.run(["gcc", "-std=c11", "-o", folder / "layout", source], check=True)
    out = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout
    return {(a, b): (int(c), int(d)) for a, b, c, d in (line.split() for line in out.splitlines())}


def test_layouts_stay(tmp_path):
    """Each member of the oldest header has its place and size in today's; structs that stand in arrays have their size, and codes their value."""
    old, now = layout(tmp_path, OLD), layout(tmp_path, NOW)
    assert {s for s, m in old if m == "-"} >= set(SIZES) and len(old) > 120
    for name, size in SIZES.items():
        assert old[name, "-"] == (0, size), name
    first, rest = now["mcc_port", "alias"], now.pop(("mcc_port", "reserved"))        # a word that was reserved has a meaning now
    assert first[0] + first[1] == rest[0]
    now["mcc_port", "reserved"] = (first[0], first[1] + rest[1])
    now["mcc_dim", "pad"] = now.pop(("mcc_dim", "room"))            # the same
    now["mcc_api", "pad"] = now.pop(("mcc_api", "state"))           # the same
    for (struct, member), place in old.items():
        if member == "-" and struct in GROWS:
            assert now[struct, "-"][1] >= place[1], struct
        else:
            assert now[struct, member] == place, (struct, member)
    for struct in {s for s, m in old if m == "-" and s in GROWS}:        # what came later lies behind
        assert all(now[s, m][0] >= old[struct, "-"][1] for s, m in now.keys() - old.keys() if s == struct)


@pytest.mark.parametrize("header", [OLD, NOW], ids=["oldest", "today"])
def test_a_host_of_that_header_runs_it(tmp_path, header):
    model = save(tmp_path / "net.onnx", [helper.make_node("Relu", ["x"], ["r"], "act"), helper.make_node("Mul", ["r", "two"], ["y"], "twice")],
                 [value("x", ["n", 3])], [value("y", ["n", 3])], {"two": np.float32(2)})
    assert mcc(model, "-o", tmp_path / "net.so").returncode == 0
    (tmp_path / "host.c").write_text(HOST)
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f'-DHEADER="{header}"', "-o", tmp_path / "host", tmp_path / "host.c", "-ldl"], check=True)
    done = subprocess.run([tmp_path / "host", tmp_path / "net.so"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "0", "6", "0", "10", "0"]
