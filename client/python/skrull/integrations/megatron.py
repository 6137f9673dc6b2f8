"""Megatron-Core: ``core_attention`` and rotary positions that follow a plan.

Example:
    >>> use_skrull(layer_spec)                      # before the model is built
    >>> model = GPTModel(config, layer_spec, ...)
    >>> follow_positions(model)
    >>> inputs, labels = model_inputs(batch)
    >>> logits = model(**inputs)

To Megatron every rank of the pool is a data-parallel rank: ``context_parallel_size``
is 1, and ``calculate_per_token_loss`` divides by the tokens of all ranks. Tensor
parallelism goes beside it: a pool is then of the ranks with one tensor-parallel rank.
"""

# Megatron-Core has no types, and may be missing where types are checked.
# mypy: disable-error-code="import-untyped,import-not-found,misc"

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.spec_utils import ModuleSpec

from skrull.errors import InvalidArgumentError, UnsupportedError
from skrull.integrations._padding import padded_attention, padded_rows
from skrull.rank_plan import MicroBatch

if TYPE_CHECKING:
    from skrull.torch import TrainMicroBatch


@dataclasses.dataclass
class PlannedSeqParams(PackedSeqParams):
    """A micro-batch, in the place where Megatron hands on packed sequences.

    ``cu_seqlens_q`` and ``cu_seqlens_kv`` describe the same segments to those who
    have kernels of their own: rows of queries, and the keys in order that each sees,
    causal and aligned to the bottom right.
    """

    micro_batch: MicroBatch | None = None
    position_ids: torch.Tensor | None = None  # int64 [rows, or 1 if there is none]


def packed_seq_params(
    micro_batch: MicroBatch, device: str | torch.device = "cpu"
) -> PlannedSeqParams:
    """What the layers need of a micro-batch.

    Args:
        micro_batch: Of the step that a session has prepared.
        device: Where the model is.
    """
    q_offsets, longest_q = micro_batch.to_cu_seqlens()
    key_counts = [
        end
        for segment in micro_batch.segments
        for begin, end in (segment.low, segment.high)
        if end > begin
    ]
    positions = micro_batch.positions if micro_batch.rows else [0]
    return PlannedSeqParams(
        qkv_format="sbhd",  # rows are not of whole sequences: RoPE must not use them
        cu_seqlens_q=torch.as_tensor(q_offsets.copy(), device=device),
        cu_seqlens_kv=torch.tensor([0, *key_counts], device=device)
        .cumsum(0)
        .to(torch.int32),
        max_seqlen_q=longest_q,
        # Also how far Megatron counts rotary positions.
        max_seqlen_kv=max(key_counts, default=1),
        micro_batch=micro_batch,
        position_ids=torch.tensor(positions, dtype=torch.int64, device=device),
    )


def model_inputs(batch: TrainMicroBatch) -> tuple[dict[str, Any], torch.Tensor]:
    """What ``GPTModel`` takes, and the labels [1, rows] of its logits.

    A rank without rows gets one row without a label. The labels are shifted
    already: leave them to ``skrull.torch.token_weighted_loss``.
    """
    rows = padded_rows(batch)
    inputs = {
        "input_ids": rows.input_ids,
        "position_ids": rows.position_ids,
        "attention_mask": None,
        "packed_seq_params": packed_seq_params(
            batch.micro_batch, rows.input_ids.device
        ),
    }
    return inputs, rows.labels


def use_skrull(layer_spec: ModuleSpec) -> None:
    """Makes the layers of a spec compute attention by plans.

    Raises:
        UnsupportedError: The spec has no ``self_attention`` with a
            ``core_attention``.
    """
    attention = getattr(layer_spec.submodules, "self_attention", None)
    submodules = getattr(attention, "submodules", None)
    if submodules is None or not hasattr(submodules, "core_attention"):
        raise UnsupportedError(
            "the layer spec has no self_attention.core_attention to replace"
        )
    submodules.core_attention = SkrullCoreAttention


def follow_positions(model: torch.nn.Module) -> None:
    """Makes a ``GPTModel`` rotate each row by its position in its sequence.

    Raises:
        UnsupportedError: Its positions are not rotary ones ("rope").
    """
    if getattr(model, "position_embedding_type", None) != "rope":
        raise UnsupportedError(
            "position_embedding_type: must be 'rope', is "
            f"{getattr(model, 'position_embedding_type', None)!r}"
        )
    inner: Any = model.rotary_pos_emb
    model.rotary_pos_emb = PlannedRotaryEmbedding(inner)


class SkrullCoreAttention(torch.nn.Module):
    """Attention over a plan, with the interface of ``DotProductAttention``.

    Raises:
        UnsupportedError: Dropout, windows, a softmax with an offset, another mask
            than a causal one, or context parallelism of Megatron's own.
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        **_: Any,
    ) -> None:
        super().__init__()
        dropout = (
            config.attention_dropout
            if attention_dropout is None
            else (attention_dropout)
        )
        wrong = {
            "attention_dropout": dropout,
            "window_size": getattr(config, "window_size", None),
            "softmax_type": getattr(config, "softmax_type", "vanilla") != "vanilla",
            "apply_query_key_layer_scaling": config.apply_query_key_layer_scaling,
            "attention_type": attention_type != "self",
            "attn_mask_type": "causal" not in attn_mask_type.name,
            "context_parallel_size": config.context_parallel_size != 1,
        }
        for name, value in wrong.items():
            if value:
                raise UnsupportedError(
                    f"{name}: {getattr(config, name, value)} is not supported in layer "
                    f"{layer_number}",
                    field=name,
                )
        self.softmax_scale = softmax_scale or config.kv_channels**-0.5

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        packed_seq_params: PackedSeqParams | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """As ``DotProductAttention``; the plan is the mask.

        Args:
            query: [rows, 1, q_heads, head_dim].
            key: [rows, 1, kv_heads, head_dim].
            value: [rows, 1, kv_heads, head_dim].
            attention_mask: Not looked at.
            packed_seq_params: What this module's ``packed_seq_params`` gave.

        Returns:
            [rows, 1, q_heads * head_dim].
        """
        if not isinstance(packed_seq_params, PlannedSeqParams):
            raise InvalidArgumentError(
                "packed_seq_params: must be of "
                "skrull.integrations.megatron.packed_seq_params(micro_batch)",
                field="packed_seq_params",
            )
        if query.shape[1] != 1:
            raise InvalidArgumentError(
                f"query: of {query.shape[1]} batch rows; a plan packs them into one",
                field="query",
            )
        assert packed_seq_params.micro_batch is not None
        q, k, v = (tensor.squeeze(1) for tensor in (query, key, value))
        output = padded_attention(
            q, k, v, packed_seq_params.micro_batch, self.softmax_scale
        )
        return output.reshape(output.shape[0], 1, -1)


class PlannedRotaryEmbedding(torch.nn.Module):
    """A ``RotaryEmbedding`` that gives rows the angles of their own positions.

    For one forward pass at a time: the model asks for the length first, and that
    call tells which rows come.
    """

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner: Any = inner
        self._position_ids: torch.Tensor | None = None

    def get_rotary_seq_len(
        self, *arguments: Any, packed_seq_params: Any = None, **options: Any
    ) -> int:
        """As of the embedding; remembers whose rows come."""
        planned = packed_seq_params or arguments[-1]
        self._position_ids = getattr(planned, "position_ids", None)
        if self._position_ids is None:
            raise InvalidArgumentError(
                "the model was called without skrull's packed_seq_params",
                field="packed_seq_params",
            )
        return int(self._position_ids.max()) + 1

    def forward(self, length: int, **_: Any) -> torch.Tensor:
        """[rows, 1, 1, rotary_dim], of ``length`` positions."""
        angles: torch.Tensor = self.inner.get_emb(length)
        assert self._position_ids is not None
        return angles.index_select(0, self._position_ids)
