"""``gymshm list``: the segments of this machine."""

from __future__ import annotations

import argparse
import json

from ..inventory import Found, find
from ..tables import printable, table
from .text import size_text

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Lists the segments that this user may open."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        f"{SUMMARY} STATUS says of the process that created a segment: alive; orphaned, when it has ended without "
        "removing it; or unknown, when that can't be told from here."
    )
    parser.add_argument("--json", action="store_true", help="a list of objects, sizes in bytes")


def run(arguments: argparse.Namespace) -> int:
    """Prints the list."""
    found = list(find())
    if arguments.json:
        print(json.dumps([as_json(segment) for segment in found], indent=2))
    elif not found:
        print("There are no segments.")
    else:
        print(as_table(found))
        for segment in found:
            if segment.problem:
                print(f"* {printable(segment.problem)}")
    return 0


def as_table(found: list[Found]) -> str:
    """The segments, one to a line."""
    rows = []
    for segment in found:
        header = segment.header
        rows.append(
            (
                printable(segment.name),
                size_text(segment.nbytes),
                "-" if header is None else header.n,
                "-" if header is None else header.creator.pid,
                segment.status.value + ("*" if segment.problem else ""),
                kind_text(segment),
            )
        )
    return table(("NAME", "SIZE", "N", "CREATOR", "STATUS", "KIND"), rows, right=("SIZE", "N", "CREATOR"))


def as_json(segment: Found) -> dict[str, object]:
    """One segment as what ``json.dumps`` takes; what can't be told is null."""
    header = segment.header
    return {
        "name": segment.name,
        "nbytes": segment.nbytes,
        "n": None if header is None else header.n,
        "creator": None if header is None else header.creator.pid,
        "status": segment.status.value,
        "kind": kind_text(segment),
        "problem": segment.problem or None,
    }


def kind_text(segment: Found) -> str:
    """Where its bytes are."""
    return "shm" if segment.named.path is None else "file"
