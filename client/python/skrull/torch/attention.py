"""Attention over the rows of a micro-batch, as torch operators."""

# No ``from __future__ import annotations``: torch reads the types of operators.

from typing import Any, Protocol

import torch

from skrull.errors import FailedPreconditionError
from skrull.rank_plan import MicroBatch
from skrull.torch import _tensors
from skrull.torch.step import Part, find_step


class HasMicroBatch(Protocol):
    """What carries a micro-batch, such as ``TrainMicroBatch``."""

    micro_batch: MicroBatch


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    micro_batch: MicroBatch | Part | HasMicroBatch,
) -> torch.Tensor:
    """Causal attention of every sequence of a micro-batch, whoever holds its rows.

    Each row attends to the rows of its own sequence up to its own position, on
    whatever ranks they are. Collective: every rank calls it for the same layers
    and micro-batches in the same order, also with 0 rows, and runs the backward
    pass of each. Differentiable once; opaque to ``torch.compile``; under
    ``torch.utils.checkpoint`` the recomputation exchanges keys and values again.

    Args:
        q: [rows, q_heads, head_dim], of the session's dtype, on its device; any
            strides. Rows are those of ``micro_batch``, in its order. Query head h
            reads key head h // (q_heads // kv_heads).
        k: [rows, kv_heads, head_dim].
        v: [rows, kv_heads, head_dim].
        micro_batch: Of the step that a session has prepared. Where two sessions
            prepared the same rank plan, the later one is used; a ``Part`` of a
            ``Step`` says which.

    Returns:
        [rows, q_heads, head_dim], dense.

    Raises:
        FailedPreconditionError: The micro-batch is of no current step.
        SkrullError: Tensors that do not fit the session or the plan, or a failure
            of any rank; the session is then failed on all ranks.
    """
    number = _number(micro_batch)
    if not number:
        raise FailedPreconditionError(
            "the micro-batch is not prepared: call session.prepare(rank_plan) before "
            "the forward pass"
        )
    o: torch.Tensor
    o, _ = torch.ops.skrull.attention(q, k, v, number)
    return o


def _number(micro_batch: MicroBatch | Part | HasMicroBatch) -> int:
    """A part's number by attributes alone, so that torch.compile can follow."""
    if isinstance(micro_batch, Part):
        return micro_batch.number
    if isinstance(micro_batch, MicroBatch):
        return micro_batch.part
    return micro_batch.micro_batch.part


@torch.library.custom_op("skrull::attention", mutates_args=())
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, part: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return find_step(part).forward(part, q, k, v)


@_forward.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, part: int
) -> tuple[torch.Tensor, torch.Tensor]:
    lse = q.new_empty(q.shape[0] * q.shape[1], dtype=_tensors.accumulator(q.dtype))
    return q.new_empty(q.shape), lse


@torch.library.custom_op("skrull::attention_backward", mutates_args=())
def _backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    d_o: torch.Tensor,
    part: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return find_step(part).backward(part, q, k, v, o, lse, d_o)


@_backward.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    d_o: torch.Tensor,
    part: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    q, k, v, ctx.part = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)  # nobody needs a gradient of the log-sum-exps


def _gradients(ctx: Any, d_o: torch.Tensor | None, _: Any) -> tuple[Any, ...]:
    q, k, v, o, lse = ctx.saved_tensors
    if d_o is None:  # the other ranks call it all the same
        d_o = torch.zeros_like(o)
    return *torch.ops.skrull.attention_backward(q, k, v, o, lse, d_o, ctx.part), None


_forward.register_autograd(_gradients, setup_context=_save)
