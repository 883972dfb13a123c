"""What is asked of a contender, and whether samples meet it. Pure.

Kinds of asks, each by the median of the ratios of samples that were taken in the same round:

* ``times``: as many times better than the yardstick, at least (faster, or smaller, as the row has it);
* ``share``: the same as a share of what the yardstick reaches, in percent: for bounds that nobody can pass;
* ``within``: as many times the yardstick's cost, at most;
* ``at most``: so much by itself, without a yardstick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from figures import number, quantity, ratios, spread

__all__ = ["Ask", "Judgement", "judge"]


@dataclass(frozen=True)
class Ask:
    """What is asked of the contender ``ours``.

    Attributes:
        ours: Name of the contender.
        kind: See the module.
        goals: Figures to reach: none where the ratio is only to be shown, two where one is a step towards the other.
        yardstick: Name of the contender that it is compared with.
        headline: Whether the project's own README tells it.
    """

    ours: str
    kind: Literal["times", "share", "within", "at most"]
    goals: tuple[float, ...] = ()
    yardstick: str = ""
    headline: bool = False


class Judgement(NamedTuple):
    """Texts for a table: the ratio, what was asked, and whether it was met."""

    ratio: str
    asked: str
    met: str


def judge(
    ask: Ask, samples: Mapping[str, Sequence[float]], unit: str, *, higher_is_better: bool, judges: bool
) -> Judgement:
    """Compares; ``judges`` is False where the run was too short for a verdict."""
    ours = samples[ask.ours]
    if ask.kind == "at most":
        return Judgement(
            "",
            f"at most {', then '.join(quantity(goal, unit) for goal in ask.goals)}",
            _met([spread(ours).median <= goal for goal in ask.goals], judges),
        )
    yardstick = samples[ask.yardstick]
    better = ratios(ours, yardstick) if higher_is_better else ratios(yardstick, ours)
    if ask.kind == "within":
        figure = spread([1 / ratio for ratio in better])
        ratio, asked = f"{figure.text()} of it", f"within {_list(ask.goals)} of it"
        met = [figure.median <= goal for goal in ask.goals]
    elif ask.kind == "share":
        figure = spread([100 * ratio for ratio in better])
        ratio, asked = f"{figure.text()} % of it", f"{_list([100 * goal for goal in ask.goals])} % of it"
        met = [figure.median >= 100 * goal for goal in ask.goals]
    else:
        figure = spread(better)
        ratio, asked = f"{figure.text()} times", f"{_list(ask.goals)} times"
        met = [figure.median >= goal for goal in ask.goals]
    return Judgement(ratio, asked if ask.goals else "", _met(met, judges))


def _list(goals: Sequence[float]) -> str:
    return ", then ".join(number(goal) for goal in goals)


def _met(met: list[bool], judges: bool) -> str:
    return ", ".join("yes" if one else "**no**" for one in met) if met and judges else "-"
