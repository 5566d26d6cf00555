"""passing.txt: the ONNX suite's cases that pass, a line each. Behind a case stand the ways in which it does not pass ("not W, W").

Ways: compiled code (run.py) and the reference interpreter (tests/legalize/suite.py), each for the models as they are and with the
shapes of their inputs and outputs erased.
"""
import pathlib

WAYS = ("compiled", "compiled-erased", "interpreted", "interpreted-erased")
LIST = pathlib.Path(__file__).resolve().parent / "passing.txt"
HEAD = """# Cases of the ONNX 1.22.0 suite that pass, and the ways in which one does not. Written by tests/conformance/run.py --update,
# with --erased too, and by tests/legalize/suite.py --update, with --erase too.
"""


def read():
    """{case: the set of ways in which it passes}"""
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            case, _, without = line.partition(" not ")
            left_out = set(without.split(", ")) if without else set()
            assert left_out < set(WAYS), line
            found[case] = set(WAYS) - left_out
    return found


def passing(way="compiled"):
    assert way in WAYS
    return sorted(case for case, ways in read().items() if way in ways)


def write(table):
    lines = []
    for case in sorted(case for case, ways in table.items() if ways):
        without = [way for way in WAYS if way not in table[case]]
        lines.append(case + (" not " + ", ".join(without) if without else "") + "\n")
    LIST.write_text(HEAD + "".join(lines))


def update(way, cases):
    """The cases that pass in this way, from now on."""
    table = read()
    for case in {*table, *cases}:
        ways = table.setdefault(case, set())
        (ways.add if case in cases else ways.discard)(way)
    write(table)
