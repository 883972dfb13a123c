"""Rows under their heads: as text for terminals, as HTML for notebooks. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["html_table", "printable", "table"]


def printable(text: str) -> str:
    """``text`` for a terminal, which must not take it for commands: another program may have written it."""
    return text if text.isprintable() else ascii(text)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """Rows under their ``heads``, in columns, two blanks apart.

    Args:
        heads: What stands above each column.
        rows: One cell for each head.
        right: The heads whose column is aligned to the right: numbers.
    """
    cells = [list(heads), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    to_right = [head in set(right) for head in heads]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, to_right, strict=True)
        ).rstrip()
        for row in cells
    )


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> str:
    """The same as an HTML table under a ``caption``; whatever stands in it is text, and never markup."""
    styles = [f"text-align: {'right' if head in set(right) else 'left'}" for head in heads]

    def line(tag: str, cells: Sequence[object]) -> str:
        told = (
            f'<{tag} style="{style}">{html.escape(str(cell))}</{tag}>'
            for cell, style in zip(cells, styles, strict=True)
        )
        return f"<tr>{''.join(told)}</tr>"

    return (
        f'<table><caption style="text-align: left">{html.escape(caption)}</caption>'
        f"<thead>{line('th', heads)}</thead><tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"
    )
