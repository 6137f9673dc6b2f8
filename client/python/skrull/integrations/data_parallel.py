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
