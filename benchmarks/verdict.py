"""What scripts share that look for violations: options, what was found, the table, and the exit code."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from figures import table

__all__ = ["Verdict", "options"]

#: As many violations are printed; the rest is counted.
_SHOWN = 20


def options(text: str | None, **amounts: tuple[int, int, str]) -> argparse.Namespace:
    """The command line: ``--quick``, ``--seed``, and amounts.

    Args:
        text: What the script does.
        amounts: For each option what it is in a quick run, what it is in a long one, and what it means.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the short form, which takes seconds")
    parser.add_argument("--seed", type=int, default=0, help="of what is random here")
    for name, (quick, long, meaning) in amounts.items():
        parser.add_argument(f"--{name}", type=int, help=f"{meaning}: {long} unless told, {quick} in the short form")
    chosen = parser.parse_args()
    for name, (quick, long, _) in amounts.items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, quick if chosen.quick else long)
    return chosen


class Verdict:
    """What was done and found.

    Attributes:
        violations: How many there were.
    """

    def __init__(self, *columns: str) -> None:
        """``columns`` are those of the table."""
        self.violations = 0
        self._columns, self._rows = columns, list[Sequence[str]]()
        self._began = time.monotonic()

    def expect(self, holds: Any, *text: object) -> bool:
        """Takes note of a violation unless it ``holds``, told as ``text``: parts that nobody formats until then."""
        if not holds:
            self.violations += 1
            if self.violations <= _SHOWN:
                print("violation:", *text, file=sys.stderr, flush=True)
        return bool(holds)

    def row(self, *cells: object) -> None:
        """One more line of the table."""
        self._rows.append([cell if isinstance(cell, str) else f"{cell:,}".replace(",", " ") for cell in cells])

    def finish(self) -> int:
        """Prints the table; the exit code."""
        print(table(self._columns, self._rows))
        print(f"{self.violations} violations, {time.monotonic() - self._began:.0f} s")
        return 1 if self.violations else 0
