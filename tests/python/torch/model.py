"""A model of one attention layer, on planned rows or on whole sequences."""

from __future__ import annotations

import pool
import skrull
import torch.nn.functional
from skrull.torch import attention

import torch

VOCABULARY = 17
WIDTH = pool.Q_HEADS * pool.HEAD_DIM


class Model(torch.nn.Module):
    """Embedding, positions, attention, logits; float64."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = torch.nn.Linear(
            WIDTH, WIDTH + 2 * pool.KV_HEADS * pool.HEAD_DIM, bias=False
        )
        self.out = torch.nn.Linear(WIDTH, VOCABULARY)
        self.double()

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        micro_batch: skrull.MicroBatch | None,
    ) -> torch.Tensor:
        """Logits [rows, VOCABULARY]; one whole sequence if micro_batch is None."""
        angle = positions.double()[:, None] / torch.arange(1, WIDTH + 1)
        x = self.embedding(ids) + angle.sin()
        heads = self.qkv(x).unflatten(1, (-1, pool.HEAD_DIM))
        q, k, v = heads.split([pool.Q_HEADS, pool.KV_HEADS, pool.KV_HEADS], dim=1)
        if micro_batch is None:
            o = pool.dense_attention(q, k, v)
        else:
            o = attention(q, k, v, micro_batch)
        return self.out(x + o.flatten(1))


def single_device_loss(
    model: Model, sequences: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """The mean over all labels of whole sequences, given as (ids, labels)."""
    count = sum(int((labels != -100).sum()) for _, labels in sequences)
    loss = torch.zeros((), dtype=torch.float64)
    for ids, labels in sequences:
        logits = model(ids, torch.arange(len(ids)), None)
        each = torch.nn.functional.cross_entropy(
            logits, labels, ignore_index=-100, reduction="sum"
        )
        loss = loss + each / count
    return loss
