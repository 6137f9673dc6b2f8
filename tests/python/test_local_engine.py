"""The planner in process."""

from __future__ import annotations

import os
import pickle
import subprocess
import threading

import numpy as np
import pytest
import skrull

from conftest import LENGTHS, SOURCE


def test_lengths_of_any_integer_kind_give_the_same_plan(job: skrull.Job) -> None:
    engine = skrull.local(job)
    want = engine.plan(0, LENGTHS)
    for lengths in (
        tuple(LENGTHS),
        np.array(LENGTHS),
        np.array(LENGTHS, dtype=np.uint16),
        np.repeat(LENGTHS, 2)[::2],  # not contiguous
    ):
        assert engine.plan(0, lengths) == want
    assert engine.plan(1, LENGTHS) != want
    assert skrull.local(job.text).plan(0, LENGTHS) == want


@pytest.mark.parametrize(
    ("lengths", "part"),
    [
        ([], "empty"),
        ([1.5], "float64"),
        ([[1, 2]], r"\[1, 2\]"),
        ([True], "bool"),
        (np.array([2**63], dtype=np.uint64), "above"),
    ],
)
def test_what_are_no_lengths_is_said(
    job: skrull.Job, lengths: list[int], part: str
) -> None:
    with pytest.raises(skrull.InvalidArgumentError, match=part) as caught:
        skrull.local(job).plan(0, lengths)
    assert caught.value.field == "lengths"


def test_refusals_name_the_sequences(job: skrull.Job) -> None:
    engine = skrull.local(job)
    with pytest.raises(ValueError, match="index 1") as malformed:
        engine.plan(0, [5, 0, -3])
    assert isinstance(malformed.value, skrull.InvalidArgumentError)
    assert malformed.value.indices == (1, 2)
    with pytest.raises(skrull.FailedPreconditionError) as never:
        engine.plan(0, [5, 2401])
    assert never.value.reason == "SEQUENCE_TOO_LONG"
    assert never.value.indices == (1,)
    assert never.value.limit == 2400
    assert never.value.code == "FAILED_PRECONDITION"
    again = pickle.loads(pickle.dumps(never.value))
    assert (again.indices, again.limit, str(again)) == (
        never.value.indices,
        never.value.limit,
        str(never.value),
    )


def test_plans_come_in_the_order_they_were_asked_for(job: skrull.Job) -> None:
    engine = skrull.local(job, prefetch_depth=3)
    with pytest.raises(skrull.FailedPreconditionError, match="submit"):
        engine.next()
    for step in range(3):
        engine.submit(step, LENGTHS)
    assert engine.pending == 3
    with pytest.raises(skrull.ResourceExhaustedError) as full:
        engine.submit(3, LENGTHS)
    assert full.value.limit == 3
    assert [engine.next().step for _ in range(3)] == [0, 1, 2]
    assert engine.pending == 0


def test_a_refused_batch_does_not_stop_the_others(job: skrull.Job) -> None:
    engine = skrull.local(job)
    for step, lengths in enumerate([[5], [2401], [7]]):
        engine.submit(step, lengths)
    assert engine.next().step == 0
    with pytest.raises(skrull.FailedPreconditionError, match=r"^step 1: "):
        engine.next()
    assert engine.next().step == 2


def test_next_gives_up_in_time_and_keeps_the_batch(
    job: skrull.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = skrull.local(job)
    go = threading.Event()
    plan = skrull.LocalEngine._plan

    def slow(self: skrull.LocalEngine, batch: object) -> skrull.Plan:
        go.wait()
        return plan(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(skrull.LocalEngine, "_plan", slow)
    engine.submit(4, LENGTHS)
    with pytest.raises(TimeoutError, match="step 4"):
        engine.next(timeout=0.01)
    assert engine.pending == 1
    go.set()
    assert engine.next().step == 4


def test_what_needs_a_daemon_says_so(job: skrull.Job) -> None:
    engine = skrull.local(job)
    for call in (
        lambda: engine.rank_plan(0, 1),
        lambda: engine.rendezvous("start", 0, 1, b"x"),
        lambda: engine.report(skrull.StepReport(0, 0, 0, outcome="oom")),
    ):
        with pytest.raises(skrull.FailedPreconditionError, match="daemon"):
            call()
    answer = engine.report(skrull.StepReport(0, 2, 0, step_seconds=1.0))
    assert answer == skrull.ReportAnswer(attempt=2, calibration_epoch=0)


def test_a_closed_engine_says_so(job: skrull.Job) -> None:
    with skrull.local(job) as engine:
        engine.submit(0, LENGTHS)
    for call in (
        lambda: engine.plan(0, LENGTHS),
        lambda: engine.submit(0, LENGTHS),
        lambda: engine.next(),
    ):
        with pytest.raises(skrull.FailedPreconditionError, match="closed"):
            call()
    engine.close()


def test_a_thousand_threads_worth_of_calls_agree(job: skrull.Job) -> None:
    engine = skrull.local(job)
    want = engine.plan(0, LENGTHS).digest
    wrong: list[str] = []

    def ask() -> None:
        for _ in range(50):
            digest = engine.plan(0, LENGTHS).digest
            if digest != want:
                wrong.append(digest)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outcome", "crashed"),
        ("step_seconds", -1.0),
        ("attention_seconds", float("nan")),
        ("exchange_seconds", float("inf")),
        ("peak_bytes", -1),
    ],
)
def test_reports_out_of_range_name_the_field(field: str, value: object) -> None:
    with pytest.raises(skrull.InvalidArgumentError, match=field) as caught:
        skrull.StepReport(0, 0, 0, **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_plans_are_those_of_skrullctl() -> None:
    spec = SOURCE / "deploy/examples/jobs/qwen2.5-0.5b.textproto"
    lengths = SOURCE / "deploy/examples/lengths/wikipedia.txt"
    told = subprocess.run(
        [
            os.environ["SKRULL_CTL"],
            *("plan", "--offline", "--format", "json", "--name", "run7"),
            *("--batch-size", "256", "--job-spec", spec, "--lengths", lengths),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    values = [int(line) for line in lengths.read_text().split()]
    engine = skrull.local(skrull.Job.from_file(spec), name="run7")
    assert len(told) == 100
    for step, line in enumerate(told):
        batch = values[step * 256 : (step + 1) * 256]
        assert engine.plan(step, batch).to_json() == line
