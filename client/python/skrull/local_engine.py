"""The planner in this process."""

from __future__ import annotations

import ctypes
import functools

from skrull._ahead import Ahead
from skrull._native import client
from skrull._native.handle import Owned
from skrull._native.structs import sized
from skrull.engine import Engine, Lengths, NativeBatch
from skrull.errors import FailedPreconditionError
from skrull.job import Job
from skrull.plan import Plan
from skrull.rank_plan import RankPlan
from skrull.report import ReportAnswer, StepReport


class LocalEngine(Engine):
    """Plans in this process; see :func:`local`. Works in children of fork()."""

    def __init__(
        self, job: Job, *, name: str, calibration_epoch: int, prefetch_depth: int
    ) -> None:
        ahead = Ahead(prefetch_depth)
        native = client.library()
        options = sized(
            client.PlannerOptions,
            job_spec_text=job.text.encode(),
            calibration_epoch=calibration_epoch,
        )
        handle = ctypes.c_void_p()
        client.check(
            native.skrull_client_planner_create(
                ctypes.byref(options), ctypes.byref(handle)
            )
        )
        self._planner = Owned(handle, native.skrull_client_planner_destroy)
        self._calibration_epoch = calibration_epoch
        self._closed = False
        self._ahead = ahead
        super().__init__(job, name)

    @property
    def generation(self) -> int:
        """0: there is no daemon."""
        return 0

    @property
    def calibration_epoch(self) -> int:
        """As given to :func:`local`."""
        return self._calibration_epoch

    def plan(
        self,
        step: int,
        lengths: Lengths,
        *,
        attempt: int = 0,
        policy: str | None = None,
    ) -> Plan:
        """See :meth:`Engine.plan`."""
        self._check_open()
        batch = NativeBatch(step, lengths, attempt, job=self._name, policy=policy)
        return self._plan(batch)

    def submit(self, step: int, lengths: Lengths, *, attempt: int = 0) -> None:
        """See :meth:`Engine.submit`. One thread of this process plans."""
        self._check_open()
        batch = NativeBatch(step, lengths, attempt, job=self._name)
        self._ahead.submit(step, functools.partial(self._plan, batch))

    def next(self, timeout: float | None = None) -> Plan:
        """See :meth:`Engine.next`. Without a timeout it waits for the plan."""
        self._check_open()
        return self._ahead.next(timeout)

    @property
    def pending(self) -> int:
        """See :attr:`Engine.pending`."""
        return len(self._ahead)

    def rank_plan(self, step: int, rank: int, attempt: int = 0) -> RankPlan:
        """Raises FailedPreconditionError: nobody else can have asked."""
        raise FailedPreconditionError(
            "there is no daemon that knows the plan of step "
            f"{step}: use plan(step, lengths).rank_plan({rank})"
        )

    def report(self, report: StepReport) -> ReportAnswer:
        """Takes note of nothing: without a daemon nobody learns from it.

        Raises:
            FailedPreconditionError: The outcome is ``"oom"``: nobody plans the
                next attempt.
        """
        if report.outcome == "oom":
            raise FailedPreconditionError(
                f"rank {report.rank} ran out of memory in step {report.step}, and "
                "without a daemon nobody plans a smaller attempt: lower "
                "memory.bucket_size_tokens of the job, or connect to a daemon"
            )
        return ReportAnswer(report.attempt, self._calibration_epoch)

    def rendezvous(self, key: str, rank: int, size: int, offer: bytes = b"") -> bytes:
        """Raises FailedPreconditionError: there is no daemon to meet at."""
        raise FailedPreconditionError(
            f"ranks cannot meet for {key!r} without a daemon: use skrull.connect(), or "
            "the trainer's own process group"
        )

    def close(self) -> None:
        """See :meth:`Engine.close`."""
        self._closed = True
        self._ahead.close()

    def _plan(self, batch: NativeBatch) -> Plan:
        native = client.library()
        handle = ctypes.c_void_p()
        client.check(
            native.skrull_client_planner_plan(
                self._planner.pointer, batch.reference, ctypes.byref(handle)
            )
        )
        return Plan(
            Owned(handle, native.skrull_client_plan_destroy), self._job.world_size
        )

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("the engine is closed", reason="CLOSED")


def local(
    job: Job | str,
    *,
    name: str = "",
    calibration_epoch: int = 0,
    prefetch_depth: int = 8,
) -> LocalEngine:
    """An engine that plans in this process: no daemon, no network.

    Its plans are, byte for byte, a daemon's for the same job, name, epoch, step
    and lengths. Every rank plans for itself, so every rank needs all lengths of
    the batch; ranks compare digests before the step.

    Args:
        job: The job, or its text form.
        name: Copied into plans.
        calibration_epoch: Copied into plans, >= 0.
        prefetch_depth: Most batches that ``submit`` holds, >= 1.

    Raises:
        InvalidArgumentError: Names the argument, or what is wrong with the job.
    """
    return LocalEngine(
        job if isinstance(job, Job) else Job.from_text(job),
        name=name,
        calibration_epoch=calibration_epoch,
        prefetch_depth=prefetch_depth,
    )
