"""A rank plan in execution: the micro-batches that ``attention`` takes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

import torch

from skrull.errors import FailedPreconditionError
from skrull.rank_plan import MicroBatch, RankPlan
from skrull.torch._execution import Execution
from skrull.torch._handles import Handle

if TYPE_CHECKING:
    from skrull.torch.session import Session

_NUMBERS = itertools.count(2)  # torch.compile compiles anew for a 0 or a 1
_STEPS: weakref.WeakValueDictionary[int, Step] = weakref.WeakValueDictionary()


@dataclasses.dataclass(frozen=True)
class Part:
    """One micro-batch of a prepared step: what ``attention`` takes.

    Attributes:
        micro_batch: The rank's share.
        number: Names it to the operators that ``torch.compile`` sees; at least 2,
            and never used again in this process.
    """

    micro_batch: MicroBatch
    number: int


class Step(Sequence[Part]):
    """A rank plan that all ranks agreed on: its micro-batches, in order.

    It can be used as long as something holds it (its session does until it prepares
    another one), and its session neither restarts nor closes.

    Attributes:
        session: The session that prepared it.
        rank_plan: What it runs.
    """

    def __init__(
        self,
        session: Session,
        execution: Execution,
        rank_plan: RankPlan,
        handle: Handle,
    ) -> None:
        self.session = session
        self.rank_plan = rank_plan
        self._execution = execution
        self._handle = handle
        self._parts = [
            Part(micro_batch, next(_NUMBERS)) for micro_batch in rank_plan.micro_batches
        ]
        for part in self._parts:
            _STEPS[part.number] = self
            part.micro_batch.part = part.number

    def __len__(self) -> int:
        """Micro-batches."""
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | Sequence[Part]:
        """Micro-batch ``index``."""
        return self._parts[index]

    def forward(
        self, number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Execution.forward``; ``number`` is a part's."""
        with self._measured("forward"):
            return self._execution.forward(self._handle, self._index(number), q, k, v)

    def backward(
        self, number: int, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See ``Execution.backward``; ``number`` is a part's."""
        with self._measured("backward"):
            return self._execution.backward(self._handle, self._index(number), *tensors)

    def _index(self, number: int) -> int:
        return number - self._parts[0].number

    @contextlib.contextmanager
    def _measured(self, what: str) -> Iterator[None]:
        """Takes the time; ends all ranks' executors where this one's call fails.

        What the executor itself refuses has ended them already.
        """
        begin = time.perf_counter()
        try:
            yield
        except BaseException as error:
            self._execution.abort(
                f"rank {self.rank_plan.rank} failed in {what}: {error}"
            )
            raise
        self.session.attention_seconds += time.perf_counter() - begin


def find_step(number: int) -> Step:
    """The step that a part's number is of.

    Raises:
        FailedPreconditionError: There is none, or none any more.
    """
    step = _STEPS.get(number)
    if step is None:
        raise FailedPreconditionError(
            "the micro-batch is of a step that its session has not prepared, or has "
            "left behind: call session.prepare(rank_plan) before the forward pass, and "
            "run the backward pass before the next prepare()"
        )
    return step
