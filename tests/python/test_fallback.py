"""Plans of this process while the daemon is away."""

from __future__ import annotations

import os
import pathlib
import pickle
import signal

import pytest
import skrull

from conftest import LENGTHS
from daemon import Daemon


def connect(daemon: Daemon, job: skrull.Job) -> skrull.RemoteEngine:
    return skrull.connect(
        daemon.address, job="run7", spec=job, fallback=True, unreachable_after=0.2
    )


def test_ranks_of_a_killed_daemon_go_on_with_its_plans(
    tmp_path: pathlib.Path, job: skrull.Job
) -> None:
    """Some ranks have asked before the daemon dies, the others after."""
    with Daemon(tmp_path) as daemon:
        ranks = [connect(daemon, job) for _ in range(3)]
        first = ranks[0].plan(0, LENGTHS)
        os.kill(daemon.process.pid, signal.SIGKILL)
        daemon.process.wait()
    others = [rank.plan(0, LENGTHS) for rank in ranks[1:]]
    assert not first.from_fallback
    assert first.fallback_reason == ""
    for other in others:
        assert other.from_fallback
        assert not other.committed
        assert other.fallback_reason.startswith("UNAVAILABLE: ")
        assert other.to_bytes() == first.to_bytes()
        assert pickle.loads(pickle.dumps(other)).from_fallback
    for step in range(1, 4):
        digests = {rank.plan(step, LENGTHS[step:]).digest for rank in ranks}
        assert len(digests) == 1
    for rank in ranks:
        rank.close()


def test_plans_ahead_fall_back_too(tmp_path: pathlib.Path, job: skrull.Job) -> None:
    local = skrull.local(job, name="run7")
    with Daemon(tmp_path) as daemon:
        engine = connect(daemon, job)
        engine.submit(0, LENGTHS)
        assert engine.pending == 1
        assert not engine.next().from_fallback
    for step in (1, 2):
        engine.submit(step, LENGTHS)
    for step in (1, 2):
        plan = engine.next(timeout=60)
        assert plan.from_fallback
        assert plan == local.plan(step, LENGTHS)
    engine.close()
    with pytest.raises(skrull.FailedPreconditionError, match="closed"):
        engine.plan(3, LENGTHS)


def test_refusals_are_no_reason_to_plan_here(daemon: Daemon, job: skrull.Job) -> None:
    engine = connect(daemon, job)
    engine.plan(0, LENGTHS)
    with pytest.raises(skrull.FailedPreconditionError) as conflict:
        engine.plan(0, LENGTHS[1:])
    assert conflict.value.reason == "PLAN_CONFLICT"
    with pytest.raises(skrull.InvalidArgumentError):
        engine.plan(1, [])
    with pytest.raises(skrull.FailedPreconditionError, match="rank_plan"):
        engine.rank_plan(0, 1)
    engine.close()


def test_an_epoch_learnt_before_is_the_epoch_of_plans_made_here(
    tmp_path: pathlib.Path, job: skrull.Job
) -> None:
    lengths = [600] * 8
    with Daemon(tmp_path) as daemon:
        engine = connect(daemon, job)
        engine.plan(0, lengths)
        answer = engine.report(skrull.StepReport(0, 0, 3, outcome="oom"))
        assert (answer.attempt, answer.calibration_epoch) == (1, 1)
        at_daemon = engine.plan(0, lengths, attempt=1)
    plan = engine.plan(1, lengths)
    assert plan.from_fallback
    assert plan.calibration_epoch == engine.calibration_epoch == 1
    assert plan.figures.max_rank_tokens == at_daemon.figures.max_rank_tokens < 600
    with pytest.raises(skrull.UnavailableError):
        engine.report(skrull.StepReport(1, 0, 3, outcome="oom"))
    engine.close()


def test_a_daemon_must_be_there_to_connect(job: skrull.Job) -> None:
    with pytest.raises(skrull.UnavailableError):
        skrull.connect(
            "127.0.0.1:1", job="run7", spec=job, fallback=True, unreachable_after=0
        )
