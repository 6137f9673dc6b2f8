"""What plans batches: this process, or a daemon. One interface for both.

Example:
    >>> with skrull.local(job) as engine:
    ...     plan = engine.plan(0, [512, 70000, 33])
    ...     share = plan.rank_plan(rank=0)
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import ctypes
import weakref
from collections.abc import Sequence
from types import TracebackType

import numpy as np
import numpy.typing as npt

from skrull._native import client
from skrull._native.structs import INT64, sized, text
from skrull.errors import InvalidArgumentError, SkrullError
from skrull.job import Job
from skrull.plan import Plan
from skrull.rank_plan import RankPlan
from skrull.report import ReportAnswer, StepReport

Lengths = Sequence[int] | npt.NDArray[np.integer]


class Engine(abc.ABC):
    """Plans the batches of one job.

    May be used by several threads. ``plan`` and ``next`` block without the GIL;
    Ctrl-C reaches the program when they return. Close it, or use it in a ``with``;
    what is left open is closed when the interpreter exits.
    """

    def __init__(self, job: Job, name: str) -> None:
        self._job = job
        self._name = name
        _OPEN.add(self)

    @property
    def job(self) -> Job:
        """The job that it plans for."""
        return self._job

    @property
    def name(self) -> str:
        """Name of the job; empty for one that has none."""
        return self._name

    @property
    def world_size(self) -> int:
        """Ranks of the pool."""
        return self._job.world_size

    @property
    @abc.abstractmethod
    def generation(self) -> int:
        """Generation of the job at the daemon; 0 without a daemon."""

    @property
    @abc.abstractmethod
    def calibration_epoch(self) -> int:
        """The latest epoch of the job's cost model that this engine knows of."""

    @abc.abstractmethod
    def plan(
        self,
        step: int,
        lengths: Lengths,
        *,
        attempt: int = 0,
        policy: str | None = None,
    ) -> Plan:
        """Plans one global batch.

        Args:
            step: The training step, >= 0.
            lengths: Lengths of the batch's sequences, tokens, each >= 1. Every
                rank gives the same ones.
            attempt: 0 .. 1000; above 0 after a rank ran out of memory.
            policy: e.g. ``"POLICY_SKRULL"``; None: the job's.

        Raises:
            InvalidArgumentError: An empty batch, or a length out of range
                (``indices``).
            FailedPreconditionError: A sequence that can never fit the job
                (``indices``, ``limit``); at a daemon also a step that is committed
                for other lengths.
            UnavailableError, DeadlineExceededError: The daemon did not answer.
        """

    @abc.abstractmethod
    def submit(self, step: int, lengths: Lengths, *, attempt: int = 0) -> None:
        """Has a batch planned while the caller goes on; :meth:`next` returns it.

        Raises:
            ResourceExhaustedError: ``prefetch_depth`` batches wait already.
        """

    @abc.abstractmethod
    def next(self, timeout: float | None = None) -> Plan:
        """The plan of the oldest batch submitted and not returned yet.

        Args:
            timeout: Seconds to wait; None: the engine's own.

        Raises:
            FailedPreconditionError: None was submitted, or this batch is refused.
            InvalidArgumentError: This batch is refused.
            DeadlineExceededError, UnavailableError: No answer yet; the batch still
                waits, and ``next`` may be called again.
        """

    @property
    @abc.abstractmethod
    def pending(self) -> int:
        """Batches submitted that ``next`` has not returned."""

    @abc.abstractmethod
    def rank_plan(self, step: int, rank: int, attempt: int = 0) -> RankPlan:
        """One rank's share of a plan that another rank asks the daemon for.

        Waits for that plan. For ranks that do not know the batch's lengths.

        Raises:
            FailedPreconditionError: There is no daemon; use
                ``plan(...).rank_plan(rank)``.
            DeadlineExceededError: No rank asked for the plan in time.
        """

    @abc.abstractmethod
    def report(self, report: StepReport) -> ReportAnswer:
        """Tells how a step went on a rank.

        After ``"oom"`` it waits for the next attempt to be planned, which all
        ranks then run.

        Raises:
            FailedPreconditionError: Out of memory, and there is no further
                attempt.
        """

    @abc.abstractmethod
    def rendezvous(self, key: str, rank: int, size: int, offer: bytes = b"") -> bytes:
        """Gives every rank what rank 0 offers, such as an address.

        Args:
            key: What they meet for, 1 .. 128 characters.
            rank: 0 .. size - 1.
            size: Ranks that meet.
            offer: Rank 0: 1 .. 4096 bytes; others: none.

        Raises:
            FailedPreconditionError: There is no daemon to meet at, or ranks came
                with other terms.
            DeadlineExceededError: Ranks did not come; ``indices`` says which.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends it; what is pending is dropped. Later calls do nothing."""

    def __enter__(self) -> Engine:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()


_OPEN: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_open_engines() -> None:
    for engine in list(_OPEN):
        with contextlib.suppress(SkrullError):
            engine.close()


class NativeBatch:
    """A batch as C takes it; keeps alive what the struct points to.

    Raises:
        InvalidArgumentError: ``lengths`` is not one-dimensional, or holds what is
            no 64-bit whole number.
    """

    def __init__(
        self,
        step: int,
        lengths: Lengths,
        attempt: int,
        *,
        job: str | None = None,
        policy: str | None = None,
        generation: int = 0,
    ) -> None:
        self._lengths = _int64(lengths)
        self.struct = sized(
            client.Batch,
            job=text(job),
            policy=text(policy),
            step=step,
            attempt=attempt,
            lengths=self._lengths.ctypes.data_as(ctypes.POINTER(INT64)),
            length_count=self._lengths.size,
            generation=generation,
        )

    @property
    def reference(self) -> object:
        """What a function of C takes."""
        return ctypes.byref(self.struct)


def _int64(lengths: Lengths) -> npt.NDArray[np.int64]:
    given = np.asarray(lengths)
    if given.size == 0:
        given = given.astype(np.int64)  # an empty list is one of floats
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise InvalidArgumentError(
            "lengths: must be whole numbers in one dimension, are "
            f"{given.dtype} {list(given.shape)}",
            field="lengths",
        )
    if given.dtype == np.uint64 and given.max(initial=0) > np.iinfo(np.int64).max:
        raise InvalidArgumentError(
            "lengths: a number is above 2^63 - 1",
            field="lengths",
            indices=np.flatnonzero(given > np.iinfo(np.int64).max)[:32].tolist(),
        )
    return np.ascontiguousarray(given, dtype=np.int64)
