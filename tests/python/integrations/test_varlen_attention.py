"""The executor, plain PyTorch over torch.distributed, and dense attention agree."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import skrull
import varlen_attention
from skrull.torch import Session, attention

import forked_ranks
import torch

RANKS = 8
LENGTHS = [300, 37, 1, 130, 9, 64, 5, 3, 200, 77, 2]
NAMES = ("q", "k", "v", "d_o")
HEADS = {"q": 4, "k": 2, "v": 2, "d_o": 4}
HEAD_DIM = 16
# Sums of at most 300 products of numbers near 1 in float64, in another order.
TOLERANCE = 1e-12

Whole = dict[str, list[torch.Tensor]]  # by name, [length, heads, HEAD_DIM] each


def _job(scope: str, policy: str) -> skrull.Job:
    return skrull.Job.from_text(
        f"""
        model {{ hidden_size: 64 layer_count: 2 attention_head_count: 4
                 kv_head_count: 2 head_dim: 16 intermediate_size: 128
                 vocab_size: 256 }}
        parallelism {{ dp_size: 2 cp_size: 4 block_scope: BLOCK_SCOPE_{scope} }}
        memory {{ bucket_size_tokens: 96 }}
        cost {{ flops_formula: FLOPS_FORMULA_EXACT seconds_per_flop: 1e-9
                intra_node {{ seconds_per_collective: 1e-4 seconds_per_byte: 1e-9 }}
        }}
        policy: POLICY_{policy}
        """
    )


def _inputs() -> Whole:
    random = torch.Generator().manual_seed(3)
    return {
        name: [
            torch.randn(n, HEADS[name], HEAD_DIM, dtype=torch.float64, generator=random)
            for n in LENGTHS
        ]
        for name in NAMES
    }


def _dense(inputs: Whole) -> list[list[torch.Tensor]]:
    """o, dq, dk, dv of each sequence, every score spelled out."""
    answers = []
    for q, k, v, d_o in zip(*(inputs[name] for name in NAMES), strict=True):
        leaves = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        keys, values = (t.repeat_interleave(2, dim=1) for t in leaves[1:])
        scores = torch.einsum("qhd,khd->hqk", leaves[0], keys) * HEAD_DIM**-0.5
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(2)
        o = torch.einsum("hqk,khd->qhd", weights, values)
        o.backward(d_o)
        answers.append([o.detach(), *(leaf.grad for leaf in leaves)])
    return answers


def _rank(
    rank: int, job: skrull.Job, inputs: Whole, folder: pathlib.Path
) -> tuple[list[Any], list[Any]]:
    """Per micro-batch: which rows, their answers by both; and the segments."""
    rows = []
    with (
        forked_ranks.process_group(rank, RANKS, folder),
        skrull.local(job) as engine,
        Session(
            engine, rank, q_heads=4, kv_heads=2, head_dim=HEAD_DIM, dtype=torch.float64
        ) as session,
    ):
        share = engine.plan(0, LENGTHS).rank_plan(rank)
        session.prepare(share)
        attend = varlen_attention.VarlenAttention(share)
        for batch in share.micro_batches:
            both = [
                _run(batch, inputs, lambda q, k, v, b=batch: attention(q, k, v, b)),
                _run(batch, inputs, lambda q, k, v, b=batch: attend(b.index, q, k, v)),
            ]
            rows.append((batch.sequences, batch.positions, both))
    return rows, [s for batch in share.micro_batches for s in batch.segments]


def _run(batch: skrull.MicroBatch, inputs: Whole, run: Any) -> list[torch.Tensor]:
    taken = [
        torch.from_numpy(
            batch.gather([t.numpy() for t in inputs[name]], dtype=np.float64)
        ).reshape(batch.rows, HEADS[name], HEAD_DIM)
        for name in NAMES
    ]
    leaves = [tensor.requires_grad_() for tensor in taken[:3]]
    o = run(*leaves)
    o.backward(taken[3])
    return [o.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize(
    ("scope", "policy", "degrees"),
    [
        ("GROUP", "OPTIMIZED", {1, 4}),
        ("POOL", "OPTIMIZED", {4, 8}),
        ("GROUP", "STATIC_CP", {4}),
    ],
)
def test_agree(
    scope: str, policy: str, degrees: set[int], tmp_path: pathlib.Path
) -> None:
    inputs = _inputs()
    dense = _dense(inputs)
    ranks = forked_ranks.run(RANKS, _rank, _job(scope, policy), inputs, tmp_path)
    assert degrees <= {s.degree for _, segments in ranks for s in segments}
    seen = 0
    for micro_batches, _ in ranks:
        for sequences, positions, both in micro_batches:
            seen += len(sequences)
            for answers in both:
                for which, answer in enumerate(answers):
                    wanted = [
                        dense[s][which][p]
                        for s, p in zip(sequences, positions, strict=True)
                    ]
                    if wanted:
                        torch.testing.assert_close(
                            answer, torch.stack(wanted), rtol=0, atol=TOLERANCE
                        )
    assert seen == sum(LENGTHS)
