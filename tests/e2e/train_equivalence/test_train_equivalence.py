"""Eight ranks with a daemon's plans train what one process trains.

Losses of every step and the final weights are compared, in float64. Each loss and
gradient is a sum of a few thousand products of numbers near 1, in an order that the
plan decides about: rounding moves it by at most 5000 * 2^-53 = 6e-13. AdamW divides
gradients by their size + 1e-8, so that what rounding leaves of a gradient that is 0
in truth (2^-53, times weights near 0.1 and a share in the loss near 1e-3) moves its
weight by at most the learning rate * 1e-20 / 1e-8 in a step. TOLERANCE is above the
sum of both over all steps, and far below the least mistake there is: one token with a
wrong label, position or weight moves a loss by about 1 / 1300, the tokens of a batch.

In float32 the same sums are off by up to 5000 * 2^-24 = 3e-4 in theory and by its
square root, 4e-6, in practice: TOLERANCE_FLOAT32, of losses.
"""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from daemon import Daemon

import ranks
import reference
import training
from conftest import Record

TOLERANCE = 1e-11
TOLERANCE_FLOAT32 = 1e-5

_SOURCE = pathlib.Path(__file__).resolve().parents[3]
LENGTHS = training.lengths(_SOURCE / "deploy/examples/lengths")


@pytest.fixture(scope="module")
def data() -> list[dict[str, Any]]:
    return training.samples(LENGTHS)


@pytest.fixture(scope="module")
def alone(data: list[dict[str, Any]], record: Record) -> training.History:
    history = reference.train(data, training.STEPS, torch.float64)
    record("one process", history.losses, history.seconds)
    return history


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


def _run(name: str, daemon: Daemon, text: str, **options: Any) -> ranks.Run:
    options = {"steps": training.STEPS} | options
    return ranks.Run(name.replace(" ", "-"), daemon.address, text, **options)


def _train(
    run: ranks.Run, data: list[dict[str, Any]], record: Record
) -> list[ranks.RankHistory]:
    histories = ranks.train(run, data)
    first = histories[0]
    record(run.job, first.losses, max(h.seconds for h in histories))
    for history in histories:  # agreed, and equivalent to each other to the bit
        assert history.digests == first.digests
        assert history.attempts == first.attempts
        assert history.losses == first.losses
        for name, value in first.weights.items():
            assert torch.equal(history.weights[name], value), name
    return histories


def _check(history: ranks.RankHistory, alone: training.History) -> None:
    steps = len(history.losses)
    assert history.losses == pytest.approx(alone.losses[:steps], rel=TOLERANCE)
    if steps < len(alone.losses):
        return
    for name, value in alone.weights.items():
        torch.testing.assert_close(
            history.weights[name], value, rtol=0, atol=TOLERANCE, msg=name
        )


def _degrees(histories: list[ranks.RankHistory]) -> set[int]:
    return {d for history in histories for step in history.degrees for d in step}


def test_the_model_learns(alone: training.History) -> None:
    # Else equal losses would say little.
    assert alone.losses[-1] < 0.5 * alone.losses[0]


def test_scope_group(
    daemon: Daemon, data: list[dict[str, Any]], alone: training.History, record: Record
) -> None:
    run = _run("scope GROUP", daemon, training.job_text("GROUP"))
    histories = _train(run, data, record)
    assert _degrees(histories) == {1, 4}  # local and sharded, mixed
    _check(histories[0], alone)


def test_scope_pool(
    daemon: Daemon, data: list[dict[str, Any]], alone: training.History, record: Record
) -> None:
    run = _run("scope POOL", daemon, training.job_text("POOL"))
    histories = _train(run, data, record)
    assert {1, 4, 8} <= _degrees(histories)
    _check(histories[0], alone)


def test_static_context_parallelism(
    daemon: Daemon, data: list[dict[str, Any]], alone: training.History, record: Record
) -> None:
    run = _run("static CP", daemon, training.job_text("GROUP", "STATIC_CP"))
    histories = _train(run, data, record)
    assert _degrees(histories) == {4}
    # The shortest sequences leave ranks without rows.
    assert any(0 in step for history in histories for step in history.rows)
    _check(histories[0], alone)


def test_float32(daemon: Daemon, data: list[dict[str, Any]], record: Record) -> None:
    steps = 10
    wanted = reference.train(data, steps, torch.float32)
    run = _run(
        "float32", daemon, training.job_text("POOL"), steps=steps, dtype=torch.float32
    )
    histories = _train(run, data, record)
    assert histories[0].losses == pytest.approx(wanted.losses, rel=TOLERANCE_FLOAT32)


def test_goes_on_after_a_rank_ran_out_of_memory(
    daemon: Daemon, data: list[dict[str, Any]], alone: training.History, record: Record
) -> None:
    at = 6
    run = _run(
        "out of memory",
        daemon,
        training.job_text("POOL"),
        steps=12,
        out_of_memory=(at, 3),
        fallback=True,  # which changes nothing while the daemon is there
    )
    histories = _train(run, data, record)
    assert histories[0].attempts == [int(step == at) for step in range(12)]
    # The daemon has made the bucket smaller, for that step and those after it.
    rows = [max(r for h in histories for r in h.rows[step]) for step in range(12)]
    assert max(rows[at + 3 :]) < max(rows[:at])
    _check(histories[0], alone)


def test_goes_on_while_the_daemon_is_killed_and_restarted(
    tmp_path: pathlib.Path,
    data: list[dict[str, Any]],
    alone: training.History,
    record: Record,
) -> None:
    store = f"sqlite:{tmp_path}/skrull.db"
    with Daemon(tmp_path, store) as daemon:
        run = _run(
            "killed and restarted",
            daemon,
            training.job_text("GROUP"),
            steps=12,
            kill=(5, daemon.process.pid),
            store=store,
        )
        histories = _train(run, data, record)
        assert daemon.process.poll() == -signal.SIGKILL
    _check(histories[0], alone)


def test_goes_on_without_the_daemon_by_the_fallback(
    tmp_path: pathlib.Path,
    data: list[dict[str, Any]],
    alone: training.History,
    record: Record,
) -> None:
    with Daemon(tmp_path) as daemon:
        run = _run(
            "killed",
            daemon,
            training.job_text("POOL"),
            steps=12,
            kill=(5, daemon.process.pid),
            fallback=True,
        )
        histories = _train(run, data, record)
        assert daemon.process.poll() == -signal.SIGKILL
    for history in histories:
        # The daemon's until it was killed; then the same bytes, made by each rank.
        assert not any(history.from_fallback[:5])
        assert history.from_fallback[-1]
    _check(histories[0], alone)
