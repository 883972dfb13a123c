"""Vector environments compared: trials in turns, so that what else this machine does hits all alike."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cpus import usable_cpus
from ..tables import printable, table
from .text import CommandError, positive, progress_bar, seconds, show_progress
from .trial import Candidate, TrialError, attempt

__all__ = ["Result", "as_json", "compare", "configure", "print_results"]


@dataclass
class Result:
    """What became of a candidate.

    Attributes:
        candidate: The candidate.
        rates: Environment steps per second, one for each turn.
        starts: Seconds from the constructor's call to the end of the first reset, one for each turn.
        problem: Why it broke off; empty where it did not.
    """

    candidate: Candidate
    rates: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    problem: str = ""

    @property
    def rate(self) -> float:
        """The median; 0 where it broke off."""
        return 0.0 if self.problem or not self.rates else statistics.median(self.rates)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that all comparisons have."""
    parser.add_argument("env_id", metavar="ENV_ID", help="as gymnasium.make takes it; MODULE:ID imports MODULE first")
    parser.add_argument("--num-envs", metavar="N", type=positive, default=8, help="default: %(default)s")
    parser.add_argument(
        "--seconds", metavar="S", type=seconds, default=2.0, help="that each is stepped, in all; default: %(default)s"
    )
    parser.add_argument(
        "--turns",
        metavar="T",
        type=positive,
        default=5,
        help="that these seconds are spread over; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="one object, with every sample")


def compare(candidates: Sequence[Candidate], arguments: argparse.Namespace, worth: float = 0.0) -> list[Result]:
    """Measures ``candidates`` in turns, every other turn in reverse; shows how far that is, where somebody sees it.

    Args:
        candidates: What to measure.
        arguments: The command line, as :func:`configure` has it.
        worth: A candidate below this share of the best rate after a turn gets no further one.

    Raises:
        CommandError: The environment can't be made, or no candidate gets anywhere.
    """
    results = [Result(candidate) for candidate in candidates]
    running, done = results, 0
    try:
        for turn in range(arguments.turns):
            for number, result in enumerate(running if turn % 2 == 0 else running[::-1]):
                bar = progress_bar(done + number, done + (arguments.turns - turn) * len(running))
                show_progress(f"{bar} {result.candidate}")
                _measure(result, arguments)
            done += len(running)
            best = max(result.rate for result in results)
            if best == 0:
                raise CommandError(f"can't step {arguments.env_id}: {results[0].problem}")
            running = [result for result in running if result.rate > worth * best]
    finally:
        show_progress("")
    return results


def print_results(
    heads: Sequence[str], rows: Sequence[Sequence[object]], results: Sequence[Result], arguments: argparse.Namespace
) -> None:
    """Prints what was measured, and how; a row of cells under ``heads`` says what each of ``results`` is of."""
    of, cpus = _count(arguments.num_envs, "environment"), _count(usable_cpus(), "CPU")
    how = f"each stepped for {arguments.seconds:g} s in {_count(arguments.turns, 'turn')}"
    print(f"{arguments.env_id}, {of} on {cpus}; {how}\n")
    measured = [
        (
            *row,
            f"{result.rate:,.0f}" if result.rate else "-*",
            f"{min(result.rates):,.0f} to {max(result.rates):,.0f}" if result.rate else "-",
            f"{statistics.median(result.starts):.2f} s" if result.rate else "-",
        )
        for row, result in zip(rows, results, strict=True)
    ]
    told = ("STEPS/S", "SPREAD", "START")
    print(table((*heads, *told), measured, right=(*heads[1:], *told)))
    for result in results:
        if result.problem:
            print(f"* {result.candidate}: {printable(result.problem)}")


def as_json(results: Sequence[Result], arguments: argparse.Namespace) -> dict[str, Any]:
    """The same as what ``json.dumps`` takes; what there is not is null."""
    return {
        "env_id": arguments.env_id,
        "num_envs": arguments.num_envs,
        "cpus": usable_cpus(),
        "seconds": arguments.seconds,
        "results": [
            dataclasses.asdict(result) | {"rate": result.rate or None, "problem": result.problem or None}
            for result in results
        ],
    }


def _measure(result: Result, arguments: argparse.Namespace) -> None:
    try:
        sample = attempt(arguments.env_id, arguments.num_envs, result.candidate, arguments.seconds / arguments.turns)
    except TrialError as error:
        result.problem = str(error)
    else:
        result.rates.append(sample.rate)
        result.starts.append(sample.start)


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'' if number == 1 else 's'}"
