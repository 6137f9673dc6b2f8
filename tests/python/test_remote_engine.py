"""Against a real daemon."""

from __future__ import annotations

import concurrent.futures
import pathlib
import threading
import time

import pytest
import skrull

from conftest import LENGTHS
from daemon import Daemon


def test_a_daemon_gives_the_plans_of_this_process(
    daemon: Daemon, job: skrull.Job
) -> None:
    local = skrull.local(job, name="same")
    with skrull.connect(daemon.address, job="same", spec=job) as engine:
        assert isinstance(engine, skrull.RemoteEngine)
        engine.check_health()
        assert (engine.name, engine.generation, engine.world_size) == ("same", 1, 8)
        assert engine.job == job
        for step in range(5):
            plan = engine.plan(step, LENGTHS[step:])
            assert plan.to_bytes() == local.plan(step, LENGTHS[step:]).to_bytes()
            assert plan.committed
            assert plan.planning_seconds is not None
        again = engine.plan(0, LENGTHS)
        assert again.planning_seconds is None  # committed earlier
        share = engine.rank_plan(3, rank=5)
        assert share.digest == local.plan(3, LENGTHS[3:]).digest
        want = local.plan(3, LENGTHS[3:]).rank_plan(5)
        assert [m.segments for m in share.micro_batches] == [
            m.segments for m in want.micro_batches
        ]
        assert (share.blocks, share.batch_token_count) == (
            want.blocks,
            want.batch_token_count,
        )


def test_jobs_are_joined_created_and_refused(daemon: Daemon, job: skrull.Job) -> None:
    with pytest.raises(skrull.NotFoundError) as missing:
        skrull.connect(daemon.address, job="nobody")
    assert missing.value.reason == "JOB_NOT_FOUND"
    assert missing.value.request_id
    assert missing.value.request_id in str(missing.value)
    with skrull.connect(daemon.address, job="joined", spec=job) as first:
        with skrull.connect(daemon.address, job="joined") as second:
            assert second.job.world_size == job.world_size
            assert second.plan(0, LENGTHS) == first.plan(0, LENGTHS)
        other = skrull.Job.from_text(job.text.replace("600", "700"))
        with pytest.raises(skrull.AlreadyExistsError):
            skrull.connect(daemon.address, job="joined", spec=other)
        with pytest.raises(skrull.FailedPreconditionError, match="generation 1"):
            skrull.connect(daemon.address, job="joined", generation=7)
        # A new generation replaces it, and the old one's engine is refused.
        newer = skrull.connect(daemon.address, job="joined", spec=other, generation=2)
        assert newer.generation == 2
        with pytest.raises(skrull.FailedPreconditionError) as old:
            first.plan(1, LENGTHS)
        assert old.value.reason == "GENERATION_MISMATCH"
        newer.close()


def test_another_batch_for_a_committed_step_is_refused(
    daemon: Daemon, job: skrull.Job
) -> None:
    with skrull.connect(daemon.address, job="conflict", spec=job) as engine:
        engine.plan(0, LENGTHS)
        with pytest.raises(skrull.FailedPreconditionError) as conflict:
            engine.plan(0, LENGTHS[1:])
        assert conflict.value.reason == "PLAN_CONFLICT"
        assert engine.plan(0, LENGTHS[1:], attempt=1).attempt == 1


def test_plans_stream_in_order_past_a_refused_batch(
    daemon: Daemon, job: skrull.Job
) -> None:
    with skrull.connect(
        daemon.address, job="stream", spec=job, prefetch_depth=4
    ) as engine:
        assert engine.pending == 0
        with pytest.raises(skrull.FailedPreconditionError):
            engine.next(timeout=1)
        for step, lengths in enumerate([LENGTHS, [2401], LENGTHS[2:], [7]]):
            engine.submit(step, lengths)
        assert engine.pending == 4
        with pytest.raises(skrull.ResourceExhaustedError):
            engine.submit(4, [5])
        assert engine.next() == engine.plan(0, LENGTHS)
        with pytest.raises(skrull.FailedPreconditionError, match=r"^step 1: ") as no:
            engine.next()
        assert no.value.reason == "SEQUENCE_TOO_LONG"
        assert [engine.next().step, engine.next().step] == [2, 3]
        assert engine.pending == 0


def test_ranks_meet_and_get_what_rank_0_offers(daemon: Daemon, job: skrull.Job) -> None:
    offer = bytes(range(256))
    with skrull.connect(daemon.address, job="meet", spec=job) as engine:
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            met = list(
                threads.map(
                    lambda rank: engine.rendezvous(
                        "start", rank, 8, offer if rank == 0 else b""
                    ),
                    range(8),
                )
            )
        assert met == [offer] * 8


def test_a_rank_out_of_memory_gets_a_smaller_attempt(
    daemon: Daemon, job: skrull.Job
) -> None:
    with skrull.connect(daemon.address, job="oom", spec=job) as engine:
        lengths = [600] * 8  # one on each rank
        plan = engine.plan(0, lengths)
        ok = engine.report(skrull.StepReport(0, 0, 0, step_seconds=0.5))
        assert ok.attempt == 0
        answer = engine.report(
            skrull.StepReport(0, 0, 3, outcome="oom", peak_bytes=1 << 30)
        )
        assert answer.attempt == 1
        assert answer.calibration_epoch == engine.calibration_epoch == 1
        smaller = engine.plan(0, lengths, attempt=answer.attempt)
        assert smaller.figures.max_rank_tokens < plan.figures.max_rank_tokens == 600
        # The report of a rank that did not run out of memory is told, too.
        assert engine.report(skrull.StepReport(0, 0, 1)).attempt == 1

        def run_out(attempts: int) -> None:
            attempt = 1
            for _ in range(attempts):
                report = skrull.StepReport(0, attempt, 3, outcome="oom")
                attempt = engine.report(report).attempt

        with pytest.raises(skrull.FailedPreconditionError) as exhausted:
            run_out(20)
        assert exhausted.value.reason == "ATTEMPTS_EXHAUSTED"


def test_options_out_of_range_are_named() -> None:
    for changes, field in (
        ({"timeout": 0.0}, "timeout"),
        ({"unreachable_after": -1.0}, "unreachable_after"),
        ({"prefetch_depth": 0}, "prefetch_depth"),
        ({"token": "a", "token_file": "b"}, "token"),
        ({"tls_cert": "x"}, "tls_"),
    ):
        with pytest.raises(skrull.InvalidArgumentError, match=field):
            skrull.connect("127.0.0.1:1", job="x", **changes)  # type: ignore[arg-type]


def test_nobody_listening_is_said_soon() -> None:
    with pytest.raises(ConnectionError) as caught:
        skrull.connect("127.0.0.1:1", job="x", unreachable_after=0)
    assert isinstance(caught.value, skrull.UnavailableError)


def test_a_deadline_is_kept(daemon: Daemon, job: skrull.Job) -> None:
    with skrull.connect(daemon.address, job="late", spec=job, timeout=0.2) as engine:
        # Nobody asks for the plan of step 99.
        with pytest.raises(skrull.DeadlineExceededError):
            engine.rank_plan(99, rank=0)


def test_other_threads_run_while_a_call_waits(daemon: Daemon, job: skrull.Job) -> None:
    """The GIL is not held: a second call ends while the first one waits for it."""
    with skrull.connect(daemon.address, job="gil", spec=job) as engine:
        found: list[skrull.RankPlan] = []
        waiter = threading.Thread(target=lambda: found.append(engine.rank_plan(7, 1)))
        waiter.start()
        # Had the waiter the GIL, this thread would not get here to end its wait.
        plan = engine.plan(7, LENGTHS)
        waiter.join()
        assert found[0].digest == plan.digest


def test_a_closed_engine_says_so(daemon: Daemon, job: skrull.Job) -> None:
    engine = skrull.connect(daemon.address, job="closed", spec=job)
    engine.submit(0, LENGTHS)
    engine.close()
    engine.close()
    for call in (
        lambda: engine.plan(0, LENGTHS),
        lambda: engine.submit(1, LENGTHS),
        lambda: engine.next(),
    ):
        with pytest.raises(skrull.FailedPreconditionError, match="closed"):
            call()


def test_closing_does_not_wait_for_nor_break_a_call(
    daemon: Daemon, job: skrull.Job
) -> None:
    engine = skrull.connect(daemon.address, job="leave", spec=job)
    errors: list[BaseException] = []
    inside = threading.Event()

    def wait() -> None:
        inside.set()
        try:
            engine.rank_plan(5, 0)  # until another rank asks for step 5
        except BaseException as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    inside.wait()
    # Let it get from the event into the call; the outcome is the same if it does
    # not, but for the error.
    time.sleep(0.1)
    engine.close()
    with skrull.connect(daemon.address, job="leave") as other:
        other.plan(5, LENGTHS)
    waiter.join()
    assert not errors or "closed" in str(errors[0])


def test_a_stream_survives_a_daemon_that_is_killed(
    tmp_path: pathlib.Path, job: skrull.Job
) -> None:
    store = f"sqlite:{tmp_path / 'plans.db'}"
    first = Daemon(tmp_path, store)
    with skrull.connect(
        first.address, job="restart", spec=job, unreachable_after=60, timeout=60
    ) as engine:
        engine.submit(0, LENGTHS)
        before = engine.next()
        first.kill()
        engine.submit(1, LENGTHS)
        with Daemon(tmp_path, store, first.address):
            assert engine.next().step == 1
            assert engine.plan(0, LENGTHS) == before


def test_a_killed_daemon_is_an_error_and_no_hang(
    tmp_path: pathlib.Path, job: skrull.Job
) -> None:
    with Daemon(tmp_path) as daemon:
        engine = skrull.connect(
            daemon.address, job="gone", spec=job, unreachable_after=0.2
        )
        engine.submit(0, LENGTHS)
        engine.next()
    with pytest.raises(skrull.UnavailableError):
        engine.plan(1, LENGTHS)
    engine.submit(1, LENGTHS)
    with pytest.raises(skrull.UnavailableError):
        engine.next(timeout=5)
    assert engine.pending == 1
    engine.close()
