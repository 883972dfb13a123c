"""Compares vector environments, side by side in one run, and prints what they reach and how that meets what is asked.

    python benchmarks/bench_vector_env.py [--quick] [--rows PATTERN] [--no-peers] [--json [FILE]] [--readme]

``plot.py`` draws the file that ``--json`` writes.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import machine
from asks import Ask, judge
from environments import WORKLOADS
from figures import spread, table
from outputs import PROJECT_README, README, parse, write_json, write_readme
from peers import LINEUP, PEERS
from runner import METRICS, Failed, Spec, measure
from vector_env_rows import BEST_PEER, Row, rows

#: Rounds, and seconds that a sample takes. A start takes as long as it takes.
DURATIONS = {"rate": (7, 0.25), "start": (3, 0.0), "memory": (3, 0.0), "idle": (3, 1.0)}
QUICK_ROUNDS, QUICK_SECONDS, QUICK_N = 2, 0.05, 4

Results = Mapping[str, "list[float] | Failed"]


def main() -> int:
    """Measures the rows and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-peers", action="store_true", help="leave out other projects' vector environments")
    options = parse(parser)
    chosen = [row for row in rows() if row.quick] if options.quick else rows()
    if options.quick:
        chosen = [dataclasses.replace(row, n=min(row.n, QUICK_N)) for row in chosen]
    chosen = [row for row in chosen if options.rows in title(row)]
    if not chosen:
        parser.error(f"no row has {options.rows!r} in its title")
    described = machine.describe("stable-baselines3", "tianshou", "pufferlib", "pufferlib-core", "torchrl")
    neighbours = machine.Neighbours()
    lines: list[dict[str, Any]] = [{"machine": described}]
    judged: list[tuple[Ask, list[str]]] = []
    seen: set[str] = set()  # a quick run has each peer once: they are slow to import
    for row in chosen:
        if options.no_peers or options.quick:
            row = _without(row, set(PEERS) if options.no_peers else seen & set(PEERS))
            seen |= set(row.contenders)
        print(f"  {title(row)} ...", file=sys.stderr, flush=True)
        results = _measure(row, options.quick)
        lines += _json_lines(row, results)
        judged += _judged(row, results, not options.quick)
        if options.json != "-":
            print(f"**{title(row)}**\n\n{_rates(row, results)}\n", flush=True)
    described["others"] = neighbours.share()
    if options.json:
        write_json(options.json, lines)
    columns = ["workload", "yardstick", "gymshm", "ratio", "asked for", "met"]
    where = machine.sentence(described)
    text = f"{where}\n\n{table(columns, [line for _, line in judged])}"
    headlines = f"{where}\n\n{table(columns[:4], [line[:4] for ask, line in judged if ask.headline])}"
    if options.json != "-":
        print(f"{text}\n\n{headlines}")
    if not options.readme:
        return 0
    return max(
        write_readme(README, "bench_vector_env", text, described["others"]),
        write_readme(PROJECT_README, "bench_vector_env", headlines, described["others"]),
    )


def title(row: Row) -> str:
    """What a row is called."""
    what = {"rate": "", "start": "start to first reset, ", "memory": "memory of the processes, ", "idle": "idle, "}
    context = f", {row.context}" if row.context else ""
    return f"{what[row.metric]}{WORKLOADS[row.workload].text}, n = {row.n}{context}"


def _without(row: Row, names: set[str]) -> Row:
    return dataclasses.replace(row, contenders=tuple(name for name in row.contenders if name not in names))


def _measure(row: Row, quick: bool) -> Results:
    """Samples by contender, or why there are none."""
    results: dict[str, list[float] | Failed] = {}
    specs = []
    for name in row.contenders:
        absence = LINEUP[name].absence()
        if absence:
            results[name] = Failed(absence)
        else:
            specs.append(Spec(name, row.workload, row.n, row.context))
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else DURATIONS[row.metric]
    measured = measure(specs, row.metric, rounds, seconds)
    results.update({spec.contender: result for spec, result in measured.items()})
    return results


def _rates(row: Row, results: Results) -> str:
    """The table of one row: what every contender reached."""
    unit, higher_is_better = METRICS[row.metric]
    present = {name: spread(samples) for name, samples in results.items() if not isinstance(samples, Failed)}
    ranked = sorted(present, key=lambda name: present[name].median, reverse=higher_is_better)
    lines = [[name, present[name].text(unit)] for name in ranked]
    lines += [[name, f"absent: {result}"] for name, result in results.items() if isinstance(result, Failed)]
    return table(["contender", "median [quartiles]"], lines)


def _judged(row: Row, results: Results, judges: bool) -> list[tuple[Ask, list[str]]]:
    """The row's lines in the table of what is asked, each with what it answers."""
    unit, higher_is_better = METRICS[row.metric]
    samples = {name: result for name, result in results.items() if not isinstance(result, Failed)}
    peers = [name for name in samples if name in PEERS]
    best = (max if higher_is_better else min)(peers, key=lambda name: spread(samples[name]).median, default=None)
    lines = []
    for asked in row.asks:
        ask = asked
        if ask.yardstick == BEST_PEER:
            if best is None:
                continue
            ask = dataclasses.replace(ask, yardstick=best)
        missing = [name for name in (ask.ours, ask.yardstick) if name and name not in samples]
        if missing:
            if not (set(missing) & set(PEERS)):
                lines.append((ask, [title(row), ask.yardstick, ask.ours, f"absent: {', '.join(missing)}", "", "-"]))
            continue
        names = [f"{name}: {spread(samples[name]).text(unit)}" if name else "" for name in (ask.yardstick, ask.ours)]
        judgement = judge(ask, samples, unit, higher_is_better=higher_is_better, judges=judges)
        lines.append((ask, [title(row), *names, *judgement]))
    return lines


def _json_lines(row: Row, results: Results) -> list[dict[str, Any]]:
    common = {"workload": row.workload, "n": row.n, "metric": row.metric, "context": row.context}
    return [
        {**common, "contender": name, **({"absent": str(it)} if isinstance(it, Failed) else {"samples": it})}
        for name, it in results.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
