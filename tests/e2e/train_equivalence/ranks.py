"""The training of training.py on eight ranks, with plans from a daemon."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import time
from typing import Any

import forked_ranks
import skrull
import torch
import torch.distributed as dist
import training
from skrull.integrations.data_parallel import gradient_sync
from skrull.integrations.transformers import model_inputs, session_of, use_skrull
from skrull.torch import SkrullDataLoader, token_weighted_loss


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    `oom` = (step, rank): there, that rank runs out of memory once, in the backward
    pass of its last micro-batch. `kill` = (step, pid): rank 0 kills that process
    before it, and the engines plan on their own from then on.
    """

    name: str  # of the job
    address: str
    job_text: str
    steps: int
    dtype: torch.dtype = torch.float64
    oom: tuple[int, int] | None = None
    kill: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class RankHistory:
    """What one rank saw. Lists have an entry a step."""

    training: training.History  # its losses are of all ranks
    digests: list[str]
    attempts: list[int]
    from_fallback: list[bool]
    degrees: list[list[int]]  # of the segments on this rank
    rows: list[list[int]]  # of each micro-batch


def train(run: Run, data: list[dict[str, Any]]) -> list[RankHistory]:
    """The run, as each rank saw it."""
    return forked_ranks.run(
        training.WORLD_SIZE, _train_rank, run, data, timeout_seconds=240.0
    )
