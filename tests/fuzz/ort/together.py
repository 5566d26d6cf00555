"""Several networks side by side in one file, so that a process, a program and a load serve them all.

ONNX Runtime runs each by itself. What is not found to agree beside others is judged alone afterwards; where that then agrees, the
file of both is what disagrees.
"""
import dataclasses

import onnx

from fuzz.ort.judge import beside, drawn_run, execute, made_of, ports_of, resized_run
from fuzz.ort.network import Network

MOST = 16                                   # networks in a file


def renamed(graph, prefix):
    """Every name in the graph gets a prefix, symbols of dims too."""
    for node in graph.node:
        node.name = prefix + node.name
        for names in (node.input, node.output):
            names[:] = [prefix + n if n else n for n in names]
        for a in node.attribute:
            for inner in [a.g, *a.graphs] if a.HasField("g") else a.graphs:
                renamed(inner, prefix)
    for t in graph.initializer:
        t.name = prefix + t.name
    for port in [*graph.input, *graph.output, *graph.value_info]:
        port.name = prefix + port.name
        for dim in port.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.dim_param = prefix + dim.dim_param


def prefix_of(i):
    return f"n{i}_"


def prefixed(i, names):
    return {prefix_of(i) + n: v for n, v in names.items()}


def merged(dicts):
    return {n: v for i, d in enumerate(dicts) for n, v in prefixed(i, d).items()}


def joined(networks):
    """One Network of several, of one opset and one set of flags; its feeds are those that were drawn."""
    whole, domains = onnx.ModelProto(), {}
    whole.CopyFrom(networks[0].model)
    for field in ("node", "input", "output", "initializer", "value_info"):
        del getattr(whole.graph, field)[:]
    for i, network in enumerate(networks):
        part = onnx.ModelProto()
        part.CopyFrom(network.model)
        renamed(part.graph, prefix_of(i))
        for field in ("node", "input", "output", "initializer", "value_info"):
            getattr(whole.graph, field).extend(getattr(part.graph, field))
        domains |= {o.domain: o for o in part.opset_import}
    del whole.opset_import[:]
    whole.opset_import.extend(domains.values())
    return Network(networks[0].seed, networks[0].opset, whole, merged(n.feeds for n in networks), merged(n.values for n in networks), [],
                   networks[0].flags, [])


@dataclasses.dataclass
class Candidate:
    """A network and what ONNX Runtime makes of it."""
    network: Network
    runs: list


def runs_of(network):
    """ONNX Runtime's runs on what was drawn and on other sizes; none where it has none on what was drawn."""
    first, _ = drawn_run(network.model, network.feeds, network.values)
    others = [resized_run(network.model, feeds, network.values) for feeds in network.more] if first else []
    return [first, *filter(None, others)] if first else []


def agreeing(candidates, folder, phase):
    """(those that agree beside each other, the verdict on the file or None): each run of each is one run of the whole."""
    networks = [c.network for c in candidates]
    seeds = " ".join(str(n.seed) for n in networks)
    whole = joined(networks)
    phase(f"mcc, together: {seeds}")
    made, verdict = made_of(whole.model, folder, (*whole.flags, "-j1"))
    if verdict:
        return [], verdict
    agree, verdict = list(candidates), None
    try:
        for at in range(max(len(c.runs) for c in candidates)):
            phase(f"run, together: {seeds}")
            runs = [c.runs[at] if at < len(c.runs) else c.runs[0] for c in candidates]
            got, why = execute(made, merged(r.feeds for r in runs), ports_of(whole.model))
            for i, (c, run) in enumerate(zip(candidates, runs)):
                said = beside(run, got and {n.removeprefix(prefix_of(i)): v for n, v in got.items() if n.startswith(prefix_of(i))}, why)
                if said.kind != "agree" and c in agree:
                    agree, verdict = [a for a in agree if a is not c], verdict or said
        return agree, verdict
    finally:
        made.unlink()


def sift(candidates, folder, phase, agrees, alone, whole):
    """Judges networks together and calls agrees(network) of each that agrees so; alone(network), which says whether it does, of each
    that is suspected; whole(network, verdict) of a file that does not agree although each network in it does. Do all agree?"""
    if len(candidates) == 1:
        return alone(candidates[0].network)
    agree, verdict = agreeing(candidates, folder, phase)
    for c in agree:
        agrees(c.network)
    if not verdict:
        return True
    if agree:
        fine = [alone(c.network) for c in candidates if not any(c is a for a in agree)]
    else:                                                     # it does not compile or run: because of which half?
        half = len(candidates) // 2
        fine = [sift(part, folder, phase, agrees, alone, whole) for part in (candidates[:half], candidates[half:])]
    if all(fine):
        whole(joined([c.network for c in candidates]), verdict)
    return False


def groups(networks):
    """Those that can be in one file, MOST at most. An option that names a port is about one network alone."""
    found = {}
    for network in networks:
        alone = network.seed if any(f.startswith("--input") for f in network.flags) else None
        found.setdefault((network.opset, network.flags, alone), []).append(network)
    return [g[i:i + MOST] for g in found.values() for i in range(0, len(g), MOST)]


def judge_many(networks, folder, phase, agrees, alone, whole):
    """sift() of all."""
    for group in groups(networks):
        candidates = []
        for network in group:
            phase(f"ONNX Runtime: {network.seed}")
            runs = runs_of(network)
            if runs:
                candidates.append(Candidate(network, runs))
            else:
                alone(network)
        if candidates:
            sift(candidates, folder, phase, agrees, alone, whole)
