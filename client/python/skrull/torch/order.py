"""Which sequences make which global batch."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
import torch

from skrull.errors import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class BatchOrder:
    """Maps a step to its global batch: a pure function of these numbers.

    Steps count through all epochs: epoch e has the steps
    [e * steps_per_epoch, (e + 1) * steps_per_epoch).

    Attributes:
        sequence_count: Sequences of the dataset, >= 1.
        batch_size: Sequences of a global batch, >= 1.
        shuffle: Every epoch in another random order; else in the dataset's.
        seed: Of that order, 0 .. 2^62.
        drop_last: Leave out an epoch's last batch if it is smaller than the
            others.

    Raises:
        InvalidArgumentError: A value out of range, or an epoch without a batch;
            ``field`` names it.
    """

    sequence_count: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool

    def __post_init__(self) -> None:
        """Checks the ranges."""
        for name in ("sequence_count", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(
                    f"{name}: must be at least 1, is {getattr(self, name)}", field=name
                )
        if not 0 <= self.seed <= 2**62:
            raise InvalidArgumentError(
                f"seed: must be in 0 .. 2^62, is {self.seed}", field="seed"
            )
        if self.steps_per_epoch == 0:
            raise InvalidArgumentError(
                f"batch_size: {self.sequence_count} sequences make no batch of "
                f"{self.batch_size}, and drop_last leaves out smaller ones",
                field="batch_size",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Global batches of an epoch."""
        full, rest = divmod(self.sequence_count, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def indices(self, step: int) -> npt.NDArray[np.int64]:
        """The batch of a step: indices in the dataset, in the plan's order.

        Args:
            step: >= 0.
        """
        epoch, index = divmod(step, self.steps_per_epoch)
        begin = index * self.batch_size
        end = min(begin + self.batch_size, self.sequence_count)
        if not self.shuffle:
            return np.arange(begin, end)
        return _permutation(self.sequence_count, self.seed + epoch)[begin:end]


@functools.lru_cache(maxsize=2)  # two epochs meet at the end of one
def _permutation(count: int, seed: int) -> npt.NDArray[np.int64]:
    generator = torch.Generator().manual_seed(seed)
    order: npt.NDArray[np.int64] = torch.randperm(count, generator=generator).numpy()
    order.setflags(write=False)
    return order
