"""Two training steps of the small model: in one process, and what a rank needs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import reference
import skrull
import torch.distributed as dist
import training

import plain_rows
import torch

STEPS = 2
_EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "deploy/examples/lengths"

LENGTHS = training.lengths(_EXAMPLES, STEPS)
SAMPLES = training.samples(LENGTHS)


def expected(dtype: torch.dtype) -> training.History:
    """Losses and final weights of one process."""
    return reference.train(SAMPLES, STEPS, dtype)


def engine(scope: str = "GROUP") -> skrull.LocalEngine:
    """Plans for the eight ranks of training.py, in process."""
    return skrull.local(skrull.Job.from_text(training.job_text(scope)))


def shares(planner: skrull.Engine, rank: int) -> list[skrull.RankPlan]:
    """The rank's share of each step."""
    size = training.BATCH_SIZE
    return [
        planner.plan(step, LENGTHS[step * size : (step + 1) * size]).rank_plan(rank)
        for step in range(STEPS)
    ]


def batch(step: int) -> list[dict[str, Any]]:
    """The samples of a step's global batch."""
    return SAMPLES[step * training.BATCH_SIZE : (step + 1) * training.BATCH_SIZE]


def train(
    session: skrull.torch.Session,
    shares_of_rank: Sequence[skrull.RankPlan],
    train_step: Callable[[list[plain_rows.Rows], int], torch.Tensor],
) -> list[float]:
    """Runs train_step(rows of each micro-batch, labels of the step), which gives
    the rank's summed loss times the ranks; the losses of the global batches."""
    losses = []
    for step, share in enumerate(shares_of_rank):
        session.prepare(share)
        samples = batch(step)
        total = train_step(
            plain_rows.rows_of(share, samples), plain_rows.label_count(samples)
        )
        total = total.double() / training.WORLD_SIZE
        dist.all_reduce(total)
        losses.append(total.item())
    return losses
