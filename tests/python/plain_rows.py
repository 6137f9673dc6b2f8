"""A rank's rows of a batch, cut out of whole samples one by one.

Written apart from skrull.torch's data loader, which the adapters' tests do not need.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import skrull

import torch

IGNORED = -100


@dataclasses.dataclass(frozen=True)
class Rows:
    """What the adapters read of a TrainMicroBatch."""

    input_ids: torch.Tensor  # int64 [1, rows]
    labels: torch.Tensor
    position_ids: torch.Tensor
    micro_batch: skrull.MicroBatch


def rows_of(share: skrull.RankPlan, samples: list[dict[str, Any]]) -> list[Rows]:
    """The rows of each micro-batch; `samples` are those of the whole batch."""
    return [_rows(micro_batch, samples) for micro_batch in share.micro_batches]


def label_count(samples: list[dict[str, Any]]) -> int:
    """Labels of a whole batch that count: the first token is nobody's label."""
    return sum(int((sample["labels"][1:] != IGNORED).sum()) for sample in samples)


def _rows(micro_batch: skrull.MicroBatch, samples: list[dict[str, Any]]) -> Rows:
    tokens, labels, positions = [], [], []
    for segment in micro_batch.segments:
        sample = samples[segment.sequence]
        for position in (*range(*segment.low), *range(*segment.high)):
            last = position + 1 == segment.token_count
            tokens.append(int(sample["input_ids"][position]))
            labels.append(IGNORED if last else int(sample["labels"][position + 1]))
            positions.append(position)
    packed = (
        torch.tensor([values], dtype=torch.int64)
        for values in (tokens, labels, positions)
    )
    return Rows(*packed, micro_batch)
