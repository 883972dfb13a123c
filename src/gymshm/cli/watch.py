"""``gymshm watch NAME``: what is in a segment, live, from another terminal than the one where the training runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any, NoReturn

from ..attachment import attach
from ..creator import Status
from ..errors import SegmentError
from ..inventory import examine
from ..segment import Segment
from ..tables import printable
from .onlooker import Onlooker
from .pace import Pace
from .panel import Panel
from .pictures import as_png
from .text import CommandError, positive, seconds

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Shows live what is in a segment: numbers, pictures, and how fast it goes."

#: Seconds between two looks at the creator, at most.
_CREATOR_SECONDS = 1.0

#: For a terminal: another screen, without a cursor, and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"

#: For a terminal: to the upper left corner; what follows in the line, or on the screen, goes.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        f"{SUMMARY} It attaches read-only, and changes nothing. It ends when the creator closes the segment or ends, "
        "and on Ctrl-C. Images are pictures where the output is a terminal, which has to know 24-bit colours; else "
        "they are left out. The table tells one environment's number, and the mean, the least and the greatest over "
        "all; LATELY is that environment's number at the last looks."
    )
    parser.add_argument("name", metavar="NAME", help="the segment's name: `envs.segment_name`, or as `list` shows it")
    parser.add_argument("--env", metavar="I", type=int, default=0, help="the environment; default: %(default)s")
    parser.add_argument(
        "--interval", metavar="S", type=seconds, default=0.5, help="seconds between two looks; default: %(default)s"
    )
    parser.add_argument("--frames", metavar="K", type=positive, help="end after K looks")
    parser.add_argument("--png", metavar="DIR", help="write the environment's images to files there, and show nothing")


def run(arguments: argparse.Namespace) -> int:
    """Looks until there is nothing to see any more."""
    with attach(arguments.name, read_only=True) as attachment:
        segment = attachment.segment
        if not 0 <= arguments.env < segment.n:
            raise CommandError(f"there is no environment {arguments.env}: {printable(segment.name)} has {segment.n}")
        onlooker = Onlooker(segment)
        if arguments.png is not None:
            end = _look(segment, arguments, _picture_writer(onlooker, arguments))
        else:
            panel = Panel(segment, onlooker, Pace(segment), arguments.env)
            with _screen() as is_terminal:
                end = _look(segment, arguments, lambda _: _show(panel, is_terminal))
        if end:
            print(f"{printable(segment.name)}: {end}")
    return 0


def _look(segment: Segment, arguments: argparse.Namespace, look: Callable[[int], object]) -> str:
    """Calls ``look(number)`` again and again; why that is over, or nothing where enough was seen."""
    due, number = monotonic(), 0
    while True:
        look(number)
        number += 1
        if number == arguments.frames:
            return ""
        due = max(due + arguments.interval, monotonic())
        while True:
            if end := _end(segment):
                return end
            if (left := due - monotonic()) <= 0:
                break
            sleep(min(left, _CREATOR_SECONDS))


def _end(segment: Segment) -> str:
    """Why there is nothing more to come; empty as long as there is."""
    try:
        found = examine(segment.name)
    except (SegmentError, OSError):
        return "its creator has closed it, or ended"
    if found.header is None or found.header.digest != segment.header.digest:
        return "its creator has closed it, or ended"
    return "its creator has ended" if found.status is Status.ORPHANED else ""


def _picture_writer(onlooker: Onlooker, arguments: argparse.Namespace) -> Callable[[int], None]:
    if not onlooker.albums:
        raise CommandError(f"{printable(arguments.name)} has no images")
    os.makedirs(arguments.png, exist_ok=True)

    def write(number: int) -> None:
        for position, album in enumerate(onlooker.albums):
            title = re.sub(r"\W+", "-", album.path, flags=re.ASCII).strip("-")
            path = os.path.join(arguments.png, f"{position}-{title}-env{arguments.env}-{number:06}.png")
            with open(path, "wb") as file:
                file.write(as_png(album.picture(arguments.env)))

    return write


def _show(panel: Panel, is_terminal: bool) -> None:
    panel.look()
    if is_terminal:
        size = shutil.get_terminal_size()
        # Some terminals don't know their size, and Python 3.10 then says 0.
        lines = panel.lines(size.columns or 80, size.lines or 24)
        sys.stdout.write(_HOME + f"{_CLEAR_LINE}\n".join(lines) + _CLEAR_LINE + _CLEAR_BELOW)
    else:
        sys.stdout.write("\n".join(panel.text()) + "\n\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _screen() -> Iterator[bool]:
    """Another screen for a while, where stdout is a terminal; yields whether it is."""
    if not sys.stdout.isatty():
        yield False
        return

    def leave(number: int, frame: Any) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        sys.stdout.write(_ENTER)
        yield True
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        for number, handler in before.items():
            signal.signal(number, handler)
