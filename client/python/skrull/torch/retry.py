"""Steps that survive a rank that runs out of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from skrull.errors import (
    AbortedError,
    FailedPreconditionError,
    SkrullError,
)
from skrull.torch.batch import TrainBatch
from skrull.torch.reporting import StepReporter
from skrull.torch.session import Session

T = TypeVar("T")

# torch's own, and the executor's, which is a MemoryError.
_OUT_OF_MEMORY = (torch.cuda.OutOfMemoryError, MemoryError)
# How the executor's message about another rank names that failure.
_EXECUTOR_RAN_OUT = "OUT_OF_MEMORY"


def run_step(
    session: Session,
    batch: TrainBatch,
    run: Callable[[TrainBatch], T],
    *,
    drop_gradients: Callable[[], object],
    reporter: StepReporter | None = None,
) -> T:
    """Runs a step's micro-batches; anew, by the next plan, if a rank has no memory.

    Prepares the batch, calls ``run``, and returns when it succeeded on every rank.
    Collective. Where a rank runs out of memory, it reports that; the daemon plans
    the same global batch with smaller micro-batches, and all ranks drop the
    gradients of the failed attempt, meet anew and run that plan. Gradients are then
    those of the same batch, so the loss curve stays as it was.

    ``run`` must leave what other ranks wait for outside the session, such as the
    reduction of gradients, to the code behind ``run_step``: under DDP, inside
    ``no_sync()``. It may be called several times.

    Args:
        session: The rank's; no other may use it meanwhile.
        batch: This rank's share.
        run: Forward and backward passes of all micro-batches of what it is given:
            the batch, or a later attempt's share of it.
        drop_gradients: Undoes what ``run`` accumulated, e.g.
            ``optimizer.zero_grad``.
        reporter: Reports outcomes, times and memory; None: one for this step, whose
            report is waited for.

    Returns:
        What ``run`` returned.

    Raises:
        MemoryError, torch.OutOfMemoryError: This rank ran out of memory and there
            is no further attempt: no daemon, or it knows no smaller plan.
        AbortedError: Another rank failed, and no further attempt came.
        Exception: Whatever else ``run`` raised; the other ranks are told.
    """
    report = reporter or StepReporter(session)
    while True:
        attempt = batch.rank_plan.attempt
        try:
            session.prepare(batch.rank_plan)
            with report.measure():
                result = run(batch)
            session.agree(f"attempt {attempt} of step {batch.step} has run")
        except _OUT_OF_MEMORY as error:
            # Its frames hold the tensors that memory is short of.
            failure: Exception = error.with_traceback(None)
        except AbortedError as error:
            failure = error.with_traceback(None)
        except BaseException as error:
            session.abort(f"{type(error).__name__}: {error}")
            raise
        else:
            report.post(batch.step, attempt)
            if reporter is None:
                report.close()
            return result
        drop_gradients()
        batch = _next_attempt(session, batch, report, failure)


def _next_attempt(
    session: Session, batch: TrainBatch, reporter: StepReporter, failure: Exception
) -> TrainBatch:
    """This rank's share of the next attempt; raises `failure` if there is none."""
    if session.device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        attempt = _learn_attempt(session, batch, reporter, failure)
        rank_plan = session.engine.rank_plan(batch.step, session.rank, attempt)
    except SkrullError as missing:
        session.abort(f"step {batch.step} has no further attempt: {missing.message}")
        raise failure from missing
    session.restart()
    return batch.replan(rank_plan)


def _learn_attempt(
    session: Session, batch: TrainBatch, reporter: StepReporter, failure: Exception
) -> int:
    """Tells how the attempt ended; returns which one all ranks run next.

    A rank that ran out of memory reports before it sets the others free, so that
    the answers to their reports know the next attempt. Where the executor itself
    ran out, it has set them free already, and its rank's report is on its way.
    """
    step, attempt = batch.step, batch.rank_plan.attempt
    ran_out = not isinstance(failure, AbortedError)
    answer = reporter.send(step, attempt, "oom" if ran_out else "failed")
    if ran_out:
        session.abort(f"out of memory in attempt {attempt} of step {step}")
    elif answer.attempt == attempt and _EXECUTOR_RAN_OUT in str(failure):
        return attempt + 1
    if answer.attempt == attempt:
        raise FailedPreconditionError(
            f"the answer to the report of step {step} names none after {attempt}"
        )
    return answer.attempt
