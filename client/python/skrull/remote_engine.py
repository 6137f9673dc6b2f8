"""The planner of a daemon."""

from __future__ import annotations

import ctypes
import os
import threading

from skrull._ahead import of_step
from skrull._native import client
from skrull._native.handle import Connected, Owned, check_process
from skrull._native.structs import INT32, sized, text
from skrull.engine import Engine, Lengths, NativeBatch
from skrull.errors import InvalidArgumentError
from skrull.job import Job
from skrull.plan import Plan
from skrull.rank_plan import RankPlan, rank_plan_from_native
from skrull.report import OUTCOMES, ReportAnswer, StepReport


class RemoteEngine(Engine):
    """Plans at a daemon, which commits each plan once; see :func:`connect`.

    In a child of the process that connected every call raises ForkError at once.
    """

    def __init__(
        self, daemon: Connected, job: Job, name: str, generation: int, epoch: int
    ) -> None:
        self._daemon = daemon
        self._process = os.getpid()
        self._stream: Connected | None = None
        self._stream_lock = threading.Lock()
        self._generation = generation
        self._epoch = epoch
        super().__init__(job, name)

    @property
    def generation(self) -> int:
        """Generation of the job that it joined; calls for another are refused."""
        return self._generation

    @property
    def calibration_epoch(self) -> int:
        """The latest that a plan or an answer told."""
        return self._epoch

    def plan(
        self,
        step: int,
        lengths: Lengths,
        *,
        attempt: int = 0,
        policy: str | None = None,
    ) -> Plan:
        """See :meth:`Engine.plan`."""
        batch = self._batch(step, lengths, attempt, policy)
        handle = ctypes.c_void_p()
        with self._daemon.use() as daemon:
            client.check(
                client.library().skrull_client_daemon_plan(
                    daemon, batch.reference, 0.0, ctypes.byref(handle)
                )
            )
        return self._own(handle)

    def submit(self, step: int, lengths: Lengths, *, attempt: int = 0) -> None:
        """See :meth:`Engine.submit`. Survives restarts of the daemon."""
        batch = NativeBatch(step, lengths, attempt)
        with self._open_stream().use() as stream:
            client.check(
                client.library().skrull_client_stream_send(stream, batch.reference)
            )

    def next(self, timeout: float | None = None) -> Plan:
        """See :meth:`Engine.next`."""
        if timeout is not None and timeout <= 0:
            raise InvalidArgumentError(
                f"timeout: must be above 0 seconds, is {timeout}", field="timeout"
            )
        answer = sized(client.Answer)
        handle = ctypes.c_void_p()
        with self._open_stream().use() as stream:
            code = client.library().skrull_client_stream_next(
                stream, timeout or 0.0, ctypes.byref(answer), ctypes.byref(handle)
            )
            if code != 0:
                error = client.last_error()
                raise of_step(answer.step, error) if answer.answered else error
        return self._own(handle)

    @property
    def pending(self) -> int:
        """See :attr:`Engine.pending`."""
        if self._stream is None:
            return 0
        count = INT32()
        with self._stream.use() as stream:
            client.check(
                client.library().skrull_client_stream_pending(
                    stream, ctypes.byref(count)
                )
            )
        return count.value

    def rank_plan(self, step: int, rank: int, attempt: int = 0) -> RankPlan:
        """See :meth:`Engine.rank_plan`."""
        batch = self._batch(step, [], attempt)
        handle = ctypes.c_void_p()
        with self._daemon.use() as daemon:
            client.check(
                client.library().skrull_client_daemon_rank_plan(
                    daemon, batch.reference, rank, 0.0, ctypes.byref(handle)
                )
            )
        return rank_plan_from_native(handle, self.world_size)

    def report(self, report: StepReport) -> ReportAnswer:
        """See :meth:`Engine.report`."""
        told = native_report(report, self.name, self._generation)
        answer = sized(client.ReportAnswer)
        with self._daemon.use() as daemon:
            client.check(
                client.library().skrull_client_daemon_report(
                    daemon, ctypes.byref(told), 0.0, ctypes.byref(answer)
                )
            )
        self._epoch = max(self._epoch, answer.calibration_epoch)
        return ReportAnswer(answer.attempt, answer.calibration_epoch)

    def rendezvous(self, key: str, rank: int, size: int, offer: bytes = b"") -> bytes:
        """See :meth:`Engine.rendezvous`."""
        meeting = sized(
            client.Meeting,
            job=text(self.name),
            key=text(key),
            generation=self._generation,
            rank=rank,
            size=size,
            offer=offer,
            offer_bytes=len(offer),
        )
        handle = ctypes.c_void_p()
        with self._daemon.use() as daemon:
            client.check(
                client.library().skrull_client_daemon_meet(
                    daemon, ctypes.byref(meeting), 0.0, ctypes.byref(handle)
                )
            )
        return client.take_bytes(handle)

    def check_health(self) -> None:
        """Returns if the daemon takes calls; asks once.

        Raises:
            UnavailableError: It cannot be reached, or drains.
        """
        with self._daemon.use() as daemon:
            client.check(
                client.library().skrull_client_daemon_check_health(daemon, 0.0)
            )

    def close(self) -> None:
        """See :meth:`Engine.close`. Does not wait for calls of other threads."""
        if self._process != os.getpid():
            return
        with self._stream_lock:
            if self._stream is not None:
                self._stream.close()
            self._daemon.close()

    def _batch(
        self, step: int, lengths: Lengths, attempt: int, policy: str | None = None
    ) -> NativeBatch:
        return NativeBatch(
            step,
            lengths,
            attempt,
            job=self.name,
            policy=policy,
            generation=self._generation,
        )

    def _own(self, handle: ctypes.c_void_p) -> Plan:
        plan = Plan(
            Owned(handle, client.library().skrull_client_plan_destroy), self.world_size
        )
        self._epoch = max(self._epoch, plan.calibration_epoch)
        return plan

    def _open_stream(self) -> Connected:
        check_process(self._process, "connection to the daemon")
        with self._stream_lock:
            if self._stream is not None:
                return self._stream
            native = client.library()
            options = sized(
                client.StreamOptions,
                job=text(self.name),
                generation=self._generation,
            )
            handle = ctypes.c_void_p()
            with self._daemon.use() as daemon:
                client.check(
                    native.skrull_client_stream_create(
                        daemon, ctypes.byref(options), ctypes.byref(handle)
                    )
                )
            self._stream = Connected(
                handle, native.skrull_client_stream_destroy, "stream of plans"
            )
            return self._stream


def native_report(
    report: StepReport, job: str | None, generation: int
) -> client.StepReport:
    """The report as C takes it."""
    seconds = [
        -1.0 if value is None else value
        for value in (
            report.step_seconds,
            report.attention_seconds,
            report.exchange_seconds,
        )
    ]
    return sized(
        client.StepReport,
        job=text(job),
        generation=generation,
        step=report.step,
        attempt=report.attempt,
        rank=report.rank,
        outcome=OUTCOMES.index(report.outcome),
        step_seconds=seconds[0],
        attention_seconds=seconds[1],
        exchange_seconds=seconds[2],
        peak_bytes=report.peak_bytes,
    )
