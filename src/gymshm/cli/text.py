"""How commands speak: tables, sizes, names, and the error that becomes one line on stderr."""

from __future__ import annotations

from ..tables import printable, table

__all__ = ["CommandError", "name_text", "size_text", "table"]


class CommandError(Exception):
    """A command can't do what it was asked; its text is shown as one line."""


def size_text(nbytes: int) -> str:
    """A size in bytes for people: ``1.5 MiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def name_text(name: str) -> str:
    """A segment's name for a terminal: another program may have put anything in it."""
    return printable(name)
