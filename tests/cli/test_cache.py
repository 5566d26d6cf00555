"""The cache of compiled functions: the same bytes with and without, whatever lies in its folder, and no larger than it may be."""
import concurrent.futures
import fcntl
import os
import re
import shutil
import struct
import subprocess
import time

import numpy as np
import pytest
from onnx import helper

from support.tool import MCC, dense, mcc, save, value


def network(path, seed=0, names="abcd", channels=(16, 24, 40, 56)):
    """Five convolutions of different sizes: more than one job."""
    rng, names = np.random.default_rng(seed), ["x", *names, "y"]
    channels = [3, *channels, 8]
    weights = {f"w{i}": rng.standard_normal((channels[i + 1], channels[i], 3, 3)).astype(np.float32) for i in range(5)}
    nodes = [helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], f"conv_{names[i]}", strides=[1 + i % 2] * 2)
             for i in range(5)]
    return save(path, nodes, [value("x", [1, 3, 64, 64])], [value("y", [None] * 4)], weights)


@pytest.fixture
def model(tmp_path):
    return network(tmp_path / "net.onnx")


def compiled(model, out, *flags, env=None):
    """(the artifact's bytes, functions that were found, functions)"""
    done = subprocess.run([MCC, str(model), "-o", str(out), "--stats", *flags], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, **(env or {})))
    assert done.returncode == 0, done.stderr
    found = re.search(r"^cache: (\d+) of (\d+) functions$", done.stdout, re.M)
    return out.read_bytes(), int(found[1]), int(found[2])


def entries(folder):
    """Those of functions."""
    return sorted(p for p in folder.iterdir() if p.name not in ("total", "key") and p.suffix != ".net")


def records(folder):
    """Those of whole networks, and of links."""
    return sorted(folder.glob("*.net"))


def forget(folder):
    """Functions are looked for one by one again."""
    for path in records(folder):
        path.unlink()


def size_of(folder):
    return sum(p.stat().st_size for p in entries(folder) + records(folder))


def tally(folder):
    """(looks at all files, bytes that they have at most)"""
    magic, looks, size, _ = struct.unpack("<8sQqQ", (folder / "total").read_bytes())
    assert magic == b"mcc-sum1"
    return looks, size


def test_a_second_time(model, tmp_path):
    cold, found, asked = compiled(model, tmp_path / "a.so", f"--cache={tmp_path / 'cache'}")
    assert found == 0 and asked >= 3 and len(entries(tmp_path / "cache")) == asked
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    warm, found, again = compiled(model, tmp_path / "b.so", f"--cache={tmp_path / 'cache'}")
    assert found == again == asked and warm == cold
    none, found, asked = compiled(model, tmp_path / "c.so", f"--cache={tmp_path / 'cache'}", "--no-cache")
    assert (found, asked) == (0, 0) and none == cold
    assert compiled(model, tmp_path / "d.so", f"--cache={tmp_path / 'cache'}", "-O1")[1] == 0   # other code


def test_one_worker_does_all(model, tmp_path):
    """The worker that compiles also links: no other is started."""
    worker, log = tmp_path / "worker", tmp_path / "log"
    worker.write_text(f'#!/bin/sh\necho start >>"{log}"\nexec "{MCC}" "$@"\n')
    worker.chmod(0o700)
    done = mcc(model, "-o", tmp_path / "a.so", "-j1", "--no-cache", f"--worker={worker}")
    assert done.returncode == 0 and log.read_text() == "start\n", done.stderr


def test_a_similar_network(model, tmp_path):
    """Functions are found by what they do: other weights and names take all of them, another layer in the middle most."""
    cache = f"--cache={tmp_path / 'cache'}"
    _, _, asked = compiled(model, tmp_path / "a.so", cache)
    for name, other, least in [("named", network(tmp_path / "named.onnx", 1, "pqrs"), asked),
                               ("wider", network(tmp_path / "wider.onnx", 2, channels=(16, 24, 48, 56)), asked // 4)]:
        cold, found, _ = compiled(other, tmp_path / f"{name}.so", "--no-cache")
        warm, found, _ = compiled(other, tmp_path / f"{name}.so", cache)
        assert warm == cold and least <= found < asked + (name == "named"), name


def test_line_tables_are_not_shared(model, tmp_path):
    """With -g the objects speak of the place that they were made for."""
    cache = f"--cache={tmp_path / 'cache'}"
    for name in ("a", "b"):
        warm, found, _ = compiled(model, tmp_path / f"{name}.so", cache, "-g")
        assert found == 0 and warm == compiled(model, tmp_path / f"{name}.so", "--no-cache", "-g")[0]


def damage(path, how):
    data = path.read_bytes()
    if how == "short":
        path.write_bytes(data[:len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "result":
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif how == "lengths":
        path.write_bytes(data[:16] + b"\xff" * 8 + data[24:])
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "link":
        moved = path.with_suffix(".moved")
        path.rename(moved)
        path.symlink_to(moved)
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize("how", ["short", "empty", "result", "lengths", "folder", "link", "pipe"])
def test_what_is_damaged_is_compiled_again(model, tmp_path, how):
    cold, _, asked = compiled(model, tmp_path / "a.so", f"--cache={tmp_path / 'cache'}")
    damage(entries(tmp_path / "cache")[0], how)
    forget(tmp_path / "cache")
    warm, found, _ = compiled(model, tmp_path / "b.so", f"--cache={tmp_path / 'cache'}")
    assert warm == cold and found == asked - 1
    forget(tmp_path / "cache")
    again, found, _ = compiled(model, tmp_path / "c.so", f"--cache={tmp_path / 'cache'}")
    assert again == cold and found == (asked - 1 if how == "folder" else asked)   # a folder cannot be replaced


def test_a_name_that_collides_is_a_miss(model, tmp_path):
    cold, _, asked = compiled(model, tmp_path / "a.so", f"--cache={tmp_path / 'cache'}")
    one, two = entries(tmp_path / "cache")[:2]
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    forget(tmp_path / "cache")
    warm, found, _ = compiled(model, tmp_path / "b.so", f"--cache={tmp_path / 'cache'}")
    assert warm == cold and found == asked - 2


def test_it_stays_below_its_limit(model, tmp_path):
    cache = tmp_path / "cache"
    compiled(model, tmp_path / "a.so", f"--cache={cache}")
    for path in entries(cache):
        os.utime(path, (1, 1))
    (cache / "mine.txt").write_text("not the cache's")
    size = sum(p.stat().st_size for p in entries(cache))
    other = network(tmp_path / "other.onnx", seed=1)
    compiled(other, tmp_path / "b.so", f"--cache={cache}", f"--limit-cache={size}", "-march=x86-64-v2")
    assert sum(p.stat().st_size for p in entries(cache)) <= size and (cache / "mine.txt").exists()
    assert compiled(other, tmp_path / "c.so", f"--cache={cache}", "-march=x86-64-v2")[1] > 0   # the oldest went


def test_the_folder_is_listed_only_beyond_its_limit(model, tmp_path):
    cache = tmp_path / "cache"
    flag, stranger = f"--cache={cache}", cache / "0123456789abcdef"
    compiled(model, tmp_path / "a.so", flag)
    assert tally(cache) == (1, size_of(cache))      # nothing was known
    stranger.write_bytes(b"x" * 1_000_000)          # nobody counted it
    os.utime(stranger, (1, 1))
    size = size_of(cache)
    other = network(tmp_path / "other.onnx", 1, channels=(8, 12, 20, 28))
    compiled(other, tmp_path / "b.so", flag, f"--limit-cache={size}", "-march=x86-64-v2")
    assert stranger.exists() and tally(cache) == (1, size_of(cache) - 1_000_000) and size_of(cache) > size
    compiled(other, tmp_path / "c.so", flag, f"--limit-cache={size - 1_000_000}", "-march=x86-64-v3")
    assert not stranger.exists() and tally(cache) == (2, size_of(cache)) and size_of(cache) <= size - 1_000_000


@pytest.mark.parametrize("how", ["missing", "short", "empty", "bytes", "folder", "pipe", "link"])
def test_a_damaged_sum_is_made_anew(model, tmp_path, how):
    cache = tmp_path / "cache"
    cold, _, asked = compiled(model, tmp_path / "a.so", f"--cache={cache}")
    stranger, total = cache / "0123456789abcdef", cache / "total"
    stranger.write_bytes(b"x" * 1000)
    if how == "missing":
        total.unlink()
    elif how == "bytes":
        data = total.read_bytes()
        total.write_bytes(data[:16] + bytes([data[16] ^ 64]) + data[17:])
    else:
        damage(total, how)
    next(p for p in entries(cache) if p != stranger).unlink()    # names differ from build to build
    forget(cache)
    warm, found, _ = compiled(model, tmp_path / "b.so", f"--cache={cache}")
    assert warm == cold and found == asked - 1
    if how not in ("folder", "pipe", "link"):
        assert tally(cache) == (1, size_of(cache))
    limit = size_of(cache) - 1000
    compiled(model, tmp_path / "c.so", f"--cache={cache}", f"--limit-cache={limit}", "-O1")
    assert size_of(cache) <= limit                  # however that file is, the limit holds


def test_a_folder_that_is_none(model, tmp_path):
    (tmp_path / "file").write_text("")
    plain = compiled(model, tmp_path / "a.so", "--no-cache")[0]
    for folder in (tmp_path / "file", tmp_path / "missing/cache", "/proc/nothing"):
        assert compiled(model, tmp_path / "b.so", f"--cache={folder}") == (plain, 0, 0)


def warned(model, out, folder):
    """(the artifact's bytes, what was said): nothing else is said of a folder that is not used"""
    done = subprocess.run([MCC, str(model), "-o", str(out), f"--cache={folder}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr.count("\n") <= 1, done.stderr
    return out.read_bytes(), done.stderr


def test_a_folder_of_others(model, tmp_path):
    """Who may write to the folder could plant code: it is not used, and that is said."""
    plain = compiled(model, tmp_path / "a.so", "--no-cache")[0]
    cases = [(0o777, None, None, "others may write"), (0o1777, None, None, "others may write"), (0o702, None, None, "others may write")]
    if os.geteuid() == 0:       # others may not give folders away
        cases += [(0o700, 12345, 12345, "another user"), (0o770, 0, 12345, "others may write"), (0o770, 0, 0, ""), (0o755, 0, 12345, "")]
    for i, (mode, user, group, word) in enumerate(cases):
        folder = tmp_path / f"cache{i}"
        folder.mkdir()
        if user is not None:
            os.chown(folder, user, group)
        folder.chmod(mode)
        data, said = warned(model, tmp_path / "b.so", folder)
        assert data == plain and bool(list(folder.iterdir())) == (not word), (oct(mode), user, group)
        assert (word in said and "[-Wcache]" in said and str(folder) in said) if word else said == "", said


def test_a_lock_that_is_kept(model, tmp_path):
    """Nobody waits for it: the sum is forgotten and made anew."""
    cache = tmp_path / "cache"
    cold, _, asked = compiled(model, tmp_path / "a.so", f"--cache={cache}")
    assert all(p.stat().st_mode & 0o077 == 0 for p in cache.iterdir())
    with open(cache / "total") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        begin = time.monotonic()
        data, found, _ = compiled(model, tmp_path / "b.so", f"--cache={cache}", "-O1")
        assert found == 0 and time.monotonic() - begin < 10
        assert compiled(model, tmp_path / "c.so", f"--cache={cache}") == (cold, asked, asked)
    other = network(tmp_path / "other.onnx", 1, channels=(8, 12, 20, 28))
    compiled(other, tmp_path / "d.so", f"--cache={cache}")
    assert tally(cache)[1] == size_of(cache)


def test_entries_belong_to_a_folder(model, tmp_path):
    """What another folder's key has signed is not used; a folder that is copied whole is."""
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    cold, _, asked = compiled(model, tmp_path / "a.so", f"--cache={one}")
    two.mkdir(mode=0o700)
    for path in entries(one):
        shutil.copy(path, two)
    assert compiled(model, tmp_path / "b.so", f"--cache={two}") == (cold, 0, asked)
    assert compiled(model, tmp_path / "c.so", f"--cache={two}") == (cold, asked, asked)
    shutil.copytree(one, three)
    assert compiled(model, tmp_path / "d.so", f"--cache={three}") == (cold, asked, asked)


@pytest.mark.parametrize("how", ["missing", "short", "empty", "long", "folder", "link", "pipe", "open"])
def test_a_damaged_key_is_made_anew(model, tmp_path, how):
    cache = tmp_path / "cache"
    cold, _, asked = compiled(model, tmp_path / "a.so", f"--cache={cache}")
    key = cache / "key"
    if how == "missing":
        key.unlink()
    elif how == "long":
        key.write_bytes(key.read_bytes() + b"x")
    elif how == "open":
        key.chmod(0o666)
    else:
        damage(key, how)
    uses = how != "folder"
    assert compiled(model, tmp_path / "b.so", f"--cache={cache}") == (cold, 0, asked * uses)
    assert compiled(model, tmp_path / "c.so", f"--cache={cache}") == (cold, asked * uses, asked * uses)


def test_many_at_once(model, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(compiled, model, tmp_path / f"{i}.so", f"--cache={tmp_path / 'cache'}") for i in range(4)]
        results = [run.result() for run in runs]
    assert len({data for data, _, _ in results}) == 1
    assert not [p for p in entries(tmp_path / "cache") if p.suffix]   # no parts are left
    looks, size = tally(tmp_path / "cache")
    assert looks >= 1 and size >= size_of(tmp_path / "cache")         # what two of them made counts twice


def test_where_it_is(tmp_path):
    model = dense(tmp_path / "net.onnx")
    clean = {k: "" for k in ("MCC_CACHE", "XDG_CACHE_HOME", "HOME")}

    def count(folder, *flags, **env):
        compiled(model, tmp_path / "a.so", *flags, env=env)
        return len(entries(folder)) if folder.exists() else 0

    def environment(**env):
        given = {k: v for k, v in os.environ.items() if k not in clean}
        done = subprocess.run([MCC, str(model), "-o", str(tmp_path / "a.so")], env=dict(given, **env), capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr

    environment(HOME=str(tmp_path / "home"))                       # no such folder
    assert not (tmp_path / "home").exists()
    (tmp_path / "home").mkdir()
    environment(HOME=str(tmp_path / "home"))
    assert entries(tmp_path / "home/.cache/mcc")
    environment(HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert entries(tmp_path / "xdg/mcc")
    (tmp_path / "told").mkdir()
    environment(HOME=str(tmp_path / "home"), MCC_CACHE=str(tmp_path / "told"))
    assert entries(tmp_path / "told")
    assert count(tmp_path / "none", MCC_CACHE="off") == 0
    assert count(tmp_path / "flag", f"--cache={tmp_path / 'flag'}", MCC_CACHE="off") > 0
    assert mcc(model, "--print-config", "--no-cache").stdout.count("no-cache: true") == 1
