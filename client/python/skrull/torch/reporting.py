"""How steps went, told to the daemon behind the training loop's back."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Iterator

import torch

from skrull.errors import SkrullError
from skrull.report import ReportAnswer, StepReport
from skrull.torch.session import Session

# Reports on their way before the loop waits for the oldest: a daemon that takes
# calls answers within a step, so more than a few mean that it does not.
_MOST_ON_THE_WAY = 8

_log = logging.getLogger(__name__)


class StepReporter:
    """Measures a rank's steps and reports them.

    ``post`` reports a step that went well without waiting for the answer; a report
    that is lost is logged as a warning, and training goes on. For one thread.

    Example:
        >>> with reporter.measure():
        ...     train(batch)
        >>> reporter.post(batch.step, batch.rank_plan.attempt)

    Args:
        session: Whose engine is told, and whose attention is measured.
        device: Whose peak memory is reported; None: the session's. The CPU's is
            not measured.

    Attributes:
        last_answer: The latest answer; None before the first.
    """

    def __init__(
        self, session: Session, device: str | torch.device | None = None
    ) -> None:
        self.last_answer: ReportAnswer | None = None
        self._session = session
        self._device = torch.device(device) if device else session.device
        self._seconds: float | None = None
        self._attention_seconds: float | None = None
        self._peak_bytes = 0
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None
        self._on_the_way: collections.deque[concurrent.futures.Future[None]] = (
            collections.deque()
        )

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Measures what runs inside: the next report's numbers."""
        on_cuda = self._device.type == "cuda"
        if on_cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        self._session.attention_seconds = 0.0
        begin = time.perf_counter()
        try:
            yield
        finally:
            if on_cuda:
                torch.cuda.synchronize(self._device)
                self._peak_bytes = torch.cuda.max_memory_allocated(self._device)
            else:  # on CUDA the host does not see how long attention takes
                self._attention_seconds = self._session.attention_seconds
            self._seconds = time.perf_counter() - begin

    def send(self, step: int, attempt: int, outcome: str = "ok") -> ReportAnswer:
        """Reports a step and waits for the answer.

        Args:
            step: The training step.
            attempt: The attempt that ran.
            outcome: ``"ok"``, ``"oom"`` or ``"failed"``.

        Raises:
            SkrullError: As of ``Engine.report``.
        """
        self.last_answer = self._session.engine.report(
            self._report(step, attempt, outcome)
        )
        return self.last_answer

    def post(self, step: int, attempt: int) -> None:
        """Reports a step that went well; returns at once."""
        if self._thread is None:
            self._thread = concurrent.futures.ThreadPoolExecutor(
                max_workers=1, thread_name_prefix="skrull-report"
            )
        if len(self._on_the_way) == _MOST_ON_THE_WAY:
            self._on_the_way.popleft().result()
        report = self._report(step, attempt, "ok")
        self._on_the_way.append(self._thread.submit(self._deliver, report))

    def flush(self) -> None:
        """Waits until everything posted was delivered, or lost."""
        while self._on_the_way:
            self._on_the_way.popleft().result()

    def close(self) -> None:
        """Flushes, and ends the thread. Later calls do nothing."""
        self.flush()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _deliver(self, report: StepReport) -> None:
        try:
            self.last_answer = self._session.engine.report(report)
        except SkrullError as error:
            _log.warning("the report of step %d is lost: %s", report.step, error)

    def _report(self, step: int, attempt: int, outcome: str) -> StepReport:
        return StepReport(
            step=step,
            attempt=attempt,
            rank=self._session.rank,
            outcome=outcome,
            step_seconds=self._seconds,
            attention_seconds=self._attention_seconds,
            peak_bytes=self._peak_bytes,
        )
