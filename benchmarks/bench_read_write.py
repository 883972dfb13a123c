"""Times gymshm's functions against gymnasium's, side by side in one run, and prints a table.

python benchmarks/bench_read_write.py [--quick] [--rows PATTERN] [--json [FILE]]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import machine
from asks import Ask, judge
from figures import add_json_option, spread, table, write_json
from read_write_rows import Row, rows

ROUNDS, QUICK_ROUNDS = 201, 3


def main() -> int:
    """Measures the rows and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs; gives no verdicts")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="only rows whose name contains PATTERN")
    add_json_option(parser)
    options = parser.parse_args()
    described = machine.describe()
    measured = []
    for row in rows():
        if options.rows in row.name:
            print(f"  {row.name} ...", file=sys.stderr, flush=True)
            rounds = row.rounds or ROUNDS
            measured.append((row, _measure(row, min(rounds, QUICK_ROUNDS) if options.quick else rounds)))
    if not measured:
        parser.error(f"no row has {options.rows!r} in its name")
    if options.json:
        lines: list[dict[str, Any]] = [{"machine": described}]
        for row, samples in measured:
            lines += [
                {"row": row.name, "contender": name, "unit": row.unit, "samples": values}
                for name, values in samples.items()
            ]
        write_json(options.json, lines)
    if options.json != "-":
        print(machine.sentence(described), end="\n\n")
        cells = [_line(row, ask, samples, not options.quick) for row, samples in measured for ask in row.asks]
        print(table(["work", "yardstick", "gymshm", "ratio", "asked for", "met"], cells))
        print("\nMedians [quartiles]; a ratio is the median of the ratios of samples taken one after the other.")
    return 0


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
