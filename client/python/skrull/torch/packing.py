"""Samples of a dataset as the rows of a rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from skrull.errors import InvalidArgumentError
from skrull.rank_plan import MicroBatch, RankPlan
from skrull.torch.loss import IGNORED

Tokens = npt.NDArray[np.int64]


class MapDataset(Protocol):
    """A map-style dataset of token sequences.

    An item is a mapping with ``"input_ids"``, [length], and perhaps ``"labels"``,
    [length], of which label i belongs to token i and -100 does not count. Lists,
    arrays and tensors of whole numbers will do.
    """

    def __len__(self) -> int: ...  # noqa: D105

    def __getitem__(self, index: int, /) -> Mapping[str, Any]: ...  # noqa: D105


class Rows(NamedTuple):  # torch pins the memory of tuples
    """Packed rows of one micro-batch, int64 [1, rows] each.

    Attributes:
        input_ids: The token of each row.
        labels: The label that each row predicts: that of the token behind it in
            its sequence, wherever that is; -100 for a sequence's last token.
        position_ids: Each row's position in its sequence.
    """

    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor


def pack(
    dataset: MapDataset, indices: Mapping[int, int], rank_plan: RankPlan
) -> list[Rows]:
    """The rank's rows of every micro-batch.

    Args:
        dataset: Where samples come from; each is read once.
        indices: Index in the dataset of each sequence that the rank holds rows of.
        rank_plan: Says which rows.

    Raises:
        InvalidArgumentError: A sample that does not fit its planned length, or is
            none; names its index.
    """
    lengths = {
        segment.sequence: segment.token_count
        for micro_batch in rank_plan.micro_batches
        for segment in micro_batch.segments
    }
    ids: dict[int, Tokens] = {}
    labels: dict[int, Tokens] = {}
    for sequence, index in indices.items():
        ids[sequence], labels[sequence] = _read(dataset, index, lengths[sequence])
    return [_rows(part, ids, labels) for part in rank_plan.micro_batches]


def needed(rank_plan: RankPlan, indices: npt.NDArray[np.int64]) -> dict[int, int]:
    """Index in the dataset of each sequence that the rank holds rows of.

    Args:
        rank_plan: The rank's share.
        indices: Of the global batch, as in ``StepPlan``.
    """
    return {
        segment.sequence: int(indices[segment.sequence])
        for micro_batch in rank_plan.micro_batches
        for segment in micro_batch.segments
        if segment.rows
    }


def _rows(
    micro_batch: MicroBatch, ids: dict[int, Tokens], labels: dict[int, Tokens]
) -> Rows:
    return Rows(
        *(
            torch.from_numpy(row)[None]
            for row in (
                micro_batch.gather(ids),
                micro_batch.gather(labels),
                micro_batch.positions.astype(np.int64),
            )
        )
    )


def _read(dataset: MapDataset, index: int, length: int) -> tuple[Tokens, Tokens]:
    """Tokens of a sample, and for each the label of the one behind it."""
    sample = dataset[index]
    ids = _tokens(sample, "input_ids", index, length)
    own = _tokens(sample, "labels", index, length) if "labels" in sample else ids
    return ids, np.append(own[1:], IGNORED)


def _tokens(sample: Mapping[str, Any], key: str, index: int, length: int) -> Tokens:
    tokens = np.asarray(sample[key])
    if tokens.shape != (length,) or tokens.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"dataset[{index}][{key!r}]: must be {length} whole numbers, as `lengths` "
            f"says, is {tokens.dtype} {list(tokens.shape)}",
            field=key,
            indices=[index],
        )
    return tokens.astype(np.int64, copy=False)
