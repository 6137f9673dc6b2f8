"""Plans made ahead by one thread, in the order they were asked for."""

from __future__ import annotations

import collections
import concurrent.futures
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from skrull.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    SkrullError,
)

if TYPE_CHECKING:
    from skrull.plan import Plan


class Ahead:
    """A queue of batches that a thread plans. Thread-safe.

    In a child of fork() it is empty, with a thread of its own: the parent's did
    not come along.

    Args:
        depth: Most batches that it holds, >= 1.

    Raises:
        InvalidArgumentError: ``depth`` is out of range.
    """

    def __init__(self, depth: int) -> None:
        if depth < 1:
            raise InvalidArgumentError(
                f"prefetch_depth: must be at least 1, is {depth}",
                field="prefetch_depth",
            )
        self._depth = depth
        self._begin()

    def submit(self, step: int, plan: Callable[[], Plan]) -> None:
        """Has the thread call ``plan``.

        Raises:
            ResourceExhaustedError: It is full.
        """
        self._check_process()
        if len(self._futures) >= self._depth:
            raise ResourceExhaustedError(
                f"{self._depth} batches wait for next() already", limit=self._depth
            )
        self._futures.append((step, self._thread.submit(plan)))

    def next(self, timeout: float | None) -> Plan:
        """The oldest plan; waits at most so many seconds, None: for ever.

        Raises:
            FailedPreconditionError: None was asked for.
            DeadlineExceededError: It is not there yet, and still will be.
            SkrullError: What ``plan`` raised, with the step before its message.
        """
        self._check_process()
        try:
            step, future = self._futures.popleft()
        except IndexError:
            raise FailedPreconditionError(
                "no batch waits: call submit() first"
            ) from None
        if not concurrent.futures.wait([future], timeout).done:
            self._futures.appendleft((step, future))
            raise DeadlineExceededError(
                f"step {step} was not planned within {timeout} s"
            )
        try:
            return future.result()
        except SkrullError as error:
            raise of_step(step, error) from None

    def __len__(self) -> int:
        """Batches that ``next`` has not returned."""
        self._check_process()
        return len(self._futures)

    def close(self) -> None:
        """Drops what waits; does not wait for the plan that is being made."""
        if self._process == os.getpid():
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._futures.clear()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._thread = concurrent.futures.ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="skrull-plan"
        )
        self._futures: collections.deque[
            tuple[int, concurrent.futures.Future[Plan]]
        ] = collections.deque()


def of_step(step: int, error: SkrullError) -> SkrullError:
    """The same error, whose message says which batch it is about."""
    error.message = f"step {step}: {error.message}"
    return error
