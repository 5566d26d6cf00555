#!/usr/bin/env python3
"""mcc prove over lists of networks: what is proved, under which axioms, and what is not and why, counted.

usage: run.py [--every N [--first K]] [--only TEXT] [--march CPU] [--dim NAME=N ...] [--results FILE] [--update] [GROUP ...]

Groups: suite (the ONNX suite's passing cases), f32 (BUILD/nets, or $MCC_NETS), int8 (BUILD/int8, $MCC_INT8; make bench-int8 makes
them), real (what make check-real compiles beside f32's), llm (the ONNX files of ../shared/llm, $MCC_LLM); all of them by default.
--every: of the suite every so many cases. --march: one CPU variant; without it all that this machine runs. --results: appends a line
of JSON for each network, and leaves out what is there already. --update: writes proved.txt, of the whole suite. Ends with 1 where a
kernel's elements differ: wrong code, or a law that is not an axiom yet.
"""
import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from prove import lists  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--march")
    parser.add_argument("--update", action="store_true", help="write proved.txt")
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[[], *lists.GROUPS], default=[])
    args = parser.parse_args()
    options = [f"--march={args.march}"] * bool(args.march) + [f"--dim={d}" for d in args.dim]
    known = {}
    if args.results and args.results.exists():
        known = {(line["group"], line["name"]): line for line in map(json.loads, args.results.read_text().splitlines())}
    differ, proved = 0, []
    for group in args.groups or lists.GROUPS:
        counts = lists.Counts()
        for name, path in lists.group(group, args.every, args.first):
            if args.only not in name:
                continue
            row = known.get((group, name))
            if not row:
                found, error, seconds = lists.prove(path, *options, timeout=300 if group == "suite" else 3600)
                row = {"group": group, "name": name, "found": found, "error": error, "seconds": seconds}
                if args.results:
                    with args.results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            one = lists.Counts()
            one.add(name, row["found"], row["error"], row["seconds"])
            counts.add(name, row["found"], row["error"], row["seconds"])
            if group == "suite" and one.whole:
                proved.append(name)
            if group != "suite":
                print(next(one.lines(name)), flush=True)
        if counts.networks:
            print(*counts.lines(group), sep="\n", flush=True)
        differ += len(counts.differ)
    if args.update:
        lists.update(proved)
    return differ > 0


if __name__ == "__main__":
    sys.exit(main())
