"""The training of training.py on eight ranks, with plans from a daemon."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import tempfile
import time
from typing import Any

import forked_ranks
import skrull
import torch
import torch.distributed as dist
from daemon import Daemon
from skrull.integrations.data_parallel import average_gradients
from skrull.integrations.transformers import model_inputs, session_of, use_skrull
from skrull.torch import (
    Session,
    SkrullDataLoader,
    StepReporter,
    TrainBatch,
    global_label_count,
    run_step,
    token_weighted_loss,
)

import training


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    `out_of_memory` = (step, rank): in the first attempt of that step, that rank
    runs out of memory before the last backward pass. `kill` = (step, pid): before
    that step rank 0 kills that process, the daemon. It starts another one at once
    at the same address, on the store `store`, if there is one. `fallback`: engines
    plan on their own while the daemon is away.
    """

    job: str
    address: str
    job_text: str
    steps: int
    dtype: torch.dtype = torch.float64
    out_of_memory: tuple[int, int] | None = None
    kill: tuple[int, int] | None = None
    store: str = ""
    fallback: bool = False


@dataclasses.dataclass
class RankHistory:
    """What one rank saw; lists have an entry a step."""

    losses: list[float] = dataclasses.field(default_factory=list)  # of all ranks
    attempts: list[int] = dataclasses.field(default_factory=list)
    digests: list[str] = dataclasses.field(default_factory=list)
    degrees: list[list[int]] = dataclasses.field(default_factory=list)  # of segments
    rows: list[list[int]] = dataclasses.field(default_factory=list)  # of micro-batches
    # Of the plans in the order that they came, some steps ahead of the training.
    from_fallback: list[bool] = dataclasses.field(default_factory=list)
    weights: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0  # of the steps, without setting up


def train(run: Run, data: list[dict[str, Any]]) -> list[RankHistory]:
    """The run, as each rank saw it."""
    with tempfile.TemporaryDirectory() as folder:
        return forked_ranks.run(
            training.WORLD_SIZE, _train, run, data, folder, timeout_seconds=300.0
        )


def _train(rank: int, run: Run, data: list[dict[str, Any]], folder: str) -> RankHistory:
    with (
        forked_ranks.process_group(rank, training.WORLD_SIZE, folder),
        skrull.connect(
            run.address,
            job=run.job,
            spec=skrull.Job.from_text(run.job_text),
            fallback=run.fallback,
            unreachable_after=1.0 if run.fallback else 10.0,
        ) as engine,
    ):
        model = training.new_model(run.dtype, "eager")
        use_skrull(model)
        with session_of(model, engine, rank) as session:
            return _Trainer(run, data, model, session).train()


class _Trainer:
    def __init__(
        self,
        run: Run,
        data: list[dict[str, Any]],
        model: torch.nn.Module,
        session: Session,
    ) -> None:
        self._run = run
        self._model = model
        self._optimizer = training.new_optimizer(model)
        self._session = session
        self._reporter = StepReporter(session)
        self._history = RankHistory()
        self._record_plans(session.engine)
        self._loader = SkrullDataLoader(
            data[: run.steps * training.BATCH_SIZE],
            session.engine,
            session.rank,
            batch_size=training.BATCH_SIZE,
            shuffle=False,
        )

    def train(self) -> RankHistory:
        with contextlib.ExitStack() as self._stack:
            self._train_steps()
        self._history.weights = {
            name: value.detach() for name, value in self._model.named_parameters()
        }
        return self._history

    def _train_steps(self) -> None:
        begin = time.perf_counter()
        for batch in self._loader:
            if self._run.kill and batch.step == self._run.kill[0]:
                self._kill_daemon(self._run.kill[1])
            self._train_step(batch)
        self._history.seconds = time.perf_counter() - begin
        self._reporter.close()
        dist.barrier()  # a daemon of rank 0 ends with it

    def _train_step(self, batch: TrainBatch) -> None:
        # The labels of a batch are the same in every attempt.
        count = global_label_count(batch.labels, world_size=training.WORLD_SIZE)
        loss = run_step(
            self._session,
            batch,
            lambda attempt: self._forward_and_backward(attempt, count),
            drop_gradients=self._optimizer.zero_grad,
            reporter=self._reporter,
        )
        average_gradients(self._model)
        self._optimizer.step()
        self._optimizer.zero_grad()
        dist.all_reduce(loss)
        self._history.losses.append(loss.item() / training.WORLD_SIZE)

    def _forward_and_backward(self, batch: TrainBatch, count: int) -> torch.Tensor:
        share = batch.rank_plan
        total = torch.zeros((), dtype=torch.float64)
        for part in batch:
            inputs, labels = model_inputs(part)
            loss = token_weighted_loss(
                self._model(**inputs).logits,
                labels,
                count,
                world_scale=training.WORLD_SIZE,
            )
            last = part.micro_batch.index + 1 == len(batch)
            here = (batch.step, share.rank) == self._run.out_of_memory
            if here and last and share.attempt == 0:
                raise torch.OutOfMemoryError("injected")
            loss.backward()
            total += loss.detach()
        self._history.attempts.append(share.attempt)
        self._history.digests.append(share.digest)
        self._history.rows.append([part.rows for part in batch])
        self._history.degrees.append(
            [s.degree for part in batch for s in part.micro_batch.segments]
        )
        return total

    def _kill_daemon(self, pid: int) -> None:
        dist.barrier()
        if self._session.rank == 0:
            os.kill(pid, signal.SIGKILL)
        if self._session.rank == 0 and self._run.store:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
            self._stack.enter_context(
                Daemon(pathlib.Path(folder), self._run.store, self._run.address)
            )

    def _record_plans(self, engine: skrull.Engine) -> None:
        take = engine.next

        def record(timeout: float | None = None) -> skrull.Plan:
            plan = take(timeout)
            self._history.from_fallback.append(plan.from_fallback)
            return plan

        engine.next = record  # type: ignore[method-assign]
