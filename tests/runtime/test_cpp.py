"""runtime/mcc.hpp: C++17 and C++20 without a warning, and what a program does with it."""
import subprocess

import pytest

from support.compare import Model, node
from support.tool import DIGITS, ROOT, mcc, value

PROGRAM = r"""
#include "mcc.hpp"
#include <array>
#include <cstdio>
#include <thread>

static int code_of(const std::string &path)
{
    try {
        mcc::model m(path);
    } catch (const mcc::error &e) {
        std::printf("refused: %s\n", e.what());
        return e.code;
    }
    return 0;
}

template <typename F> static int fails(F f)
{
    try {
        f();
    } catch (const mcc::error &e) {
        return e.code;
    }
    return 0;
}

int main(int, char **argv)
{
    mcc::model net(std::string{argv[1]});
    mcc::model moved(std::move(net));
    mcc::port in = moved.input(0), out = moved.output(0);
    if (moved.inputs() != 1 || in.name() != "picture" || in.rank() != 4 || in.extent(0) != -1 || in.extent(3) != 8)
        return 1;
    if (!mcc::same_type(in.type(), mcc::type_of<const float>()) || mcc::same_type(mcc::type_of<bool>(), mcc::type_of<unsigned char>()))
        return 2;
    if (fails([&] { (void)in.elements(); }) != MCC_E_SHAPE || fails([&] { (void)moved.input(1); }) != MCC_E_ARG ||
        fails([&] { (void)out.extent(2); }) != MCC_E_ARG)
        return 3;
    const std::vector<float> x(2 * 64, 0.5f);
    std::array<float, 20> y = {};
    mcc::context run(moved);
    run({mcc::tensor(x, {2, 1, 8, 8})}, {mcc::tensor(y, {2, 10})});
    std::vector<mcc::owned> same = run({mcc::tensor(x, {2, 1, 8, 8})});
    mcc::span<float> values = same.at(0).values<float>();
    float sum = 0;
    for (std::size_t i = 0; i < values.size(); i++) {
        if (values[i] != y[i])
            return 4;
        sum += values[i];
    }
    if (values.size() != 20 || same[0].shape()[1] != 10 || sum < 1.99f || sum > 2.01f)
        return 5;
    if (fails([&] { (void)same[0].values<double>(); }) != MCC_E_DTYPE || fails([&] { mcc::tensor t(x, {3, 3}); }) != MCC_E_SHAPE ||
        fails([&] { mcc::tensor t(x, {-1, -128}); }) != MCC_E_SHAPE || fails([&] { run({}); }) != MCC_E_ARG)
        return 6;
    const std::vector<double> wrong(64);
    if (fails([&] { run({mcc::tensor(wrong, {1, 1, 8, 8})}); }) != MCC_E_DTYPE)
        return 7;
    if (fails([&] { run({mcc::tensor(x, {2, 64})}); }) != MCC_E_SHAPE)
        return 8;
    std::vector<std::thread> threads;
    std::array<int, 4> bad = {};
    for (int &b : bad)
        threads.emplace_back([&] {
            mcc::context own(moved);
            for (int i = 0; i < 50; i++)
                b += own({mcc::tensor(x, {2, 1, 8, 8})})[0].values<float>()[3] != y[3];
        });
    for (std::thread &t : threads)
        t.join();
    for (int b : bad)
        if (b)
            return 9;
    DLManagedTensorVersioned *given = same[0].release();
    given->deleter(given);
    return code_of("/nowhere.so") == MCC_E_IO ? 0 : 10;
}
"""


GROWING = r"""
#include "mcc.hpp"

static int code_of(std::vector<float> &cache, std::int64_t rows, const mcc::port &p)
{
    try {
        mcc::tensor t(cache, {2, rows, 4}, p);
    } catch (const mcc::error &e) {
        return e.code;
    }
    return 0;
}

int main(int, char **argv)
{
    mcc::model net(argv[1]);
    mcc::port past = net.input(0), present = net.output(0);
    if (past.room(1) != 8 || past.room(0) || present.room(1) != 8 || present.alias() != 0 || past.alias() != -1)
        return 1;
    std::vector<float> cache(2 * 8 * 4, -1.0f), fresh(2 * 4), small(2 * 8 * 4 - 1);
    if (code_of(small, 1, past) != MCC_E_SHAPE || code_of(cache, 9, past) != MCC_E_SHAPE || code_of(cache, 8, past))
        return 2;
    mcc::context run(net);
    for (std::int64_t n = 0; n < 8; n++) {
        for (float &f : fresh)
            f = static_cast<float>(n);
        run({mcc::tensor(cache, {2, n, 4}, past), mcc::tensor(fresh, {2, 1, 4})}, {mcc::tensor(cache, {2, n + 1, 4}, present)});
        for (std::size_t i = 0; i < cache.size(); i++)
            if (std::int64_t row = static_cast<std::int64_t>(i / 4 % 8); cache[i] != (row <= n ? static_cast<float>(row) : -1.0f))
                return 3;
    }
    return 0;
}
"""


def build(tmp_path, text, compiler, standard):
    (tmp_path / "main.cpp").write_text(text)
    checked = ["-fsanitize=address,undefined"] if compiler == "g++" else []   # clang's need a package of their own
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wold-style-cast", "-Werror"]
    done = subprocess.run([compiler, f"-std={standard}", *warnings, *checked, "-I", ROOT / "runtime", "-c", tmp_path / "main.cpp",
                           "-o", tmp_path / "main.o"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    subprocess.run(["gcc", "-std=c11", "-I", ROOT / "runtime", "-c", ROOT / "runtime/mcc_load.c", "-o", tmp_path / "load.o"], check=True)
    subprocess.run([compiler, *checked, tmp_path / "main.o", tmp_path / "load.o", "-o", tmp_path / "main", "-ldl", "-lpthread"],
                   check=True)
    return tmp_path / "main"


@pytest.mark.parametrize("compiler,standard", [("g++", "c++17"), ("g++", "c++20"), ("clang++-19", "c++17"), ("clang++-19", "c++20")])
def test_header(tmp_path, compiler, standard):
    assert mcc(DIGITS, "-o", tmp_path / "d.so").returncode == 0
    ran = subprocess.run([build(tmp_path, PROGRAM, compiler, standard), tmp_path / "d.so"], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.startswith("refused: /nowhere.so: cannot be opened"), (ran.returncode, ran.stdout, ran.stderr)


def test_growing_cache(tmp_path):
    form = [value("past", [2, "n", 4]), value("new", [2, 1, 4])]
    model = Model(tmp_path, [node("Concat", "past new", "present", axis=1)], form, [value("present", None)])
    ran = subprocess.run([build(tmp_path, GROWING, "g++", "c++17"), model.compile("--input", "past[2,n<=8,4]")], capture_output=True, text=True)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
