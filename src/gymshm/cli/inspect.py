"""``gymshm inspect NAME``: the layout of one segment."""

from __future__ import annotations

import argparse
import dataclasses
import json

from ..errors import SegmentFormatError
from ..inventory import examine
from ..layout import entries, layout_text
from .list import as_json, kind_text
from .text import size_text

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Shows the layout of a segment: which array stands where."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = f"{SUMMARY} Offsets and sizes are in bytes, offsets from the start of the segment."
    parser.add_argument("name", metavar="NAME", help="the segment's name, as `list` shows it")
    parser.add_argument("--json", action="store_true", help="one object, with the arrays under `arrays`")


def run(arguments: argparse.Namespace) -> int:
    """Prints the layout."""
    segment = examine(arguments.name)
    header = segment.header
    if header is None:
        raise SegmentFormatError(segment.name, segment.problem)
    arrays = list(entries(header))
    if arguments.json:
        told = as_json(segment) | {"data_offset": header.data_offset, "arrays": list(map(dataclasses.asdict, arrays))}
        print(json.dumps(told, indent=2))
        return 0
    print(f"{segment.name}: {size_text(segment.nbytes)} ({segment.nbytes} bytes), n={header.n}, {kind_text(segment)}")
    print(f"created by process {header.creator.pid} ({segment.status.value})\n")
    print(layout_text(arrays))
    return 0
