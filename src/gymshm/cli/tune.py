"""``gymshm tune ENV_ID``: which arguments of ``ShmVectorEnv`` suit somebody's environment on this machine."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from typing import Any

from ..cpus import usable_cpus
from . import comparison
from .comparison import as_json, compare, print_results
from .text import UsageError, parsed
from .trial import Candidate

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Measures which number of workers, slots and batch size suit an environment of yours."

#: A combination below this share of the best rate after a turn gets no further one.
_WORTH = 0.7

#: Who has this share of the best rate, is as good: the plainest of them is what to write.
_AS_GOOD = 0.95


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        f"{SUMMARY} Every combination steps it with random actions, in an interpreter of its own, in turns with the "
        f"others; those below {_WORTH:.0%} of the best after a turn get no further one. With several slots `step` "
        "returns views (copy=False); with a batch size below N, environments are driven by `send` and `recv`. STEPS/S "
        "is the median of the turns, SPREAD the least and the greatest, START the time from the constructor's call to "
        "the end of the first reset."
    )
    comparison.configure(parser)
    parser.add_argument(
        "--workers",
        metavar="W,...",
        type=_numbers(0),
        help="0 is none; default: 0, 1, 2, 4, ..., the CPUs",
    )
    parser.add_argument("--slots", metavar="K,...", type=_numbers(1), default=[1, 8], help="default: 1,8")
    parser.add_argument("--batch-size", metavar="B,...", type=_numbers(1), help="default: N, N/2, N/4")


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints the table, and says what to write."""
    results = compare(_candidates(arguments), arguments, _WORTH)
    turns = max(len(result.rates) for result in results if result.rate)
    finalists = [result for result in results if result.rate and len(result.rates) == turns]
    best = max(result.rate for result in finalists)
    advised = next(result for result in finalists if result.rate >= _AS_GOOD * best)
    call = _call(arguments, advised.candidate)
    if arguments.json:
        print(json.dumps(as_json(results, arguments) | {"advised": advised.candidate.options, "call": call}, indent=2))
        return 0
    n = arguments.num_envs
    options = [result.candidate.options for result in results]
    print_results(
        ("WORKERS", "SLOTS", "BATCH"),
        [(told["num_workers"], told.get("slots", 1), told.get("batch_size", n)) for told in options],
        results,
        arguments,
    )
    print(f"\nThe plainest of those within {1 - _AS_GOOD:.0%} of the best. To have it, write\n\n    {call}")
    if "batch_size" in advised.candidate.options:
        print('\nand, after `envs.async_reset()`, `envs.recv()` and `envs.send(actions, infos["env_id"])` in turns.')
    elif "slots" in advised.candidate.options:
        more = advised.candidate.options["slots"] - 1
        print(f"\nWhat `step` returns are views then, valid for {more} further step{'' if more == 1 else 's'}.")
    return 0


def _candidates(arguments: argparse.Namespace) -> list[Candidate]:
    """All combinations that can be, the plainest first: copies, then views, then send and recv; few workers first.

    Raises:
        UsageError: There is none.
    """
    n = arguments.num_envs
    workers = arguments.workers or _doublings(min(usable_cpus(), n))
    batches = arguments.batch_size or [size for size in (n, n // 2, n // 4) if size]
    if max(batches) > n:
        raise UsageError(f"a batch of {max(batches)} is more than {n} environments")
    told: list[dict[str, Any]] = []
    for batch in sorted(set(batches), reverse=True):
        for slots in sorted(set(arguments.slots)):
            for number in sorted({min(number, n) for number in workers}):
                if batch == n:
                    views = {} if slots == 1 else {"copy": False, "slots": slots}
                    told.append({"num_workers": number, **views})
                elif slots == 1 and number > 0:  # others have no turns, or gain nothing by them
                    told.append({"num_workers": number, "batch_size": batch})
    if not told:
        raise UsageError(f"nothing to measure: batches below {n} environments need --slots 1 and at least one worker")
    return [Candidate("ShmVectorEnv", options) for options in told]


def _doublings(most: int) -> list[int]:
    """0, 1, 2, 4 and so on, and ``most``."""
    return sorted({0, most, *itertools.takewhile(lambda number: number < most, (1 << i for i in itertools.count()))})


def _call(arguments: argparse.Namespace, candidate: Candidate) -> str:
    told = "".join(f", {name}={value!r}" for name, value in candidate.options.items())
    env_fns = f"[lambda: gym.make({json.dumps(arguments.env_id)})] * {arguments.num_envs}"
    return f"envs = ShmVectorEnv({env_fns}{told})"


def _numbers(least: int) -> Callable[[str], list[int]]:
    """An argument that is a list of numbers from ``least`` up, with commas between them."""

    def convert(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    def numbers(text: str) -> list[int]:
        return parsed(text, convert, lambda told: min(told) >= least, f"integers from {least} up, with commas")

    return numbers
