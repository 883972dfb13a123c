"""``gymshm bench ENV_ID``: gymnasium's vector environments and ours on somebody's environment, side by side."""

from __future__ import annotations

import argparse
import json

from . import comparison
from .comparison import as_json, compare, print_results
from .trial import Candidate

__all__ = ["SUMMARY", "configure", "run"]

SUMMARY = "Compares SyncVectorEnv, AsyncVectorEnv and ShmVectorEnv on an environment of yours."

#: Each as it is constructed by who says nothing more.
_CLASSES = ("SyncVectorEnv", "AsyncVectorEnv", "ShmVectorEnv")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        f"{SUMMARY} Each steps it with random actions, in an interpreter of its own, in turns with the others. "
        "STEPS/S is the median of the turns, SPREAD the least and the greatest, START the time from the constructor's "
        "call to the end of the first reset."
    )
    comparison.configure(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measures, and prints the table."""
    results = compare([Candidate(cls) for cls in _CLASSES], arguments)
    if arguments.json:
        print(json.dumps(as_json(results, arguments), indent=2))
        return 0
    print_results(("VECTOR ENVIRONMENT",), [(cls,) for cls in _CLASSES], results, arguments)
    *others, ours = results
    ratios = [f"{ours.rate / other.rate:.1f} times {other.candidate}" for other in others if ours.rate and other.rate]
    if ratios:
        print(f"\n{ours.candidate}: {', '.join(ratios)}.")
    if 0 < ours.rate < others[0].rate:  # cheap steps: see "How many workers" in the class's docstring
        print(f'Try num_workers="auto"; `python -m gymshm tune {arguments.env_id}` tells what suits it best.')
    return 0
