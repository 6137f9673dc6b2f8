"""DeepSpeed: ZeRO over all ranks of a plan's pool.

Example:
    >>> check_config(config)
    >>> engine, *_ = deepspeed.initialize(model=model, config=config, ...)
    >>> for step in loader:
    ...     session.prepare(step.rank_plan)
    ...     losses = train_step(engine, step.micro_batches, loss_of)

Nothing of DeepSpeed is imported here: what is used is its engine's own interface.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from skrull.errors import InvalidArgumentError

if TYPE_CHECKING:
    from skrull.torch import TrainMicroBatch


class DeepSpeedEngine(Protocol):
    """What is used of ``deepspeed.DeepSpeedEngine``."""

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """Says whether ``step`` updates the weights after the next backward pass."""

    def backward(self, loss: torch.Tensor) -> Any:
        """Runs the backward pass, and averages gradients over the ranks."""

    def step(self) -> Any:
        """Updates the weights, at a boundary."""


def check_config(config: Mapping[str, Any]) -> None:
    """Refuses a DeepSpeed configuration under which plans would train wrongly.

    Raises:
        InvalidArgumentError: Names the option: losses are scaled by the global
            token count and steps differ in length, so that DeepSpeed must neither
            count micro-batches nor divide by their number; and sequences are
            sharded by the plan.
    """
    for option in ("gradient_accumulation_steps", "train_micro_batch_size_per_gpu"):
        if config.get(option, 1) not in (1, "auto"):
            raise InvalidArgumentError(
                f"{option}: must be 1, is {config[option]}: the plan says how many "
                "micro-batches a step has, and what is in them",
                field=option,
            )
    if config.get("sequence_parallel_size", 1) != 1:
        raise InvalidArgumentError(
            "sequence_parallel_size: must be 1, is "
            f"{config['sequence_parallel_size']}: to DeepSpeed all ranks of the pool "
            "are data-parallel ones",
            field="sequence_parallel_size",
        )


def train_step(
    engine: DeepSpeedEngine,
    micro_batches: Sequence[TrainMicroBatch],
    loss_of: Callable[[TrainMicroBatch], torch.Tensor],
) -> torch.Tensor:
    """Trains on one global batch: every micro-batch, then one update.

    Under ZeRO-2 gradients are partitioned after each micro-batch and the weights
    updated at the last. Under ZeRO-3 every rank also gathers weights in each
    micro-batch: plans have as many of them on every rank, and those without rows
    run all the same.

    Args:
        engine: As ``deepspeed.initialize`` returned it.
        micro_batches: Of this rank, at least one.
        loss_of: The loss of a micro-batch, as ``skrull.torch.token_weighted_loss``
            gives it with ``world_scale`` the ranks of the pool, which DeepSpeed
            averages over.

    Returns:
        The sum of the losses, detached: its mean over the ranks is the loss of the
        global batch.
    """
    losses = []
    for index, batch in enumerate(micro_batches):
        engine.set_gradient_accumulation_boundary(index + 1 == len(micro_batches))
        loss = loss_of(batch)
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    return torch.stack(losses).sum()
