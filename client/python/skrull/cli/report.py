"""``skrull report``: one batch's plan as a web page."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

from skrull.cli import _batches
from skrull.errors import InvalidArgumentError, SkrullError
from skrull.job import POLICIES
from skrull.local_engine import local


def add_command(commands: Any) -> None:
    """Adds it to the parser."""
    parser = commands.add_parser(
        "report",
        help="draw one batch's plan as a web page",
        description="Draw one batch's plan as a web page: a timeline of each rank, "
        "loads, what is sharded and why. One file that loads nothing.",
    )
    _batches.add_options(parser)
    parser.add_argument(
        "--batch", type=int, default=0, metavar="INDEX", help="which, from 0"
    )
    parser.add_argument("--policy", choices=POLICIES, help="default: the job's")
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="- is the standard output"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    job = _batches.read_job(options)
    batches = _batches.read_batches(options)
    if not 0 <= options.batch < len(batches):
        raise InvalidArgumentError(
            f"--batch {options.batch}: there are {len(batches)} batches"
        )
    with local(job) as engine:
        try:
            plan = engine.plan(
                options.batch, batches[options.batch], policy=options.policy
            )
            page = plan.to_html(job)
        except SkrullError as error:
            print(f"skrull: batch {options.batch}: {error}", file=sys.stderr)
            return 1
    if options.output == "-":
        sys.stdout.write(page)
    else:
        pathlib.Path(options.output).write_text(page, encoding="utf-8")
    return 0
