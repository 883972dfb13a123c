"""Times gymshm's functions against gymnasium's, side by side in one run, and prints a table.

python benchmarks/bench_read_write.py [--quick] [--rows PATTERN] [--json [FILE]]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import machine
from figures import Spread, add_json_option, number, ratios, spread, table, verdict, write_json
from read_write_rows import Ask, Row, rows

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
        cells = [line for row, samples in measured for line in _lines(row, samples, not options.quick)]
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


def _lines(row: Row, samples: dict[str, list[float]], judges: bool) -> list[list[str]]:
    """The row's lines in the table: one for each thing that is asked; then contenders of which nothing is asked."""
    asks = list(row.asks)
    named = {ask.ours for ask in asks} | {"gymnasium", "np.copyto"}
    asks += [Ask(work.name, "", 0, "gymnasium") for work in row.works if work.name not in named]
    if any(ask.kind == "within" for ask in asks):
        asks += [Ask("gymshm", "", 0, "gymnasium")]
    return [_line(row, ask, samples, judges) for ask in asks]


def _line(row: Row, ask: Ask, samples: dict[str, list[float]], judges: bool) -> list[str]:
    ours = samples[ask.ours]
    yardstick = samples.get(ask.yardstick) or samples.get("gymnasium")
    shown = f"{ask.yardstick or 'gymnasium'}: {_text(row, spread(yardstick))}" if yardstick else ""
    ratio, met, asked = "", None, ""
    if ask.kind == "within" and yardstick:
        figure = spread(ratios(ours, yardstick))
        ratio, met, asked = f"{figure.text()} of it", figure.median <= ask.factor, f"within {number(ask.factor)} of it"
    elif yardstick and row.unit:
        figure = spread(ratios(yardstick, ours))
        ratio = f"{figure.text()} times faster"
        if ask.kind == "faster":
            met = figure.median >= ask.factor
            asked = f"{number(ask.factor)} times faster" if ask.factor != 1 else "faster"
    if ask.kind == "at most":
        met = spread(ours).median <= ask.factor
        asked = f"at most {_quantity(row, ask.factor)}"
    return [row.name, shown, f"{ask.ours}: {_text(row, spread(ours))}", ratio, asked, verdict(met if judges else None)]


def _text(row: Row, figure: Spread) -> str:
    if not row.unit:
        return number(figure.median)
    scale, unit = _scale(figure.median)
    return figure.text(scale, unit)


def _quantity(row: Row, figure: float) -> str:
    if not row.unit:
        return number(figure)
    scale, unit = _scale(figure)
    return f"{number(figure * scale)} {unit}"


def _scale(seconds: float) -> tuple[float, str]:
    return (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")


if __name__ == "__main__":
    sys.exit(main())
