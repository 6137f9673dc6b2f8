"""Runs a plan with torch.distributed and a varlen kernel.

Without skrull's executor: all it takes is what a RankPlan says.

    attend = VarlenAttention(rank_plan)                # collective, once a step
    o = attend(i, q, k, v)                             # each layer

For those who want their own kernels: `_varlen` calls flash_attn_varlen_func where
it is installed and the tensors are on a GPU, and PyTorch's attention elsewhere.
It is also a second implementation that the executor is tested against. Unlike the
executor, it exchanges keys and values before it computes, and not meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from skrull import MicroBatch, RankPlan, Segment

_groups: dict[tuple[int, int], dist.ProcessGroup] = {}


class VarlenAttention:
    """Attention of one rank's share of a plan.

    Creating it and calling it are collective: every rank of the pool, which is
    torch.distributed's default group, does both in the same order.
    """

    def __init__(self, rank_plan: RankPlan) -> None:
        # Every rank creates every group of the plan, also those it is not in.
        for first_rank, degree in rank_plan.blocks:
            if (first_rank, degree) not in _groups:
                ranks = list(range(first_rank, first_rank + degree))
                _groups[first_rank, degree] = dist.new_group(ranks)
        self._calls = [_Call(batch) for batch in rank_plan.micro_batches]

    def __call__(
        self, micro_batch: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """Q [rows, q_heads, head_dim]; k, v [rows, kv_heads, head_dim] -> o as q."""
        return self._calls[micro_batch].run(q, k, v)


class _Chunk(NamedTuple):
    """Rows of this rank with consecutive positions, and the keys they see."""

    row_begin: int
    row_end: int
    keys: torch.Tensor  # rows of the keys before the last one's end, in order


class _Call:
    """One micro-batch: what is gathered, and who attends to what."""

    def __init__(self, micro_batch: MicroBatch) -> None:
        self._blocks: list[_Block] = []
        self._chunks: list[_Chunk] = []
        row = 0
        for segment in micro_batch.segments:
            if segment.degree == 1:
                end = row + segment.token_count
                self._chunks.append(_Chunk(row, end, torch.arange(row, end)))
                row = end
        # Gathered rows are numbered behind this rank's own.
        gathered = micro_batch.rows
        for key in sorted(_blocks_of(micro_batch.segments)):
            members = [s for s in micro_batch.segments if _block_of(s) == key]
            self._blocks.append(_Block(members, gathered))
            gathered += self._blocks[-1].gathered_rows
        keys = {s: rows for block in self._blocks for s, rows in block.keys.items()}
        for segment in micro_batch.segments:
            if segment.degree == 1:
                continue
            for begin, end in (segment.low, segment.high):
                if end > begin:
                    rows = keys[segment.sequence][:end]
                    self._chunks.append(_Chunk(row, row + end - begin, rows))
                for block in self._blocks:
                    block.add(segment, row, row + end - begin)
                row += end - begin

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        kv = torch.stack((k, v), dim=1)
        rows = torch.cat([kv, *(block.gather(kv) for block in self._blocks)])
        if not self._chunks:
            # Depends on q, k and v, so that their gradients are 0 and not None.
            return q + 0 * rows.sum()
        keys = torch.cat([chunk.keys for chunk in self._chunks]).to(q.device)
        k, v = rows.index_select(0, keys).unbind(1)
        return _varlen(
            q,
            k,
            v,
            [chunk.row_end - chunk.row_begin for chunk in self._chunks],
            [len(chunk.keys) for chunk in self._chunks],
        )


class _Block:
    """One block of ranks and the sequences it shards in a micro-batch.

    Rank r of g holds chunks r and 2g-1-r of each, "low" and "high"; the chunks of
    all ranks, in order, are the sequence. See "Zigzag" in docs/concepts.md.
    """

    def __init__(self, members: Sequence[Segment], first_row: int) -> None:
        self._key = _block_of(members[0])
        degree = self._key[1]
        self._own_rows: list[int] = []
        # counts[i][r]: rows of rank r of the i-th sequence.
        counts, rotation = [], 0
        for segment in members:
            counts.append(_rows_of_ranks(segment.token_count, degree, rotation))
            rotation = (rotation + segment.token_count) % degree
        self._slot = max(sum(of_rank) for of_rank in zip(*counts, strict=True))
        self.gathered_rows = self._slot * degree
        self.keys: dict[int, torch.Tensor] = {}
        offsets = [first_row + r * self._slot for r in range(degree)]
        for segment, rows in zip(members, counts, strict=True):
            parts = list(zip(offsets, rows, strict=True))
            low = [torch.arange(o, o + n // 2) for o, n in parts]
            high = [torch.arange(o + n // 2, o + n) for o, n in parts]
            self.keys[segment.sequence] = torch.cat(low + high[::-1])
            offsets = [o + n for o, n in parts]

    def add(self, segment: Segment, row_begin: int, row_end: int) -> None:
        """Says that this rank's rows of a chunk are [row_begin, row_end)."""
        if _block_of(segment) == self._key:
            self._own_rows += range(row_begin, row_end)

    def gather(self, kv: torch.Tensor) -> torch.Tensor:
        """The rows of all ranks of the block, [degree * slot, ...]. Collective.

        Each rank's are padded to the slot.
        """
        own = kv.index_select(0, torch.tensor(self._own_rows, device=kv.device).long())
        pad = kv.new_zeros(self._slot - len(own), *kv.shape[1:])
        return _AllGather.apply(torch.cat((own, pad)), *self._key)


class _AllGather(torch.autograd.Function):
    """Concatenates the ranks' tensors of one shape; backward sums over them."""

    @staticmethod
    def forward(
        ctx: Any, own: torch.Tensor, first_rank: int, degree: int
    ) -> torch.Tensor:
        ctx.group, ctx.slot = _groups[first_rank, degree], len(own)
        parts = [torch.empty_like(own) for _ in range(degree)]
        dist.all_gather(parts, own.contiguous(), group=ctx.group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # A reduce-scatter, by what every backend of torch.distributed has.
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        begin = dist.get_rank(ctx.group) * ctx.slot
        return grad[begin : begin + ctx.slot], None, None


def _block_of(segment: Segment) -> tuple[int, int]:
    return segment.first_rank, segment.degree


def _blocks_of(segments: Sequence[Segment]) -> set[tuple[int, int]]:
    return {_block_of(segment) for segment in segments if segment.degree > 1}


def _rows_of_ranks(token_count: int, degree: int, rotation: int) -> list[int]:
    """Rows of each rank: even shares, and one more from `rotation` on."""
    share, rest = divmod(token_count, degree)
    return [share + ((r - rotation) % degree < rest) for r in range(degree)]


def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_counts: Sequence[int],
    k_counts: Sequence[int],
) -> torch.Tensor:
    """Causal attention of each run of queries over its run of keys.

    Their ends coincide: the mask is aligned to the bottom right.
    """
    if q.is_cuda:
        from flash_attn import flash_attn_varlen_func

        def offsets(counts: Sequence[int]) -> torch.Tensor:
            sums = torch.tensor([0, *counts]).cumsum(0)
            return sums.to(q.device, torch.int32)

        return flash_attn_varlen_func(
            q,
            k,
            v,
            offsets(q_counts),
            offsets(k_counts),
            max(q_counts),
            max(k_counts),
            causal=True,
        )
    outputs = []
    for q_run, k_run, v_run in zip(
        q.split(list(q_counts)),
        k.split(list(k_counts)),
        v.split(list(k_counts)),
        strict=True,
    ):
        rows, columns = len(q_run), len(k_run)
        mask = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        output = torch.nn.functional.scaled_dot_product_attention(
            q_run.transpose(0, 1)[None],
            k_run.transpose(0, 1)[None],
            v_run.transpose(0, 1)[None],
            attn_mask=mask,
            enable_gqa=True,
        )
        outputs.append(output[0].transpose(0, 1))
    return torch.cat(outputs)
