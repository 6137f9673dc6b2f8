"""A rank that runs out of memory costs an attempt, not the training."""

from __future__ import annotations

import copy
import logging
import threading

import pool
import pytest
import skrull
from model import VOCABULARY, Model, single_device_loss
from samples import Samples
from skrull.torch import (
    InProcessPeers,
    Session,
    SkrullDataLoader,
    StepReporter,
    TrainBatch,
    run_step,
    token_weighted_loss,
)

import torch
from daemon import Daemon

LENGTHS = [40, 9, 3, 30, 17, 5, 26, 12, 8, 33, 2, 14, 21, 6, 29, 10, 19, 1]
DATA = Samples(LENGTHS, vocabulary=VOCABULARY)
BATCH_SIZE = 6
STEPS = len(LENGTHS) // BATCH_SIZE
RANKS = 2
STEP_THAT_FAILS = 1


class SumOverRanks:
    """Adds tensors over threads, as an all-reduce does over processes."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks, timeout=60)
        self._parts: dict[int, list[torch.Tensor]] = {}

    def __call__(self, rank: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self._parts[rank] = tensors
        self._barrier.wait()
        total = [sum(each) for each in zip(*self._parts.values(), strict=True)]
        self._barrier.wait()
        return total


class Trainer:
    """One rank's training loop. Losses and gradients are summed over ranks."""

    def __init__(
        self, engine: skrull.Engine, rank: int, model: Model, total: SumOverRanks
    ) -> None:
        self.rank = rank
        self.total = total
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.loader = SkrullDataLoader(
            DATA, engine, rank, batch_size=BATCH_SIZE, seed=4
        )
        self.attempts: list[int] = []
        self.losses: list[float] = []

    def backward(self, batch: TrainBatch, fail: bool) -> torch.Tensor:
        """Forward and backward passes; rank 1 fails in the middle if told to."""
        count = sum(LENGTHS[i] - 1 for i in batch.indices)
        sum_of_losses = torch.zeros((), dtype=torch.float64)
        for part in batch:
            logits = self.model(
                part.input_ids[0], part.position_ids[0], part.micro_batch
            )
            loss = token_weighted_loss(logits, part.labels[0], count, world_scale=1)
            loss.backward()
            sum_of_losses += loss.detach()
            if fail and self.rank == 1:
                raise torch.cuda.OutOfMemoryError("injected")
        return sum_of_losses

    def train(self, session: Session, reporter: StepReporter) -> None:
        for batch in self.loader:
            tries: list[int] = []

            def run(share: TrainBatch, tries: list[int] = tries) -> torch.Tensor:
                tries.append(share.rank_plan.attempt)
                fail = share.step == STEP_THAT_FAILS and len(tries) == 1
                return self.backward(share, fail)

            loss = run_step(
                session,
                batch,
                run,
                drop_gradients=self.optimizer.zero_grad,
                reporter=reporter,
            )
            self.attempts.append(tries[-1])
            gradients = [p.grad for p in self.model.parameters()]
            sums = self.total(self.rank, [loss, *gradients])
            self.losses.append(sums[0].item())
            for p, gradient in zip(self.model.parameters(), sums[1:], strict=True):
                p.grad = gradient.clone()
            self.optimizer.step()
            self.optimizer.zero_grad()


def _single_device(model: Model, loader: SkrullDataLoader) -> tuple[list[float], Model]:
    """Losses and weights of the same batches on one device, densely."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for step in range(STEPS):
        batch = [
            torch.as_tensor(DATA[int(i)]["input_ids"]).long()
            for i in loader.sampler.order.indices(step)
        ]
        loss = single_device_loss(
            model, [(ids, torch.cat([ids[1:], torch.tensor([-100])])) for ids in batch]
        )
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, model


def test_the_loss_curve_goes_on_as_if_nothing_had_happened(daemon: Daemon) -> None:
    job = pool.make_job(cp=RANKS, bucket=48)
    model = Model()
    peers, total = InProcessPeers(), SumOverRanks(RANKS)

    def run(rank: int) -> Trainer:
        with (
            skrull.connect(daemon.address, job="retry", spec=job) as engine,
            pool.open_session(engine, rank, peers) as session,
        ):
            reporter = StepReporter(session)
            trainer = Trainer(engine, rank, model, total)
            trainer.train(session, reporter)
            reporter.close()
            assert reporter.last_answer is not None
            assert reporter.last_answer.calibration_epoch == 1, "the daemon learnt"
            return trainer

    trainers = pool.on_ranks(RANKS, run)
    losses, alone = _single_device(model, trainers[0].loader)
    for trainer in trainers:
        assert trainer.attempts == [0, 1, 0]
        assert trainer.losses == pytest.approx(losses, rel=1e-10)
        for ours, wanted in zip(
            trainer.model.parameters(), alone.parameters(), strict=True
        ):
            torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-12)


def _one_step(
    engine: skrull.Engine, rank: int, peers: InProcessPeers, error: Exception
) -> None:
    """Rank 1 raises the error inside run_step."""
    loader = SkrullDataLoader(DATA, engine, rank, batch_size=BATCH_SIZE)
    batch = next(iter(loader))

    def run(_: TrainBatch) -> None:
        if rank == 1:
            raise error

    with pool.open_session(engine, rank, peers) as session:
        run_step(session, batch, run, drop_gradients=lambda: None)


def test_without_a_daemon_the_failure_comes_out_on_every_rank() -> None:
    engines = [skrull.local(pool.make_job(cp=RANKS, bucket=48)) for _ in range(RANKS)]
    peers = InProcessPeers()

    def run(rank: int) -> None:
        kind = skrull.AbortedError if rank == 0 else torch.cuda.OutOfMemoryError
        said = "rank 1: step 0 has no further attempt" if rank == 0 else "injected"
        with pytest.raises(kind, match=said):
            _one_step(
                engines[rank], rank, peers, torch.cuda.OutOfMemoryError("injected")
            )

    pool.on_ranks(RANKS, run)


def test_other_failures_are_not_retried() -> None:
    engines = [skrull.local(pool.make_job(cp=RANKS, bucket=48)) for _ in range(RANKS)]
    peers = InProcessPeers()

    def run(rank: int) -> None:
        kind = skrull.AbortedError if rank == 0 else ZeroDivisionError
        with pytest.raises(kind, match="a bug"):
            _one_step(engines[rank], rank, peers, ZeroDivisionError("a bug"))

    pool.on_ranks(RANKS, run)


def test_when_there_is_no_smaller_plan_the_failure_comes_out(daemon: Daemon) -> None:
    """The longest sequence needs all of the bucket."""
    job = pool.make_job(cp=RANKS, bucket=20)  # 40 tokens over two ranks
    peers = InProcessPeers()

    def run(rank: int) -> None:
        kind = skrull.AbortedError if rank == 0 else MemoryError
        with (
            skrull.connect(
                daemon.address, job="no-way-out", spec=job, timeout=5
            ) as engine,
            pytest.raises(kind),
        ):
            _one_step(engine, rank, peers, MemoryError("injected"))

    pool.on_ranks(RANKS, run)


def test_reports_hold_what_was_measured(caplog: pytest.LogCaptureFixture) -> None:
    engine = skrull.local(pool.make_job(bucket=64))
    reports: list[skrull.StepReport] = []

    def report(given: skrull.StepReport) -> skrull.ReportAnswer:
        reports.append(given)
        if given.step == 8:
            raise skrull.UnavailableError("nobody is there")
        return skrull.ReportAnswer(given.attempt, 5)

    engine.report = report  # type: ignore[method-assign]
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        reporter = StepReporter(session)
        with reporter.measure():
            session.attention_seconds += 1e-9
        with caplog.at_level(logging.WARNING):
            for step in range(7, 30):
                reporter.post(step, 2)
            reporter.close()
            reporter.close()
        assert reporter.send(30, 3, "failed").calibration_epoch == 5
    assert [r.step for r in reports] == list(range(7, 31))
    assert "step 8 is lost: nobody is there" in caplog.text
    assert (reports[0].rank, reports[0].attempt, reports[0].outcome) == (0, 2, "ok")
    assert reports[-1].outcome == "failed"
    for one in reports:
        assert one.step_seconds is not None
        assert one.step_seconds > 0
        assert one.attention_seconds == pytest.approx(1e-9)
        assert one.peak_bytes == 0


def test_a_rank_that_is_set_free_early_waits_for_the_next_attempt(
    daemon: Daemon,
) -> None:
    """The executor runs out itself: it aborts before its rank reports."""
    job = pool.make_job(cp=RANKS, bucket=48)
    peers = InProcessPeers()
    reported = threading.Event()

    def run(rank: int) -> list[int]:
        with (
            skrull.connect(daemon.address, job="early", spec=job, timeout=10) as engine,
            pool.open_session(engine, rank, peers) as session,
        ):
            loader = SkrullDataLoader(
                DATA,
                engine,
                rank,
                batch_size=BATCH_SIZE,
                seed=4,
                start_step=STEP_THAT_FAILS,
            )
            attempts: list[int] = []
            report = engine.report

            def report_in_order(given: skrull.StepReport) -> skrull.ReportAnswer:
                if rank == 1:
                    assert reported.wait(60)
                answer = report(given)
                if rank == 0 and given.outcome == "failed":
                    assert answer.attempt == 0, "it is too late for this test"
                    reported.set()
                return answer

            engine.report = report_in_order  # type: ignore[method-assign]

            def work(batch: TrainBatch) -> None:
                attempts.append(batch.rank_plan.attempt)
                if rank == 1 and len(attempts) == 1:
                    session.abort("OUT_OF_MEMORY: injected")
                    raise skrull.OutOfMemoryError("injected")

            run_step(session, next(iter(loader)), work, drop_gradients=lambda: None)
            return attempts

    assert pool.on_ranks(RANKS, run) == [[0, 1], [0, 1]]
