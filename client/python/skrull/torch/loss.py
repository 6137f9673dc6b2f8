"""A loss that does not depend on who holds which tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed
import torch.nn.functional

from skrull.errors import FailedPreconditionError, InvalidArgumentError

IGNORED = -100  # a label that does not count, as in torch's cross_entropy


def token_weighted_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    global_label_count: int,
    *,
    world_scale: float,
) -> torch.Tensor:
    """This micro-batch's part of the mean cross-entropy over the global batch.

    Summed over the micro-batches and ranks of a step it is the mean over all label
    tokens of the batch, and so are its gradients: what one device would compute. A
    rank without labels, or without rows, gives 0 and gradients of 0.

    Args:
        logits: [..., vocabulary], of floats. 16-bit ones are summed in float32.
        labels: [...], int64: the token that each row is to predict, already
            shifted; -100 where none counts.
        global_label_count: Labels that count in the global batch, over all
            micro-batches and ranks, >= 1: see :func:`global_label_count`.
        world_scale: Ranks over which the trainer averages gradients afterwards:
            ``engine.world_size`` under DDP, FSDP and DeepSpeed, which average; 1
            where they are summed, or there is one rank.

    Returns:
        A scalar: ``world_scale`` times the sum of this rank's label losses over
        ``global_label_count``.

    Raises:
        InvalidArgumentError: ``global_label_count`` is below 1, or the shapes do
            not fit.
    """
    if global_label_count < 1:
        raise InvalidArgumentError(
            f"global_label_count: must be at least 1, is {global_label_count}: no "
            "token of the batch has a label",
            field="global_label_count",
        )
    if logits.shape[:-1] != labels.shape:
        raise InvalidArgumentError(
            f"labels: {list(labels.shape)} do not fit logits {list(logits.shape)}",
            field="labels",
        )
    rows = logits.reshape(-1, logits.shape[-1])
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    total = torch.nn.functional.cross_entropy(
        rows, labels.reshape(-1), ignore_index=IGNORED, reduction="sum"
    )
    return total * (world_scale / global_label_count)


def label_count(labels: torch.Tensor) -> int:
    """Labels that count, of a tensor of any shape."""
    return int((labels != IGNORED).sum())


def global_label_count(
    labels: Iterable[torch.Tensor],
    *,
    world_size: int,
    reduce: Callable[[int], int] | None = None,
) -> int:
    """Labels that count in a global batch, over all ranks. Collective.

    Args:
        labels: This rank's, of all its micro-batches; none for a rank without.
        world_size: Ranks that hold the batch: ``engine.world_size``.
        reduce: Sums a number over those ranks; None: an all-reduce of
            ``torch.distributed``'s default group.

    Raises:
        FailedPreconditionError: ``reduce`` is None, and the default group is not
            one of ``world_size`` ranks.
    """
    mine = sum(label_count(part) for part in labels)
    if reduce is not None:
        return reduce(mine)
    if world_size == 1:
        return mine
    group = torch.distributed.is_initialized()
    if not group or torch.distributed.get_world_size() != world_size:
        size = torch.distributed.get_world_size() if group else 0
        raise FailedPreconditionError(
            f"labels of {world_size} ranks are to be counted, where torch.distributed "
            f"has {size or 'no'} ranks: initialise it, or give `reduce`"
        )
    on = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    count = torch.tensor(mine, dtype=torch.int64, device=on)
    torch.distributed.all_reduce(count)
    return int(count)
