"""A data loader whose batches are one rank's planned, packed micro-batches."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch.utils.data

from skrull.engine import Engine, Lengths
from skrull.errors import InvalidArgumentError
from skrull.rank_plan import RankPlan
from skrull.torch.batch import TrainBatch
from skrull.torch.packing import MapDataset, Rows, needed, pack
from skrull.torch.sampler import SkrullBatchSampler, StepPlan

T = TypeVar("T")


class SkrullDataLoader:
    """Iterates over :class:`TrainBatch`, one a step, of one rank.

    Plans are made ``prefetch`` steps ahead of what the workers read, and workers
    read and pack ahead of the training loop as those of torch's ``DataLoader`` do.
    Only this process talks to the engine; workers may be made by fork, forkserver
    or spawn. Order, epochs and resuming: see :class:`SkrullBatchSampler`, whose
    ``set_epoch`` is here too.

    Example:
        >>> loader = SkrullDataLoader(dataset, engine, rank, batch_size=64)
        >>> for batch in loader:
        ...     session.prepare(batch.rank_plan)
        ...     for part in batch:
        ...         logits = model(part.input_ids, part.position_ids, part.micro_batch)

    Args:
        dataset: Map-style: see ``MapDataset``.
        engine: See ``SkrullBatchSampler``.
        rank: See ``SkrullBatchSampler``.
        batch_size: Sequences of a global batch, over all ranks.
        lengths: Of all sequences, tokens; None reads every sample once, here, to
            count its ``input_ids``.
        shuffle: See ``SkrullBatchSampler``; so are ``seed``, ``drop_last``,
            ``prefetch`` and ``start_step``.
        seed: See ``shuffle``.
        drop_last: See ``shuffle``.
        prefetch: See ``shuffle``.
        start_step: See ``shuffle``.
        num_workers: Processes that read and pack; 0: this one does.
        multiprocessing_context: As of torch's ``DataLoader``; so are the rest.
        prefetch_factor: Steps that each worker reads ahead.
        persistent_workers: Keep the workers between epochs.
        pin_memory: Put tensors into pinned memory.
        worker_init_fn: Called in each worker with its number.
        timeout: Seconds to wait for a worker; 0: no limit.

    Raises:
        InvalidArgumentError: An argument is out of range; ``field`` names it.
        FailedPreconditionError: See ``SkrullBatchSampler``.
    """

    def __init__(
        self,
        dataset: MapDataset,
        engine: Engine,
        rank: int,
        *,
        batch_size: int,
        lengths: Lengths | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
        start_step: int = 0,
        num_workers: int = 0,
        multiprocessing_context: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory: bool = False,
        worker_init_fn: Callable[[int], None] | None = None,
        timeout: float = 0,
    ) -> None:
        if lengths is None:
            lengths = [len(dataset[i]["input_ids"]) for i in range(len(dataset))]
        if len(lengths) != len(dataset):
            raise InvalidArgumentError(
                f"lengths: there are {len(lengths)} for {len(dataset)} samples",
                field="lengths",
            )
        self.sampler = SkrullBatchSampler(
            lengths,
            batch_size,
            engine,
            rank,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            prefetch=prefetch,
            start_step=start_step,
        )
        self._dataset = dataset
        self._feed = _Feed(self.sampler)
        self._loader: torch.utils.data.DataLoader[list[Rows]] = (
            torch.utils.data.DataLoader(
                _Packed(dataset),  # type: ignore[arg-type]
                sampler=self._feed,
                batch_size=None,
                collate_fn=_as_it_is,
                num_workers=num_workers,
                multiprocessing_context=multiprocessing_context,
                prefetch_factor=prefetch_factor,
                persistent_workers=persistent_workers,
                pin_memory=pin_memory,
                worker_init_fn=worker_init_fn,
                timeout=timeout,
            )
        )

    def __len__(self) -> int:
        """Steps of an epoch."""
        return len(self.sampler)

    @property
    def epoch(self) -> int:
        """See :attr:`SkrullBatchSampler.epoch`."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """See :meth:`SkrullBatchSampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the training loop is: after the batch that it got last."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`SkrullBatchSampler.load_state_dict`."""
        self.sampler.load_state_dict(state)

    def __iter__(self) -> Iterator[TrainBatch]:
        """This rank's share of each step, from here to the end of the epoch.

        Raises:
            SkrullError: From ``next``: the planner's refusal, or a sample that does
                not fit its length.
        """
        self._feed.restart()
        try:
            for rows in self._loader:
                step_plan = self._feed.oldest()
                self.sampler.passed(step_plan.step)
                yield TrainBatch(step_plan, rows, self._replanned)
        finally:
            self._feed.close()

    def _replanned(self, step_plan: StepPlan) -> TrainBatch:
        task = _Task.of(step_plan)
        rows = pack(self._dataset, task.indices, task.rank_plan)
        return TrainBatch(step_plan, rows, self._replanned)


@dataclasses.dataclass(frozen=True)
class _Task:
    """What a worker is told of a step."""

    indices: dict[int, int]
    rank_plan: RankPlan

    @classmethod
    def of(cls, step_plan: StepPlan) -> _Task:
        plan = step_plan.rank_plan
        return cls(needed(plan, step_plan.indices), plan)


class _Feed:
    """Torch's sampler: gives out tasks, and keeps what they were made from."""

    def __init__(self, sampler: SkrullBatchSampler) -> None:
        self._sampler = sampler
        self._given: collections.deque[StepPlan] = collections.deque()
        self._plans: Iterator[StepPlan] = iter(())

    def restart(self) -> None:
        self.close()
        self._plans = self._sampler.plans(self._sampler.begin())

    def close(self) -> None:
        """Ends the plans that nobody waits for any more."""
        self._given.clear()
        plans, self._plans = self._plans, iter(())
        close = getattr(plans, "close", None)
        if close is not None:
            close()

    def oldest(self) -> StepPlan:
        """What the oldest task that was not asked for yet was made from."""
        return self._given.popleft()

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[_Task]:
        for step_plan in self._plans:
            self._given.append(step_plan)
            yield _Task.of(step_plan)


class _Packed:
    """Torch's dataset: a task in, the rows of its micro-batches out."""

    def __init__(self, dataset: MapDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, task: _Task) -> list[Rows]:
        return pack(self._dataset, task.indices, task.rank_plan)


def _as_it_is(rows: T) -> T:
    return rows
