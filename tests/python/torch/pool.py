"""Ranks as threads, batches with known answers, and dense attention."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import skrull
from skrull.torch import InProcessPeers, Session, attention

import torch

T = TypeVar("T")
Q_HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8


def make_job(
    dp: int = 1,
    cp: int = 1,
    bucket: int = 64,
    *,
    scope: str = "GROUP",
    policy: str = "POLICY_SKRULL",
) -> skrull.Job:
    return skrull.Job.from_text(
        f"""
        model {{ hidden_size: {Q_HEADS * HEAD_DIM} layer_count: 2
                 attention_head_count: {Q_HEADS} kv_head_count: {KV_HEADS}
                 head_dim: {HEAD_DIM} intermediate_size: 64 vocab_size: 64 }}
        parallelism {{ dp_size: {dp} cp_size: {cp}
                       block_scope: BLOCK_SCOPE_{scope} }}
        memory {{ bucket_size_tokens: {bucket} }}
        policy: {policy}
        """
    )


def on_ranks(ranks: int, work: Callable[[int], T], *, timeout: float = 120) -> list[T]:
    """Runs work(rank) on a thread each; raises the first rank's failure."""
    results: dict[int, T] = {}
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            failures[rank] = error

    threads = [
        threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    if failures:
        raise failures[min(failures)]
    return [results[rank] for rank in range(ranks)]


def failures_on_ranks(
    ranks: int, work: Callable[[int], object]
) -> list[skrull.SkrullError]:
    """As on_ranks, where every rank must fail; returns their errors."""

    def fail(rank: int) -> skrull.SkrullError:
        try:
            work(rank)
        except skrull.SkrullError as error:
            return error
        raise AssertionError(f"rank {rank} did not fail")

    return on_ranks(ranks, fail)


def open_session(
    engine: skrull.Engine,
    rank: int,
    peers: InProcessPeers,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> Session:
    return Session(
        engine,
        rank,
        q_heads=Q_HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        dtype=dtype,
        comm="in_process",
        peers=peers,
        **{"time_limit": 30.0, "cpu_threads": 1, **options},
    )


def dense_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of one whole sequence, spelled out."""
    group = q.shape[1] // k.shape[1]
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[2] ** -0.5
    later = torch.triu(torch.ones(scores.shape[1:], dtype=torch.bool), diagonal=1)
    weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


@dataclasses.dataclass
class Batch:
    """Random q, k, v and d_o of whole sequences, and what attention gives.

    Tensors are lists by sequence, float64 [length, heads, head_dim].
    """

    inputs: dict[str, list[torch.Tensor]]
    answers: dict[str, list[torch.Tensor]]  # o, and the gradients q, k, v

    @classmethod
    def random(cls, lengths: Sequence[int], seed: int = 0) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        heads = {"q": Q_HEADS, "k": KV_HEADS, "v": KV_HEADS, "d_o": Q_HEADS}
        inputs: dict[str, list[torch.Tensor]] = {name: [] for name in heads}
        answers: dict[str, list[torch.Tensor]] = {n: [] for n in ("o", "q", "k", "v")}
        for length in lengths:
            made = {
                name: torch.randn(
                    length, count, HEAD_DIM, dtype=torch.float64, generator=generator
                )
                for name, count in heads.items()
            }
            for name, tensor in made.items():
                inputs[name].append(tensor)
            qkv = [made[name].clone().requires_grad_() for name in ("q", "k", "v")]
            o = dense_attention(*qkv)
            o.backward(made["d_o"])
            answers["o"].append(o.detach())
            for name, tensor in zip(("q", "k", "v"), qkv, strict=True):
                assert tensor.grad is not None
                answers[name].append(tensor.grad)
        return cls(inputs, answers)


def rows_of(
    micro_batch: skrull.MicroBatch, sequences: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The rank's rows of whole sequences, [rows, ...], one by one."""
    pairs = zip(micro_batch.sequences, micro_batch.positions, strict=True)
    rows = [sequences[s][p] for s, p in pairs]
    return torch.stack(rows) if rows else sequences[0][:0]


def check_micro_batch(
    micro_batch: skrull.MicroBatch,
    batch: Batch,
    run: Callable[..., torch.Tensor] = attention,
    *,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-12,
) -> None:
    """run(q, k, v, micro_batch) and its gradients are the dense ones."""
    given = {n: rows_of(micro_batch, t).to(dtype) for n, t in batch.inputs.items()}
    qkv = [given[name].clone().requires_grad_() for name in ("q", "k", "v")]
    o = run(*qkv, micro_batch)
    o.backward(given["d_o"])
    made = {"o": o.detach(), "q": qkv[0].grad, "k": qkv[1].grad, "v": qkv[2].grad}
    for name, tensor in made.items():
        assert tensor is not None
        assert tensor.dtype == dtype
        wanted = rows_of(micro_batch, batch.answers[name])
        torch.testing.assert_close(
            tensor.double(),
            wanted,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m, name=name: (
                f"{name} of rank {micro_batch.rank_plan.rank}, {micro_batch}: {m}"
            ),
        )
