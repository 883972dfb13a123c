"""``gymshm clean``: removes what dead creators left."""

from __future__ import annotations

import argparse
import sys

from ..creator import Status
from ..inventory import Found, find, remove
from ..tables import printable
from .list import as_table
from .text import CommandError, size_text

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Removes the segments whose creator has ended without removing them."


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        f"{SUMMARY} Never one whose creator lives, or of whose creator nothing can be told. Processes that have it "
        "mapped go on. Exit code 0 says that no orphan is left, 1 that one is: the answer was no, or it could not be "
        "removed."
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    """Removes orphans, asking first."""
    orphans = _orphans()
    if not orphans:
        print("There is nothing to remove.")
        return 0
    print(as_table(orphans))
    if not arguments.yes and not _agreed(f"Remove {_count(len(orphans))}?"):
        return 1
    removed = []
    problem = ""
    for segment in orphans:
        try:
            if remove(segment):
                removed.append(segment)
        except OSError as error:
            problem = f" ({error.strerror})"
    print(f"Removed {_count(len(removed))}, {size_text(sum(segment.nbytes for segment in removed))}.")
    # What is gone without us, somebody else removed: that is as good.
    identities = {segment.named.identity for segment in orphans}
    left = [segment for segment in _orphans() if segment.named.identity in identities]
    if left:
        raise CommandError(f"could not remove {', '.join(printable(segment.name) for segment in left)}{problem}")
    return 0


def _orphans() -> list[Found]:
    return [segment for segment in find() if segment.status is Status.ORPHANED]


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise CommandError("nobody is there to be asked: stdin is no terminal; say --yes")
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _count(number: int) -> str:
    return f"{number} segment{'' if number == 1 else 's'}"
