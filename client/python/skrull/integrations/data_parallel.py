"""Gradient accumulation under DDP and FSDP, in plans whose steps differ in length.

Example:
    >>> for index, batch in enumerate(step.micro_batches):
    ...     last = index + 1 == len(step.micro_batches)
    ...     with gradient_sync(model, when=last):
    ...         loss_of(model, batch).backward()
    >>> optimizer.step()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

# Of one reduction: enough that its latency does not count, and little beside the
# gradients themselves, of which it is a copy.
_BUCKET_BYTES = 1 << 25


def average_gradients(
    model: torch.nn.Module, group: dist.ProcessGroup | None = None
) -> None:
    """Averages gradients over the ranks, as DDP does inside a backward pass.

    For what ``skrull.torch.run_step`` ran, which must not reduce by itself: a rank
    that ran out of memory could not take part. Collective.

    Args:
        model: Any, with the same parameters on every rank. A parameter without a
            gradient on this rank counts as one of zeros. Under ``DDP``, what ran
            was inside ``no_sync()``.
        group: Of all ranks of the pool; None: the default group.
    """
    bucket: list[torch.Tensor] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        other = bool(bucket) and bucket[0].dtype != parameter.grad.dtype
        if other or sum(grad.nbytes for grad in bucket) >= _BUCKET_BYTES:
            _average(bucket, group)
            bucket = []
        bucket.append(parameter.grad)
    if bucket:
        _average(bucket, group)


def _average(gradients: list[torch.Tensor], group: dist.ProcessGroup | None) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


@contextlib.contextmanager
def gradient_sync(model: torch.nn.Module, *, when: bool) -> Iterator[None]:
    """Reduces gradients over the ranks in backward passes inside, or leaves them be.

    Plans give every rank the same number of micro-batches in a step, so all of them
    reduce in the same one, the last, also where a rank has no rows in it.

    Args:
        model: A ``DistributedDataParallel``, a model that ``fully_shard`` was
            applied to (FSDP2) or a ``FullyShardedDataParallel``; any other model is
            left alone. FSDP gathers weights in every micro-batch all the same, and
            keeps whole gradients until the last: pass ``when=True`` always if there
            is no memory for them, which costs a reduction each.
        when: Reduce. On every rank the same.
    """
    if hasattr(model, "set_requires_gradient_sync"):
        sharded: Any = model
        sharded.set_requires_gradient_sync(when)
        try:
            yield
        finally:
            sharded.set_requires_gradient_sync(True)
    elif when or not hasattr(model, "no_sync"):
        yield
    else:
        unsynchronised: Any = model
        with unsynchronised.no_sync():
            yield
