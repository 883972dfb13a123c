"""Times gymshm's functions against gymnasium's, side by side in one run, and prints a table.

python benchmarks/bench_read_write.py [--quick] [--rows PATTERN] [--json [FILE]] [--readme]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import machine
from asks import Ask, judge
from figures import spread, table
from outputs import README, parse, write_json, write_readme
from read_write_rows import Row, rows

ROUNDS, QUICK_ROUNDS = 201, 3


def main() -> int:
    """Measures the rows and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = parse(parser)
    described, neighbours = machine.describe(), machine.Neighbours()
    measured = []
    for row in rows():
        if options.rows in row.name:
            print(f"  {row.name} ...", file=sys.stderr, flush=True)
            rounds = row.rounds or ROUNDS
            measured.append((row, _measure(row, min(rounds, QUICK_ROUNDS) if options.quick else rounds)))
    if not measured:
        parser.error(f"no row has {options.rows!r} in its name")
    described["others"] = neighbours.share()
    if options.json:
        lines: list[dict[str, Any]] = [{"machine": described}]
        for row, samples in measured:
            lines += [
                {"row": row.name, "contender": name, "unit": row.unit, "samples": values}
                for name, values in samples.items()
            ]
        write_json(options.json, lines)
    cells = [_line(row, ask, samples, not options.quick) for row, samples in measured for ask in row.asks]
    asked = table(["work", "yardstick", "gymshm", "ratio", "asked for", "met"], cells)
    text = f"{machine.sentence(described)}\n\n{asked}"
    if options.json != "-":
        print(text)
    return write_readme(README, "bench_read_write", text, described["others"]) if options.readme else 0


def _measure(row: Row, rounds: int) -> dict[str, list[float]]:
    """Samples by contender, taken in turn; every other round in reverse, so that none always follows the same one."""
    samples: dict[str, list[float]] = {work.name: [] for work in row.works}
    for i in range(rounds):
        for work in row.works if i % 2 == 0 else reversed(row.works):
            samples[work.name].append(work.sample())
    return samples


def _line(row: Row, ask: Ask, samples: dict[str, list[float]], judges: bool) -> list[str]:
    judgement = judge(ask, samples, row.unit, higher_is_better=False, judges=judges)
    yardstick = ask.yardstick or next((name for name in samples if name != ask.ours), "")
    return [
        row.name,
        *(f"{name}: {spread(samples[name]).text(row.unit)}" if name else "" for name in (yardstick, ask.ours)),
        *judgement,
    ]


if __name__ == "__main__":
    sys.exit(main())
