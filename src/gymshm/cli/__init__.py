"""The command line, ``python -m gymshm COMMAND``: one module per command.

To add a command, add a module here, and its name to :data:`COMMANDS`. It has

* ``SUMMARY``: what it does, in one line;
* ``configure(parser)``: adds its arguments, and a description where there is more to say;
* ``run(arguments)``: does it, and returns the exit code; or raises what :func:`main` turns into one line on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import SegmentError
from .text import CommandError, UsageError

__all__ = ["COMMANDS", "main"]

COMMANDS = ("list", "inspect", "watch", "clean", "demo", "bench", "tune")

_EXIT_CODES = (
    "exit codes: 0 it is done; 1 it can't be done, and one line on stderr says why; 2 the command line is wrong; "
    "130 interrupted. A command whose codes say more tells so in its own --help."
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code.

    Args:
        argv: The command line without the program's name; None for this process's own.

    Raises:
        SystemExit: The command line is wrong, or asks for help.
    """
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output has seen enough. Nothing is left to say, not even when the interpreter flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(arguments.command == "clean")  # which may not have come to what it was to do
    except KeyboardInterrupt:
        return 130
    except (CommandError, SegmentError, OSError, ValueError) as error:
        print(f"gymshm {arguments.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gymshm", description="Looks after the shared-memory segments of gymshm.", epilog=_EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=f"gymshm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)
        command = commands.add_parser(name, help=module.SUMMARY, description=module.SUMMARY, epilog=_EXIT_CODES)
        module.configure(command)
        command.set_defaults(run=module.run)
    return parser
