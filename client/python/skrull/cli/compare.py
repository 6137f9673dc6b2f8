"""``skrull compare``: policies side by side on the same batches."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from skrull.cli import _batches
from skrull.engine import Engine
from skrull.errors import SkrullError
from skrull.job import POLICIES
from skrull.local_engine import local

# What all speed-ups are over: what most trainers do.
_BASE = "POLICY_STATIC_CP"


@dataclasses.dataclass(frozen=True)
class _Row:
    policy: str
    planned: int  # batches that were not refused
    batches: int
    seconds: tuple[float | None, ...]  # of each batch; None: refused
    mean_ms: float
    gap: float  # of the sums
    sharded: float  # share of tokens
    micro_batches: float  # mean


def add_command(commands: Any) -> None:
    """Adds it to the parser."""
    parser = commands.add_parser(
        "compare",
        help="compare policies on the batches of a lengths file",
        description="Compare policies on the batches of a lengths file. The speed-up "
        f"is over {_BASE}, of the batches that both plan.",
    )
    _batches.add_options(parser)
    parser.add_argument(
        "--policy",
        action="append",
        choices=POLICIES,
        help="may be given several times; default: all",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    job = _batches.read_job(options)
    batches = _batches.read_batches(options)
    policies = options.policy or list(POLICIES)
    with local(job) as engine:
        base = _measure(engine, _BASE, batches)
        rows = [
            base if policy == _BASE else _measure(engine, policy, batches)
            for policy in dict.fromkeys(policies)
        ]
    if options.format == "json":
        for row in rows:
            print(json.dumps(_as_json(row, base)))
    else:
        print(_as_text(rows, base))
    return 1 if any(row.planned < row.batches for row in rows) else 0


def _measure(engine: Engine, policy: str, batches: Sequence[list[int]]) -> _Row:
    seconds: list[float | None] = []
    bound = tokens = sharded = micro_batches = 0.0
    for step, lengths in enumerate(batches):
        try:
            plan = engine.plan(step, lengths, policy=policy)
        except SkrullError:
            seconds.append(None)
            continue
        seconds.append(plan.figures.predicted_seconds)
        bound += plan.figures.lower_bound_seconds
        tokens += float(plan.lengths.sum())
        sharded += plan.figures.sharded_token_count
        micro_batches += plan.figures.micro_batch_count
    made = [value for value in seconds if value is not None]
    return _Row(
        policy,
        len(made),
        len(batches),
        tuple(seconds),
        sum(made) / len(made) * 1e3 if made else 0.0,
        sum(made) / bound - 1 if bound > 0 else 0.0,
        sharded / tokens if tokens else 0.0,
        micro_batches / len(made) if made else 0.0,
    )


def _speed_up(row: _Row, base: _Row) -> float | None:
    """Over the batches that both plan; None if there is none."""
    both = [
        (ours, theirs)
        for ours, theirs in zip(row.seconds, base.seconds, strict=True)
        if ours is not None and theirs is not None
    ]
    ours = sum(pair[0] for pair in both)
    return sum(pair[1] for pair in both) / ours if ours > 0 else None


def _as_json(row: _Row, base: _Row) -> dict[str, Any]:
    return {
        "policy": row.policy,
        "batches": row.batches,
        "planned": row.planned,
        "mean_step_seconds": row.mean_ms / 1e3,
        "speed_up": _speed_up(row, base),
        "gap": row.gap,
        "sharded_token_share": row.sharded,
        "mean_micro_batches": row.micro_batches,
    }


def _as_text(rows: Sequence[_Row], base: _Row) -> str:
    lines = [
        f"{'policy':<24}{'planned':>9}{'step':>13}{'speed-up':>10}{'gap':>9}"
        f"{'sharded':>10}{'micro-batches':>15}"
    ]
    for row in rows:
        speed_up = _speed_up(row, base)
        times = f"{speed_up:.2f} x" if speed_up is not None else "-"
        lines.append(
            f"{row.policy:<24}{f'{row.planned}/{row.batches}':>9}"
            f"{row.mean_ms:>10.3f} ms{times:>10}{row.gap:>9.2%}{row.sharded:>10.2%}"
            f"{row.micro_batches:>15.1f}"
        )
    return "\n".join(lines)
