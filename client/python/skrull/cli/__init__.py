"""The ``skrull`` command: plans, comparisons, reports and lengths files.

Exit codes: 0, all planned; 1, some batch was refused; 2, usage, or an input that
cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from skrull._version import __version__
from skrull.cli import compare, lengths, plan, report
from skrull.errors import SkrullError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: Without the program's name; None: those of the process.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="skrull",
        description="Plan which rank trains which tokens of a batch of unequal "
        "sequences, in this process.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (plan, compare, report, lengths):
        module.add_command(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough
        return 0
    except (OSError, SkrullError, ImportError) as error:
        print(f"skrull: {error}", file=sys.stderr)
        return 2
