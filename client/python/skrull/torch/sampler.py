"""Global batches with their plans, some steps ahead of the training loop."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from skrull.engine import Engine, Lengths
from skrull.errors import FailedPreconditionError, InvalidArgumentError, SkrullError
from skrull.rank_plan import RankPlan
from skrull.torch.order import BatchOrder

_MOST_NAMED = 32  # indices that an error lists, as the daemon's do


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """One step: its global batch and this rank's share of the plan.

    Attributes:
        step: The training step, counted through all epochs.
        epoch: The epoch it belongs to.
        indices: The global batch: indices in the dataset, int64 [sequences]. A
            plan's ``sequence`` is an index in this list.
        rank_plan: This rank's share.
    """

    step: int
    epoch: int
    indices: npt.NDArray[np.int64]
    rank_plan: RankPlan


class SkrullBatchSampler:
    """Yields the :class:`StepPlan` of each step of an epoch, on every rank.

    Which sequences a step trains depends on seed, epoch and step alone, so
    training that resumes at any step sees the same batches. All ranks give the
    same arguments, ``rank`` apart. Plans are asked for ``prefetch`` steps ahead
    with ``engine.submit``; use one sampler of an engine at a time. For one thread.

    Iterating goes through one epoch, from its beginning or from where it resumes,
    and then moves on to the next. Breaking off and iterating again begins the epoch
    anew.

    Args:
        lengths: Of all sequences of the dataset, tokens, each >= 1.
        batch_size: Sequences of a global batch, over all ranks.
        engine: Plans the batches; not used from another process.
        rank: Whose share, 0 .. engine.world_size - 1.
        shuffle: See ``BatchOrder``; so are ``seed`` and ``drop_last``.
        seed: Of the order.
        drop_last: Leave out an epoch's last, smaller batch.
        prefetch: Steps to plan ahead, 1 .. the engine's ``prefetch_depth`` - 1.
        start_step: The step to resume at, counted through all epochs.

    Raises:
        InvalidArgumentError: An argument is out of range; ``field`` names it.
        FailedPreconditionError: Sequences that can never fit the job; ``indices``
            are theirs, at most 32.
    """

    def __init__(
        self,
        lengths: Lengths,
        batch_size: int,
        engine: Engine,
        rank: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
        start_step: int = 0,
    ) -> None:
        self.lengths = _checked(lengths, engine)
        self.order = BatchOrder(len(self.lengths), batch_size, shuffle, seed, drop_last)
        self._engine = engine
        self._rank = rank
        _at_least("prefetch", prefetch, 1)
        _at_least("start_step", start_step, 0)
        if not 0 <= rank < engine.world_size:
            raise InvalidArgumentError(
                f"rank: must be in 0 .. {engine.world_size - 1}, is {rank}",
                field="rank",
            )
        self._prefetch = prefetch
        self._next_step = start_step
        self._resumes = True

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.order.steps_per_epoch

    @property
    def next_step(self) -> int:
        """The step after the last one that was yielded."""
        return self._next_step

    @property
    def epoch(self) -> int:
        """The epoch that iterating goes through now, or next."""
        return self._next_step // len(self)

    def set_epoch(self, epoch: int) -> None:
        """Goes to an epoch's beginning; to where it resumes, if it does so there.

        Without it, epochs follow one another.

        Args:
            epoch: >= 0.
        """
        _at_least("epoch", epoch, 0)
        if self._resumes and epoch == self.epoch:
            return
        self._next_step = epoch * len(self)
        self._resumes = True

    def state_dict(self) -> dict[str, Any]:
        """Where it is, to be loaded by a sampler of the same arguments."""
        return {"step": self._next_step, **dataclasses.asdict(self.order)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes where another sampler was.

        Raises:
            InvalidArgumentError: It was made for other batches: ``field`` names
                the argument that differs.
        """
        for name, ours in dataclasses.asdict(self.order).items():
            if state[name] != ours:
                raise InvalidArgumentError(
                    f"{name}: is {ours}, where the saved state is of {state[name]}",
                    field=name,
                )
        self._next_step = int(state["step"])
        self._resumes = True

    def __iter__(self) -> Iterator[StepPlan]:
        """The steps from here to the end of the epoch.

        Raises:
            SkrullError: From ``next``: the planner's refusal, with the dataset's
                indices of the sequences at fault in the message.
        """
        for step_plan in self.plans(self.begin()):
            self.passed(step_plan.step)
            yield step_plan

    def begin(self) -> int:
        """The step that iterating from now on begins with."""
        epoch = self.epoch
        if not self._resumes:
            # The last step of an epoch has moved on to the next one already.
            self._next_step = epoch * len(self)
        self._resumes = False
        return self._next_step

    def passed(self, step: int) -> None:
        """Takes note that a step was yielded to the training loop."""
        self._next_step = step + 1

    def plans(self, first: int) -> Iterator[StepPlan]:
        """The steps from ``first`` to the end of its epoch, without taking note."""
        end = (first // len(self) + 1) * len(self)
        self._drop_pending()
        submitted = first
        try:
            for step in range(first, end):
                while submitted < min(end, step + 1 + self._prefetch):
                    self._engine.submit(submitted, self._lengths_of(submitted))
                    submitted += 1
                yield self._take(step)
        finally:
            self._drop_pending()

    def _take(self, step: int) -> StepPlan:
        indices = self.order.indices(step)
        try:
            plan = self._engine.next()
        except SkrullError as error:
            if error.indices:
                at = ", ".join(str(indices[i]) for i in error.indices)
                error.message += f" (indices in the dataset: {at})"
            raise
        return StepPlan(step, step // len(self), indices, plan.rank_plan(self._rank))

    def _lengths_of(self, step: int) -> npt.NDArray[np.int64]:
        return self.lengths[self.order.indices(step)]

    def _drop_pending(self) -> None:
        """Takes the plans that nobody waits for any more out of the engine."""
        with contextlib.suppress(SkrullError):  # a closed engine has none
            while waiting := self._engine.pending:
                with contextlib.suppress(SkrullError):
                    self._engine.next()
                if self._engine.pending >= waiting:
                    return  # no answer: the next plan taken will tell


def _checked(lengths: Lengths, engine: Engine) -> npt.NDArray[np.int64]:
    """Lengths that the job can place: better now than in the middle of training."""
    given = np.asarray(lengths)
    if given.size and (given.ndim != 1 or given.dtype.kind not in "iu"):
        raise InvalidArgumentError(
            "lengths: must be whole numbers in one dimension, are "
            f"{given.dtype} {list(given.shape)}",
            field="lengths",
        )
    short = np.flatnonzero(given < 1)[:_MOST_NAMED].tolist()
    if short:
        raise InvalidArgumentError(
            f"lengths: must be at least 1, is {given[short[0]]} at {short[0]}",
            field="lengths",
            indices=short,
        )
    longest = engine.job.longest_sequence
    long = np.flatnonzero(given > longest)[:_MOST_NAMED].tolist()
    if long:
        raise FailedPreconditionError(
            f"lengths: the job places sequences of at most {longest} tokens, and "
            f"{given[long[0]]} are at {long[0]}: cut it, or give the job a larger "
            "bucket, cp_size or block scope",
            field="lengths",
            indices=long,
            limit=longest,
        )
    return given.astype(np.int64)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidArgumentError(
            f"{name}: must be at least {least}, is {value}", field=name
        )
