"""Samples -> medians with quartiles, and how they and tables are printed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median, quantiles
from typing import NamedTuple

__all__ = ["Spread", "number", "quantity", "ratios", "spread", "table"]


class Spread(NamedTuple):
    """The median of samples, and the quartiles on either side of it."""

    low: float
    median: float
    high: float

    def text(self, unit: str = "") -> str:
        """As "13.7 [13.5, 14.1] µs", or "13.7 µs" where the quartiles agree."""
        scale, suffix = _scale(self.median, unit)
        low, middle, high = (number(figure * scale) for figure in self)
        return f"{middle}{f' [{low}, {high}]' if low != high else ''}{suffix}"


def spread(samples: Sequence[float]) -> Spread:
    """Median and quartiles; of a single sample, the sample three times."""
    if len(samples) < 2:
        return Spread(samples[0], samples[0], samples[0])
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return Spread(low, median(samples), high)


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each pair: of what was measured in the same round."""
    return [a / b if b else float("inf") for a, b in zip(above, below, strict=True)]


def number(figure: float) -> str:
    """Three significant digits, and thousands grouped by a space: what a reader can take in."""
    if abs(figure) < 1000:
        return f"{figure:.3g}" if abs(figure) < 999.5 else "1 000"
    digits = 10 ** (len(str(int(abs(figure)))) - 3)
    return f"{round(figure / digits) * digits:,}".replace(",", " ")


def quantity(figure: float, unit: str) -> str:
    """One figure with its unit: "s", "steps/s", "bytes", "CPU" (a share of one CPU), or "" for what is counted."""
    scale, suffix = _scale(figure, unit)
    return f"{number(figure * scale)}{suffix}"


def _scale(figure: float, unit: str) -> tuple[float, str]:
    if unit == "s":
        return (1, " s") if figure >= 1 else (1e3, " ms") if figure >= 1e-3 else (1e6, " µs")
    if unit == "bytes":
        return 1e-6, " MB"
    if unit == "CPU":
        return 100, " % of a CPU"
    return 1, f" {unit}" if unit else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its columns padded so that it can be read as it is."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
