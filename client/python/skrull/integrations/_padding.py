"""Rows that a framework needs where a plan has none.

Models reshape activations in ways that fail for zero rows, and a rank may hold none
of a micro-batch. It then computes one row that no loss counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from skrull.errors import InvalidArgumentError
from skrull.rank_plan import MicroBatch
from skrull.torch import attention
from skrull.torch.step import find_step

if TYPE_CHECKING:
    from skrull.torch import TrainMicroBatch

IGNORED = -100  # a label that does not count


class PaddedRows(NamedTuple):
    """A rank's rows of a micro-batch, at least one; each int64 [1, rows]."""

    input_ids: torch.Tensor
    labels: torch.Tensor
    position_ids: torch.Tensor


def padded_rows(batch: TrainMicroBatch) -> PaddedRows:
    """The batch's rows, or one row that is no label if there are none."""
    tensors = (batch.input_ids, batch.labels, batch.position_ids)
    if batch.input_ids.shape[1] > 0:
        return PaddedRows(*tensors)
    return PaddedRows(
        *(
            tensor.new_full((1, 1), filler)
            for tensor, filler in zip(tensors, (0, IGNORED, 0), strict=True)
        )
    )


def padded_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    micro_batch: MicroBatch,
    scale: float | None,
) -> torch.Tensor:
    """``skrull.torch.attention`` of the plan's rows; padding behind them gives 0.

    Args:
        q: [rows or more, q_heads, head_dim].
        k: [as q, kv_heads, head_dim].
        v: [as q, kv_heads, head_dim].
        micro_batch: Whose rows they are.
        scale: What the model wants q.k scaled by; None: whatever the session does.

    Raises:
        InvalidArgumentError: There are fewer rows than the plan has, or the session
            scales by something else.
    """
    if scale is not None and micro_batch.part and not torch.compiler.is_compiling():
        of_session = find_step(micro_batch.part).session.scale
        if not math.isclose(of_session, scale, rel_tol=1e-6):
            raise InvalidArgumentError(
                f"scale: the session's is {of_session}, the model's {scale}",
                field="scale",
            )
    rows = micro_batch.rows
    if len(q) < rows:
        raise InvalidArgumentError(
            f"q: has {len(q)} rows, where the plan has {rows} on this rank: are these "
            "the tokens of this micro-batch?",
            field="q",
        )
    if len(q) == rows:
        return attention(q, k, v, micro_batch)
    o = attention(q[:rows], k[:rows], v[:rows], micro_batch)
    return torch.cat((o, torch.zeros_like(q[rows:])))
