"""The planner of a daemon, or of this process while the daemon is away."""

from __future__ import annotations

import ctypes
import functools

from skrull._ahead import Ahead
from skrull._native import client
from skrull._native.handle import Connected, check_process
from skrull._native.structs import sized
from skrull.engine import Lengths, NativeBatch
from skrull.errors import FailedPreconditionError
from skrull.job import Job
from skrull.plan import Plan
from skrull.rank_plan import RankPlan
from skrull.remote_engine import RemoteEngine, native_report
from skrull.report import ReportAnswer, StepReport


class FallbackEngine(RemoteEngine):
    """A daemon's plans or, while it cannot be reached, this process's.

    Made by ``skrull.connect(..., fallback=True)``. A plan that was made here has
    ``from_fallback`` set, and the last calibration epoch that the daemon told: equal
    inputs then give the daemon's bytes. Ranks never mix two plans, because they
    compare digests before anything is exchanged; a rank that knows another epoch
    makes all of them stop with an error. So every rank needs the batch's lengths.

    The daemon is asked again after pauses that grow from 2 to 60 seconds. Its
    refusals are errors as ever: only silence makes this process plan. What is
    submitted ahead is planned by one thread of this process.
    """

    def __init__(
        self,
        daemon: Connected,
        job: Job,
        name: str,
        generation: int,
        epoch: int,
        fallback: Connected,
        prefetch_depth: int,
    ) -> None:
        self._fallback = fallback
        self._ahead = Ahead(prefetch_depth)
        super().__init__(daemon, job, name, generation, epoch)

    def plan(
        self,
        step: int,
        lengths: Lengths,
        *,
        attempt: int = 0,
        policy: str | None = None,
    ) -> Plan:
        """See :meth:`Engine.plan`."""
        return self._plan(NativeBatch(step, lengths, attempt, policy=policy))

    def submit(self, step: int, lengths: Lengths, *, attempt: int = 0) -> None:
        """See :meth:`Engine.submit`."""
        self._check_process()
        batch = NativeBatch(step, lengths, attempt)
        self._ahead.submit(step, functools.partial(self._plan, batch))

    def next(self, timeout: float | None = None) -> Plan:
        """See :meth:`Engine.next`. Without a timeout it waits for the plan."""
        self._check_process()
        return self._ahead.next(timeout)

    @property
    def pending(self) -> int:
        """See :attr:`Engine.pending`."""
        self._check_process()
        return len(self._ahead)

    def rank_plan(self, step: int, rank: int, attempt: int = 0) -> RankPlan:
        """See :meth:`Engine.rank_plan`; of attempts above 0 alone.

        Those are the daemon's own answers to ranks that ran out of memory.

        Raises:
            FailedPreconditionError: Attempt 0, which the daemon may never get to
                plan.
        """
        if attempt > 0:
            return super().rank_plan(step, rank, attempt)
        raise FailedPreconditionError(
            f"the plan of step {step} may be made by ranks themselves, which the "
            f"daemon then never knows: use plan(step, lengths).rank_plan({rank})"
        )

    def report(self, report: StepReport) -> ReportAnswer:
        """See :meth:`Engine.report`.

        Raises:
            UnavailableError: The daemon is away. A report of another outcome than
                ``"oom"`` may be passed over; that one has no next attempt.
        """
        told = native_report(report, None, 0)
        answer = sized(client.ReportAnswer)
        with self._fallback.use() as fallback:
            client.check(
                client.library().skrull_client_fallback_report(
                    fallback, ctypes.byref(told), 0.0, ctypes.byref(answer)
                )
            )
        self._epoch = max(self._epoch, answer.calibration_epoch)
        return ReportAnswer(answer.attempt, answer.calibration_epoch)

    def close(self) -> None:
        """See :meth:`Engine.close`."""
        self._ahead.close()
        self._fallback.close()
        super().close()

    def _plan(self, batch: NativeBatch) -> Plan:
        handle = ctypes.c_void_p()
        with self._fallback.use() as fallback:
            client.check(
                client.library().skrull_client_fallback_plan(
                    fallback, batch.reference, 0.0, ctypes.byref(handle)
                )
            )
        return self._own(handle)

    def _check_process(self) -> None:
        check_process(self._process, "connection to the daemon")
