"""Draws environment steps per second over the number of environments, from what ``bench_vector_env.py --json`` wrote.

    python benchmarks/plot.py RESULTS.jsonl PICTURE.svg [--workload vector]

A line per contender that was measured at more than one number of environments, its band from quartile to quartile; the
bound is dashed. Needs matplotlib, which the extra ``bench`` brings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")  # no window, wherever it runs
import matplotlib.pyplot as plt

import machine
from environments import WORKLOADS
from figures import Spread, spread

BOUND = "plain loops"


def main() -> int:
    """Reads, draws, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("picture")
    parser.add_argument("--workload", choices=WORKLOADS, default="vector")
    options = parser.parse_args()
    with open(options.results) as file:
        described, *lines = [json.loads(line) for line in file]
    rates: dict[str, dict[int, Spread]] = defaultdict(dict)
    for line in lines:
        if line["workload"] == options.workload and line["metric"] == "rate" and "samples" in line:
            rates[line["contender"]][line["n"]] = spread(line["samples"])
    curves = {name: dict(sorted(curve.items())) for name, curve in rates.items() if len(curve) > 1}
    if not curves:
        parser.error(f"{options.results} has no workload {options.workload!r} at several numbers of environments")
    _draw(curves, options.workload, machine.sentence(described["machine"])).savefig(options.picture, dpi=120)
    return 0


def _draw(curves: dict[str, dict[int, Spread]], workload: str, caption: str) -> plt.Figure:
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    ranked = sorted(curves, key=lambda name: max(it.median for it in curves[name].values()), reverse=True)
    colors = plt.get_cmap("tab10" if len(ranked) <= 10 else "tab20").colors
    for name, color in zip(ranked, colors, strict=False):
        numbers, spreads = list(curves[name]), list(curves[name].values())
        is_bound, is_ours = name == BOUND, name.startswith("gymshm")
        (drawn,) = axes.plot(
            numbers,
            [it.median for it in spreads],
            label=f"{name} (the bound)" if is_bound else name,
            color="black" if is_bound else color,
            linestyle="--" if is_bound else "-",
            linewidth=2.2 if is_ours else 1.4,
            marker=None if is_bound else "o" if is_ours else "s",
            markersize=4,
        )
        axes.fill_between(
            numbers, [it.low for it in spreads], [it.high for it in spreads], color=drawn.get_color(), alpha=0.15
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({n for curve in curves.values() for n in curve})
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.minorticks_off()
    axes.set_xlabel("number of environments")
    axes.set_ylabel("environment steps per second")
    axes.set_title(WORKLOADS[workload].text)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.supxlabel(caption, fontsize=6, color="gray", wrap=True)
    return figure


if __name__ == "__main__":
    sys.exit(main())
