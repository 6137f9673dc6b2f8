"""What sessions refuse, how they fail, and how they end."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import subprocess
import sys
import threading

import pool
import pytest
import skrull
from skrull.torch import InProcessPeers, Session, attention

import torch
from daemon import Daemon


def _qkv(rows: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    q = torch.zeros(rows, pool.Q_HEADS, pool.HEAD_DIM, dtype=dtype)
    return q, q[:, : pool.KV_HEADS], q[:, : pool.KV_HEADS]


@pytest.fixture
def engine() -> skrull.LocalEngine:
    return skrull.local(pool.make_job(cp=2, bucket=27))


def test_another_plan_on_one_rank_is_refused_on_every_rank(
    engine: skrull.LocalEngine,
) -> None:
    """Case 35; and the session goes on with the right plan."""
    plans = [engine.plan(0, [45, 5]), engine.plan(1, [45, 5])]
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            with pytest.raises(skrull.DigestMismatchError, match="rank 1 with plan"):
                session.prepare(plans[rank].rank_plan(rank))
            assert session.failure() is None
            assert session.current is None
            step = session.prepare(plans[0].rank_plan(rank))
            attention(*_qkv(step[0].micro_batch.rows), step[0])

    pool.on_ranks(2, run)


def test_a_rank_without_a_plan_fails_all(engine: skrull.LocalEngine) -> None:
    plan = engine.plan(0, [45, 5])
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            session.prepare(plan.rank_plan(0) if rank == 0 else None)

    for error in pool.failures_on_ranks(2, run):
        assert "rank 1" in error.message


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda q, k, v: (q[1:], k, v), "rows"),
        (lambda q, k, v: (q, k.float(), v), "k is float32, not float64"),
        (lambda q, k, v: (q, k, v[None]), r"v: must be \[rows, heads, head_dim\]"),
        (lambda q, k, v: (q.to("meta"), k, v), "q: is on meta"),
        (lambda q, k, v: (q, k.int(), v), "dtype"),
    ],
)
def test_wrong_tensors_on_one_rank_fail_all_at_once(
    engine: skrull.LocalEngine, spoil: object, said: str
) -> None:
    plan = engine.plan(0, [45, 5])
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            step = session.prepare(plan.rank_plan(rank))
            qkv = _qkv(step[0].micro_batch.rows)
            with pytest.raises(skrull.SkrullError) as first:
                # Not through the dispatcher, which would take "meta" elsewhere.
                step.forward(step[0].number, *(spoil(*qkv) if rank == 1 else qkv))
            failed = session.failure()
            assert failed is not None
            with pytest.raises(skrull.SkrullError) as again:
                attention(*qkv, step[0])
            assert again.value.message == failed.message
            raise first.value

    errors = pool.failures_on_ranks(2, run)
    assert isinstance(errors[0], skrull.AbortedError)
    assert "rank 1" in errors[0].message
    with pytest.raises(type(errors[1]), match=said):
        raise errors[1]


def test_an_exception_inside_the_session_frees_the_other_ranks(
    engine: skrull.LocalEngine,
) -> None:
    plan = engine.plan(0, [45, 5])
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            step = session.prepare(plan.rank_plan(rank))
            if rank == 1:
                raise skrull.SkrullError("the model went wrong")
            attention(*_qkv(step[0].micro_batch.rows), step[0])

    errors = pool.failures_on_ranks(2, run)
    assert "the model went wrong" in errors[0].message
    assert isinstance(errors[0], skrull.AbortedError)


def test_restart_after_a_failure(engine: skrull.LocalEngine) -> None:
    lengths = [45, 5]
    plan = engine.plan(0, lengths)
    batch = pool.Batch.random(lengths)
    peers = InProcessPeers()
    prepared = threading.Barrier(2)

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            old = session.prepare(plan.rank_plan(rank))
            prepared.wait(60)  # or the abort would fail another rank's prepare()
            if rank == 0:
                session.abort("a reason")
            with pytest.raises(skrull.AbortedError, match="rank 0: a reason"):
                session.prepare(plan.rank_plan(rank))
            session.restart()
            assert session.current is None
            with pytest.raises(skrull.FailedPreconditionError, match="closed"):
                attention(*_qkv(old[0].micro_batch.rows), old[0])
            for part in session.prepare(plan.rank_plan(rank)):
                pool.check_micro_batch(part.micro_batch, batch)

    pool.on_ranks(2, run)


def test_a_statement_that_differs_is_refused_on_every_rank(
    engine: skrull.LocalEngine,
) -> None:
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            session.agree("step 0 is done")
            with pytest.raises(skrull.DigestMismatchError):
                session.agree(f"rank {rank} is right")
            session.agree("step 0 is done")

    pool.on_ranks(2, run)


def test_a_step_that_is_over_is_told_apart(engine: skrull.LocalEngine) -> None:
    with skrull.local(pool.make_job(bucket=64)) as alone:
        share = alone.plan(0, [6]).rank_plan(0)
        micro_batch = share.micro_batches[0]
        with pytest.raises(skrull.FailedPreconditionError, match="not prepared"):
            attention(*_qkv(6), micro_batch)
        with pool.open_session(alone, 0, InProcessPeers()) as session:
            session.prepare(share)
            attention(*_qkv(6), micro_batch)
            session.prepare(alone.plan(1, [6]).rank_plan(0))
            with pytest.raises(skrull.FailedPreconditionError, match="left behind"):
                attention(*_qkv(6), micro_batch)


def test_a_closed_session_says_so() -> None:
    with skrull.local(pool.make_job(bucket=64)) as alone:
        session = pool.open_session(alone, 0, InProcessPeers())
        step = session.prepare(alone.plan(0, [6]).rank_plan(0))
        session.close()
        session.close()
        with pytest.raises(skrull.FailedPreconditionError, match="closed"):
            attention(*_qkv(6), step[0])
        with pytest.raises(skrull.FailedPreconditionError, match="closed"):
            session.agree("anything")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"q_heads": 3}, "q_heads"),
        ({"kv_heads": 0}, "kv_heads"),
        ({"head_dim": 0}, "head_dim"),
        ({"dtype": torch.int64}, "dtype"),
        ({"device": "meta"}, "device"),
        ({"backend": "abacus"}, "abacus"),
        ({"comm": "pigeon"}, "comm"),
        ({"exchange": "none"}, "exchange"),
        ({"comm": "host", "peers": InProcessPeers()}, "peers"),
        ({"comm": "in_process"}, "peers"),
        ({"comm": "host"}, "rendezvous: 2 ranks need a way"),
        ({"rank": 2}, "rank is 2, not in 0 .. 1"),
    ],
)
def test_wrong_arguments_are_named(
    engine: skrull.LocalEngine, options: dict[str, object], said: str
) -> None:
    given: dict[str, object] = {
        "rank": 0,
        "q_heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "comm": "in_process",
        "peers": None if "comm" in options else InProcessPeers(),
    }
    with pytest.raises(skrull.SkrullError, match=said):
        Session(engine, **{**given, **options})


def test_what_a_rendezvous_raises_comes_out(engine: skrull.LocalEngine) -> None:
    def meet(offer: bytes) -> bytes:
        raise LookupError("nobody is here")

    with pytest.raises(LookupError, match="nobody is here"):
        Session(
            engine, 1, q_heads=4, kv_heads=2, head_dim=8, comm="host", rendezvous=meet
        )


def test_ranks_meet_through_the_daemon(daemon: Daemon) -> None:
    job = pool.make_job(cp=2, bucket=27)
    batch = pool.Batch.random([45, 5])

    def run(rank: int) -> None:
        with (
            skrull.connect(daemon.address, job="meet", spec=job) as engine,
            Session(
                engine,
                rank,
                q_heads=pool.Q_HEADS,
                kv_heads=pool.KV_HEADS,
                head_dim=pool.HEAD_DIM,
                dtype=torch.float64,
            ) as session,
        ):
            plan = engine.plan(0, [45, 5])
            for part in session.prepare(plan.rank_plan(rank)):
                pool.check_micro_batch(part.micro_batch, batch)

    pool.on_ranks(2, run)


def test_a_rank_that_does_not_come_is_named(engine: skrull.LocalEngine) -> None:
    plan = engine.plan(0, [45, 5])
    session = pool.open_session(engine, 0, InProcessPeers(), time_limit=0.2)
    with pytest.raises(skrull.DeadlineExceededError):
        session.prepare(plan.rank_plan(0))
    session.close()


def _in_a_child(session: Session, answers: multiprocessing.SimpleQueue) -> None:
    try:
        session.agree("anything")
    except skrull.ForkError as error:
        session.close()
        answers.put(str(error))


def test_a_child_of_fork_gets_an_error() -> None:
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    with (
        skrull.local(pool.make_job(bucket=64)) as alone,
        pool.open_session(alone, 0, InProcessPeers()) as session,
    ):
        child = fork.Process(target=_in_a_child, args=(session, answers))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert f"process {os.getpid()}" in answers.get()
        session.agree("still usable")


def test_an_interpreter_that_leaves_everything_open_ends_well() -> None:
    program = pathlib.Path(__file__).with_name("leave_open.py")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "left open, as by a child that ended with 0\n"


def test_ranks_as_processes(tmp_path: pathlib.Path) -> None:
    """The host communicator, and torch.distributed as the way to meet."""
    program = pathlib.Path(__file__).with_name("host_rank.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), "2", str(tmp_path / "meet")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        told = [process.communicate(timeout=120) for process in ranks]
        assert [process.returncode for process in ranks] == [0, -9], told
        assert told[0][0] == "rank 0 is right\nrank 1 is missed\n", told
        assert told[1][0] == "rank 1 is right\n", told
    finally:
        for process in ranks:
            process.kill()
