"""Networks compiled with --strict on every CPU that this machine has or emulates: all give the same bits.

usage: strict.py [N] [SEED] [--every N] [--cpus TEXT,...] [--threads N,...] [--rows N,...] [--only TEXT] [--hashes FILE] [GROUP or FILE.onnx ...]

make strict [N=200] [SEED=1] [NETS="..."] [EVERY=20] [ROWS=1,2,5,16] [CPUS=v3,dotprod] [HASHES=FILE]

N random ONNX networks from number SEED on (fuzz/ort); or those of NETS: files and the groups of make prove. Of suite, the cases of the ONNX suite
that pass and have tensors as inputs, these are every EVERY-th from number SEED on. Of f32 and int8 each row of ROWS rows, in artifacts of any number
of rows and of a fixed one, is what it is alone; emulated CPUs have at most two rows. llm: 64 tokens, of which the first eight come at once and
others one by one, give the logits that they give all at once, alone and among three texts. CPUS: those whose names contain one of these texts.
Networks that end with an error do so on every CPU, with the same number.

Each network has one hash of its results. HASHES=FILE: they are those that another run, on any machine, has appended there.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
import onnx

from conformance import suite
from fuzz.ort.network import draw_network
from prove import lists
from support.decoder import cache_of, feed, is_cache
from support.strict import EVERY_FOREIGN, EVERY_NATIVE, Machines, differs, digest, result
from support.tool import mcc

TOKENS, AT_ONCE, FEW = 64, 8, 2


def ports_of(path):
    graph = onnx.load(path, load_external_data=False).graph
    weights = {t.name for t in graph.initializer}
    return [p for p in graph.input if p.name not in weights]


def feeds_of(path, rows=2):
    """Drawn inputs of a file; rows: the first size, where that is open."""
    rng, feeds = np.random.default_rng(1), []
    for port in ports_of(path):
        kind = port.type.tensor_type
        shape, dtype = [d.dim_value or (2 if i else rows) for i, d in enumerate(kind.shape.dim)], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds.append(rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else rng.integers(0, 100, shape).astype(dtype))
    return feeds


# ---- one network: what differs, and the results --------------------------------------------------------------------------------------------

def of_rows(path, folder):
    """The network with any number of rows, or None: its rows have not one size, or operators combine them."""
    model = onnx.load(path, load_external_data=False)
    ports = {p.name: p for p in ports_of(path)}
    first = [p.type.tensor_type.shape.dim[:1] for p in ports.values()]
    if not all(first) or any(n.op_type == "DynamicQuantizeLinear" for n in model.graph.node):
        return None
    if all(d[0].dim_param for d in first):
        return path if len({d[0].dim_param for d in first}) == 1 else None
    if any(d[0].dim_value != 1 for d in first):
        return None
    model = onnx.load(path)
    for port in model.graph.input:
        if port.name in ports:
            port.type.tensor_type.shape.dim[0].dim_param = "rows"
    del model.graph.value_info[:]
    for port in model.graph.output:
        port.type.tensor_type.ClearField("shape")
    onnx.save(model, folder / "rows.onnx")
    forms = [], fixed(folder / "rows.onnx", FEW)    # a reshape to one row takes any number of rows, but not this one
    return folder / "rows.onnx" if all(mcc("check", "-q", folder / "rows.onnx", *f).returncode == 0 for f in forms) else None


def fixed(path, rows):
    """Options that give the network so many rows."""
    names = {np.dtype(t): n for t, n in ((np.float32, "f32"), (np.int64, "i64"), (np.int32, "i32"), (np.uint8, "u8"), (np.int8, "i8"), (np.float16, "f16"))}
    return [f"--input={p.name}:{names[x.dtype]}[{','.join(map(str, x.shape))}]" for p, x in zip(ports_of(path), feeds_of(path, rows))]


def compare_rows(path, machines, rows):
    """Each row is what it is alone on the first CPU."""
    feeds, alone, found = feeds_of(path, max(rows)), None, []
    few = [n for n in rows if n <= FEW] or rows[:1]
    forms = [([], True, True, rows)] + [(fixed(path, n), not emulated, emulated, [n]) for n, emulated in ((few[-1], True), (rows[len(rows) // 2], False))]
    for flags, native, emulated, many in forms:
        for name, call, slow in machines.calls(path, flags, native, emulated):
            if alone is None:
                alone = [np.concatenate(y) for y in zip(*(result(call, [x[i:i + 1] for x in feeds]) for i in range(max(rows))))]
                if any(len(y) != max(rows) for y in alone):
                    return None, []
            for n in [n for n in many if n in few] if slow else many:
                if text := differs([y[:n] for y in alone], result(call, [x[:n] for x in feeds])):
                    found.append(f"{', '.join([name, f'{n} rows', *flags])}: {text}")
    return "; ".join(found), alone


class Text:
    """A language model step by step through `call`, all of whose inputs and outputs are given each time."""

    def __init__(self, path, call, texts):
        graph = onnx.load(path, load_external_data=False).graph
        self.call, self.seen, self.caches, self.names = call, 0, {}, [o.name for o in graph.output]
        self.ports = [p.name for p in graph.input if p.name not in {t.name for t in graph.initializer}]
        for port in ports_of(path):
            if is_cache(port.name):
                kind = port.type.tensor_type
                shape = [d.dim_value or (texts, 0, 0, 16)[i] for i, d in enumerate(kind.shape.dim)]
                self.caches[port.name] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))

    def step(self, ids):
        out = dict(zip(self.names, self.call(list(feed(self.ports, ids, self.seen, self.caches).values()))))
        self.caches |= {cache_of(n): x for n, x in out.items() if cache_of(n) in self.caches}
        self.seen += ids.shape[1]
        return out["logits"]


def compare_tokens(path, machines):
    """The logits of one text: some tokens at once and the rest one by one; all at once; and among other texts."""
    ids, first, found = np.random.default_rng(2).integers(3, 100, (3, TOKENS)), None, []

    def one_by_one(call):
        model = Text(path, call, 1)
        parts = [model.step(ids[:1, :AT_ONCE])]
        for i in range(AT_ONCE, TOKENS):
            if first is None:   # the network's own words
                ids[0, i] = parts[-1][0, -1].argmax()
            parts.append(model.step(ids[:1, i:i + 1]))
        return [np.concatenate(parts, axis=1)]

    for name, call, _ in machines.calls(path):
        outputs = one_by_one(call)
        first = first or outputs
        forms = {"one by one": outputs, "at once": [Text(path, call, 1).step(ids[:1])], "among texts": [Text(path, call, 3).step(ids)[:1]]}
        found += [f"{name}, {form}: {text}" for form, y in forms.items() if (text := differs(first, y))]
    return "; ".join(found), first


# ---- lists of networks ---------------------------------------------------------------------------------------------------------------------

def drawn(first, n, machines):
    """Those of n random networks that compile."""
    for seed in range(first, first + n):
        network = draw_network(seed)
        if not network:
            continue
        path = machines.folder / f"{seed}.onnx"
        onnx.save(network.model, path)
        flags = [f for f in network.flags if "march" not in f]
        if mcc("check", "-q", path, *flags).returncode == 0:
            yield f"{seed} {' '.join(flags)}", *machines.compare(path, [network.feeds[p.name] for p in ports_of(path)], flags)


def sampled(every, first, machines):
    """Cases of the suite that have tensors alone as inputs."""
    known = suite.cases()
    for name, path in lists.group("suite", every, first):
        feeds, _ = suite.inputs_and_outputs(known[name])
        if all(isinstance(x, np.ndarray) and x.dtype.kind in "fiub" for x in feeds):
            yield name, *machines.compare(path, feeds)


def named(files, machines, rows):
    for name, path in files:
        many = of_rows(path, machines.folder)
        text, outputs = compare_rows(many, machines, rows) if many else (None, None)
        yield name, *((text, outputs) if outputs else machines.compare(path, feeds_of(path)))


def cases(args, machines):
    """(name, what differs, the results) of each network."""
    if not args.nets:
        yield from drawn(args.numbers[1], args.numbers[0], machines)
    for word in args.nets:
        if word == "suite":
            yield from sampled(args.every, args.numbers[1] % args.every, machines)
            continue
        files = [(n, p) for n, p in lists.group(word) if args.only in n] if word in lists.GROUPS else [(pathlib.Path(word).stem, word)]
        if word == "llm" or any(is_cache(p.name) for _, path in files for p in ports_of(path)):
            yield from ((name, *compare_tokens(path, machines)) for name, path in files)
        else:
            yield from named(files, machines, args.rows)


def kept(file):
    return dict(map(json.loads, file.read_text().splitlines())) if file and file.exists() else {}


def main():
    numbers = lambda text: sorted(map(int, text.split(",")))
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--cpus", type=lambda text: text.split(","), default=[""])
    parser.add_argument("--threads", type=numbers, default=[1, 2, 3, 8])
    parser.add_argument("--rows", type=numbers, default=[1, 2, 5, 16])
    parser.add_argument("--only", default="")
    parser.add_argument("--hashes", type=pathlib.Path)
    parser.add_argument("words", nargs="*")
    args = parser.parse_intermixed_args()
    args.numbers = ([int(w) for w in args.words if w.isdigit()] + [None] * 2)[:2]
    args.numbers = [n if n is not None else d for n, d in zip(args.numbers, (200, 1))]
    args.nets = [w for w in args.words if not w.isdigit()]
    chosen = lambda cpu: any(text in cpu for text in args.cpus)
    before, bad, hashes = kept(args.hashes), 0, {}
    with Machines([f for f in EVERY_FOREIGN if chosen(f[1])], list(filter(chosen, EVERY_NATIVE)), args.threads) as machines:
        for name, text, outputs in cases(args, machines):
            hashes[name] = digest(outputs)
            if before.get(name, hashes[name]) != hashes[name]:
                text = "; ".join(filter(None, (text, f"its hash was {before[name][:16]}")))
            elif args.hashes and name not in before:
                with args.hashes.open("a") as file:
                    file.write(json.dumps([name, hashes[name]]) + "\n")
            bad += bool(text)
            if text or args.nets != ["suite"]:
                print(f"{hashes[name][:16]} {name}{': ' if text else ''}{text}", flush=True)
    for text in machines.lost:
        print(f"no result of {text}")
    if missing := {*machines.native, *(cpu for _, cpu in machines.foreign)} - machines.ran:
        print(f"compiled, but not run here: {', '.join(sorted(missing))}")
    print(f"{len(hashes) - bad} of {len(hashes)} networks have the same bits on {len(machines.ran)} CPUs: "
          f"{digest([np.array(sorted(hashes.values()), dtype=object)])[:16]}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
