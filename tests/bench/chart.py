#!/usr/bin/env python3
"""The picture of docs/ratios.json: how many times as fast as ONNX Runtime mcc is, for each network, with one thread and with two.

usage: chart.py RESULTS.json OUT.svg     (make chart)
"""
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

COLORS = {"1": "#1f5fa8", "2": "#7fb2e5"}
WORDS = {"1": "one thread", "2": "two threads"}


def main():
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    ratios = {t: {n: ms["ort"] / ms["mcc"] for n, ms in r["ms"].items()} for t, r in results.items()}
    names = sorted(ratios["1"], key=lambda n: ratios["1"][n])
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mcc", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(7.6, 0.36 * len(names) + 1.2))
    high = 0.8 / len(ratios)
    for k, (threads, of) in enumerate(sorted(ratios.items())):
        at = [i + 0.4 - high * (k + 0.5) for i in range(len(names))]
        axes.barh(at, [of.get(n, math.nan) for n in names], high * 0.92, color=COLORS[threads], label=WORDS[threads])
        for y, n in zip(at, names):
            if n in of:
                axes.text(of[n] + 0.02, y, f"{of[n]:.2f}", va="center", fontsize=7)
    axes.axvline(1, color="#444444", linewidth=1)
    axes.set_yticks(range(len(names)), [n.replace("_x1_0", "") for n in names])
    axes.set_xlim(0, 1.08 * max(max(of.values()) for of in ratios.values()))
    axes.set_xlabel("times as fast as ONNX Runtime (1: equal), batch 1, f32")
    axes.set_title(f"{results['1']['cpu']}, {results['1']['date']}", fontsize=8, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
