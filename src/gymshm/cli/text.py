"""How commands speak: tables, sizes, names, and the error that becomes one line on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["CommandError", "name_text", "size_text", "table"]


class CommandError(Exception):
    """A command can't do what it was asked; its text is shown as one line."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """Rows under their ``heads``, in columns, two blanks apart.

    Args:
        heads: What stands above each column.
        rows: One cell for each head.
        right: The heads whose column is aligned to the right: numbers.
    """
    cells = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    to_right = [head in set(right) for head in heads]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, to_right, strict=True)
        ).rstrip()
        for row in cells
    )


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
    return name if name.isprintable() else ascii(name)
