"""What the loader yields: one rank's share of a global batch, packed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import torch

from skrull.rank_plan import MicroBatch, RankPlan
from skrull.torch.loss import label_count
from skrull.torch.packing import Rows
from skrull.torch.sampler import StepPlan


@dataclasses.dataclass(frozen=True)
class TrainMicroBatch:
    """One rank's share of one micro-batch. ``rows`` may be 0: run it all the same.

    Attributes:
        input_ids: int64 [1, rows].
        labels: int64 [1, rows], shifted inside each sequence already: what each row
            is to predict; -100 where none counts.
        position_ids: int64 [1, rows]: each row's position in its own sequence.
        micro_batch: What ``attention`` takes.
        label_count: Labels that count, here.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor
    micro_batch: MicroBatch
    label_count: int

    @property
    def rows(self) -> int:
        """Tokens on this rank."""
        return self.micro_batch.rows

    @property
    def loss_weight(self) -> float:
        """``rows`` over the tokens of the global batch.

        What to multiply a mean over rows by where every token counts. With labels
        left out use ``token_weighted_loss``.
        """
        return self.micro_batch.token_weight

    def to(
        self, device: str | torch.device, *, non_blocking: bool = False
    ) -> TrainMicroBatch:
        """A copy whose tensors are on ``device``."""
        return dataclasses.replace(
            self,
            input_ids=self.input_ids.to(device, non_blocking=non_blocking),
            labels=self.labels.to(device, non_blocking=non_blocking),
            position_ids=self.position_ids.to(device, non_blocking=non_blocking),
        )


class TrainBatch(Sequence[TrainMicroBatch]):
    """One rank's share of a global batch: its micro-batches, in the plan's order.

    Attributes:
        step: The training step, counted through all epochs.
        epoch: The epoch it belongs to.
        indices: The global batch: indices in the dataset, int64 [sequences].
        rank_plan: What ``Session.prepare`` takes.
    """

    def __init__(
        self,
        step_plan: StepPlan,
        rows: Sequence[Rows],
        replan: Callable[[StepPlan], TrainBatch],
    ) -> None:
        self.step: int = step_plan.step
        self.epoch: int = step_plan.epoch
        self.indices: npt.NDArray[np.int64] = step_plan.indices
        self.rank_plan: RankPlan = step_plan.rank_plan
        self._step_plan = step_plan
        self._replan = replan
        self._micro_batches = [
            TrainMicroBatch(
                input_ids=part.input_ids,
                labels=part.labels,
                position_ids=part.position_ids,
                micro_batch=micro_batch,
                label_count=label_count(part.labels),
            )
            for part, micro_batch in zip(
                rows, self.rank_plan.micro_batches, strict=True
            )
        ]

    def __len__(self) -> int:
        """Micro-batches; the same number on every rank."""
        return len(self._micro_batches)

    @overload
    def __getitem__(self, index: int) -> TrainMicroBatch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[TrainMicroBatch]: ...
    def __getitem__(
        self, index: int | slice
    ) -> TrainMicroBatch | Sequence[TrainMicroBatch]:
        """Micro-batch ``index``."""
        return self._micro_batches[index]

    @property
    def labels(self) -> list[torch.Tensor]:
        """Of each micro-batch: what ``global_label_count`` takes."""
        return [micro_batch.labels for micro_batch in self._micro_batches]

    def replan(self, rank_plan: RankPlan) -> TrainBatch:
        """The same global batch by another plan, such as the next attempt's.

        Reads the samples in this process.

        Args:
            rank_plan: This rank's share of a plan for the same lengths.
        """
        return self._replan(dataclasses.replace(self._step_plan, rank_plan=rank_plan))
