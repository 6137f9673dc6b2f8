"""``skrull plan``: plans batches, one after another."""

from __future__ import annotations

import argparse
import json
from typing import Any

from skrull.cli import _batches
from skrull.errors import SkrullError
from skrull.job import POLICIES
from skrull.local_engine import local
from skrull.plan import Plan


def add_command(commands: Any) -> None:
    """Adds it to the parser."""
    parser = commands.add_parser(
        "plan",
        help="plan each batch of a lengths file",
        description="Plan each batch of a lengths file in this process.",
    )
    _batches.add_options(parser)
    parser.add_argument(
        "--step", type=int, default=0, metavar="N", help="of the first batch"
    )
    parser.add_argument("--policy", choices=POLICIES, help="default: the job's")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: one plan a line, as `skrullctl plan` prints it",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    job = _batches.read_job(options)
    refused = 0
    with local(job) as engine:
        for index, lengths in enumerate(_batches.read_batches(options)):
            try:
                plan = engine.plan(options.step + index, lengths, policy=options.policy)
            except SkrullError as error:
                refused += 1
                print(_refusal(index, error, options.format))
                continue
            print(plan.to_json() if options.format == "json" else _text(index, plan))
    return 1 if refused else 0


def _refusal(index: int, error: SkrullError, form: str) -> str:
    if form == "text":
        return f"batch {index}: refused: {error}"
    told = {"code": error.code, "message": error.message}
    return json.dumps({"batch": index, "error": told})


def _text(index: int, plan: Plan) -> str:
    figures = plan.figures
    bound = figures.lower_bound_seconds
    gap = figures.predicted_seconds / bound - 1 if bound > 0 else 0.0
    tokens = int(plan.lengths.sum())
    sharded = figures.sharded_token_count / tokens
    return (
        f"batch {index}, step {plan.step}: {plan.lengths.size} sequences, "
        f"{tokens} tokens, {plan.policy}\n"
        f"  predicted {figures.predicted_seconds * 1e3:.3f} ms, lower bound "
        f"{bound * 1e3:.3f} ms, gap {gap:.2%}\n"
        f"  micro-batches {figures.micro_batch_count}, sharded "
        f"{figures.sharded_sequence_count} sequences ({sharded:.2%} of tokens)\n"
        f"  fullest rank {figures.max_rank_tokens} tokens, imbalance of DP ranks "
        f"{figures.dp_imbalance:.2%}, of ranks {figures.rank_imbalance:.2%}\n"
        f"  digest {plan.digest}"
    )
