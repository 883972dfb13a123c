"""Where results go: JSON lines, the terminal, and ``README.md``, here and above. So none is ever copied by hand."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from machine import TOLERABLE

__all__ = ["PROJECT_README", "README", "parse", "write_json", "write_readme"]

README = Path(__file__).with_name("README.md")
PROJECT_README = Path(__file__).parents[1] / "README.md"


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Adds the options that all scripts share, and parses the command line."""
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works; gives no verdicts")
    parser.add_argument("--rows", default="", metavar="PATTERN", help="only rows whose name contains PATTERN")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write every sample as JSON lines: to FILE beside the tables, or without FILE to stdout in their place",
    )
    parser.add_argument("--readme", action="store_true", help="put the table into README.md, in place of the last one")
    options = parser.parse_args()
    if options.readme and (options.quick or options.rows):
        parser.error("--readme takes a whole run")
    return options


def write_json(target: str, lines: Iterable[dict[str, Any]]) -> None:
    """Writes one object a line, to the file ``target`` or, where that is "-", to stdout."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def write_readme(readme: Path, section: str, text: str, others: float) -> int:
    """Puts ``text`` between the two marks of ``section`` in ``readme``; not if ``others`` took too much of the CPUs.

    Returns:
        An exit code.

    Raises:
        ValueError: It has no such marks.
    """
    if others > TOLERABLE:
        print(f"{readme.name} stays as it is: others took {100 * others:.0f} % of the CPUs.", file=sys.stderr)
        return 1
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    content, replaced = re.subn(
        f"{re.escape(begin)}.*{re.escape(end)}",
        lambda _: f"{begin}\n\n{text}\n\n{end}",
        readme.read_text(),
        flags=re.DOTALL,
    )
    if not replaced:
        raise ValueError(f"Expected {begin} and {end} in {readme.name}.")
    readme.write_text(content)
    return 0
