"""The training of training.py on eight ranks, with plans from a daemon."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import tempfile
import time
from typing import Any

import forked_ranks
import plain_rows
import skrull
import torch
import torch.distributed as dist
import training
from skrull.integrations.data_parallel import gradient_sync
from skrull.integrations.transformers import model_inputs, session_of, use_skrull
from skrull.torch import token_weighted_loss


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run; `kill` = (step, pid): rank 0 kills that process before that
    step, and the engines plan on their own from then on."""

    name: str  # of the job
    address: str
    job_text: str
    steps: int
    dtype: torch.dtype = torch.float64
    kill: tuple[int, int] | None = None


@dataclasses.dataclass
class RankHistory:
    """What one rank saw; lists have an entry a step."""

    training: training.History  # its losses are those of all ranks
    digests: list[str]
    from_fallback: list[bool]
    degrees: list[list[int]]  # of the segments on this rank
    rows: list[list[int]]  # of each micro-batch


def train(run: Run, data: list[dict[str, Any]]) -> list[RankHistory]:
    """The run, as each rank saw it."""
    with tempfile.TemporaryDirectory() as folder:
        return forked_ranks.run(
            training.WORLD_SIZE, _train, run, data, folder, timeout_seconds=300.0
        )


def _train(
    rank: int, run: Run, data: list[dict[str, Any]], folder: str
) -> RankHistory:
    with (
        forked_ranks.process_group(rank, training.WORLD_SIZE, folder),
        skrull.connect(
            run.address, job=run.name, spec=skrull.Job.from_text(run.job_text)
        ) as engine,
    ):
        model = training.new_model(run.dtype, "eager")
        use_skrull(model)
        with session_of(model, engine, rank, comm="host") as session:
            return _Trainer(rank, run, data, model, session).run()


class _Trainer:
    def __init__(self, rank, run, data, model, session):
        self.rank = rank
        self.runn = run
        self.data = data
        self.model = model
        self.session = session
        self.ddp = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = training.new_optimizer(model)

    def run(self):
        h = RankHistory(None, [], [], [], [])
        losses = []
        begin = time.perf_counter()
        B = training.BATCH_SIZE
        for step in range(self.runn.steps):
            samples = self.data[step * B : step * B + B]
            plan = self.session.engine.plan(step, [len(s["labels"]) for s in samples])
            share = plan.rank_plan(self.rank)
            self.session.prepare(share)
            n = plain_rows.label_count(samples)
            rows = plain_rows.rows_of(share, samples)
            total = torch.zeros((), dtype=torch.float64)
            for i, batch in enumerate(rows):
                with gradient_sync(self.ddp, when=i + 1 == len(rows)):
                    inputs, labels = model_inputs(batch)
                    loss = token_weighted_loss(
                        self.ddp(**inputs).logits, labels, n,
                        world_scale=training.WORLD_SIZE,
                    )
                    loss.backward()
                total += loss.detach() / training.WORLD_SIZE
            dist.all_reduce(total)
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(total.item())
            h.digests.append(plan.digest)
            h.from_fallback.append(plan.from_fallback)
            h.degrees.append([s.degree for m in share.micro_batches for s in m.segments])
            h.rows.append([m.rows for m in share.micro_batches])
        seconds = time.perf_counter() - begin
        h.training = training.History(
            losses,
            {n: p.detach() for n, p in self.model.named_parameters()},
            seconds,
        )
        return h
