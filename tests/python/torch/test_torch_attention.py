"""Attention against dense attention of every sequence, on ranks as threads."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable

import pool
import pytest
import skrull
from skrull.torch import InProcessPeers, _tensors, attention

import torch


@dataclasses.dataclass(frozen=True)
class Case:
    """Lengths and a job, and what its plan must be like for the case to count."""

    lengths: list[int]
    job: dict[str, object]
    is_so: Callable[[list[skrull.RankPlan]], bool]


def _segments(shares: list[skrull.RankPlan]) -> list[skrull.Segment]:
    return [s for share in shares for mb in share.micro_batches for s in mb.segments]


def _all_local(shares: list[skrull.RankPlan]) -> bool:
    return all(s.degree == 1 for s in _segments(shares))


def _all_sharded(shares: list[skrull.RankPlan]) -> bool:
    return all(s.degree > 1 for s in _segments(shares))


def _mixed(shares: list[skrull.RankPlan]) -> bool:
    return any(
        0 < mb.local_rows < mb.rows for share in shares for mb in share.micro_batches
    )


def _some_empty(shares: list[skrull.RankPlan]) -> bool:
    return any(mb.rows == 0 for share in shares for mb in share.micro_batches)


def _on_all_four(shares: list[skrull.RankPlan]) -> bool:
    return {1, 4} <= {s.degree for s in _segments(shares)}


CASES = {
    "one rank": Case([5, 1, 20, 33], {"bucket": 40}, _all_local),
    "five in one buffer": Case([9, 3, 7, 5, 8], {"cp": 2, "bucket": 64}, _all_local),
    "five sharded": Case(
        [9, 3, 7, 5, 8],
        {"cp": 2, "bucket": 64, "policy": "POLICY_PACKED_STATIC_CP"},
        _all_sharded,
    ),
    "mixed": Case([1, 2, 5, 45], {"cp": 2, "bucket": 27}, _mixed),
    "mixed on four": Case([7, 3, 1, 2, 90, 11], {"cp": 4, "bucket": 30}, _mixed),
    "shards without rows": Case(
        [3, 9], {"cp": 4, "bucket": 4, "policy": "POLICY_STATIC_CP"}, _some_empty
    ),
    "dp ranks without rows": Case([5], {"dp": 4, "bucket": 100}, _some_empty),
    "two groups": Case([40, 3, 5, 50, 8], {"dp": 2, "cp": 2, "bucket": 26}, _mixed),
    "blocks of the pool": Case(
        [100, 3, 5, 9], {"dp": 2, "cp": 2, "bucket": 30, "scope": "POOL"}, _on_all_four
    ),
}


@pytest.mark.parametrize("exchange", ["all_gather", "ring"])
@pytest.mark.parametrize("name", CASES)
def test_equals_dense_attention(name: str, exchange: str) -> None:
    case = CASES[name]
    engine = skrull.local(pool.make_job(**case.job))
    plan = engine.plan(0, case.lengths)
    shares = [plan.rank_plan(rank) for rank in range(plan.world_size)]
    assert case.is_so(shares), shares
    batch = pool.Batch.random(case.lengths)
    peers = InProcessPeers()

    def run(rank: int) -> int:
        with pool.open_session(engine, rank, peers, exchange=exchange) as session:
            step = session.prepare(shares[rank])
            assert session.current is step
            for part in step:
                pool.check_micro_batch(part.micro_batch, batch)
        return sum(part.micro_batch.rows for part in step)

    assert sum(pool.on_ranks(plan.world_size, run)) == sum(case.lengths)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.bfloat16, 6e-2), (torch.float16, 8e-3)],
)
def test_types(dtype: torch.dtype, tolerance: float) -> None:
    engine = skrull.local(pool.make_job(cp=2, bucket=27))
    plan = engine.plan(0, [1, 2, 5, 45])
    batch = pool.Batch.random([1, 2, 5, 45])
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers, dtype) as session:
            for part in session.prepare(plan.rank_plan(rank)):
                pool.check_micro_batch(
                    part.micro_batch, batch, dtype=dtype, tolerance=tolerance
                )

    pool.on_ranks(2, run)


def _head_major(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    rows, heads, dim = tensor.shape
    wide = tensor.new_full((rows, 2 * heads, dim + 3), float("nan"))
    view = wide[:, ::2, 1 : dim + 1]
    view.copy_(tensor)
    return view


def _strided_elements(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("layout", [_head_major, _sliced, _strided_elements])
def test_tensors_as_they_lie(
    layout: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    engine = skrull.local(pool.make_job(cp=2, bucket=27))
    plan = engine.plan(0, [1, 2, 5, 45])
    batch = pool.Batch.random([1, 2, 5, 45])
    peers = InProcessPeers()

    def run(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mb: skrull.MicroBatch
    ) -> torch.Tensor:
        return layout(attention(layout(q), layout(k), layout(v), mb))

    def on_rank(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            for part in session.prepare(plan.rank_plan(rank)):
                pool.check_micro_batch(part.micro_batch, batch, run)

    pool.on_ranks(2, on_rank)


def test_a_backend_that_wants_more_of_its_tensors() -> None:
    """As those of GPUs do; the cpu backend takes what they want, too."""
    engine = skrull.local(pool.make_job(cp=2, bucket=27))
    plan = engine.plan(0, [1, 2, 5, 45])
    batch = pool.Batch.random([1, 2, 5, 45])
    peers = InProcessPeers()

    def run(rank: int) -> None:
        with pool.open_session(engine, rank, peers) as session:
            session._execution._head_major = True
            session._execution._tail_rows = 3
            for part in session.prepare(plan.rank_plan(rank)):
                pool.check_micro_batch(part.micro_batch, batch)

    pool.on_ranks(2, run)
    k = batch.inputs["k"][3]
    padded = _tensors.with_tail(k, 3)
    assert torch.equal(padded, k)
    behind = padded.as_strided((48, *k.shape[1:]), padded.stride())
    assert not behind[45:].any()


def test_what_carries_a_micro_batch_will_do() -> None:
    engine = skrull.local(pool.make_job(bucket=64))
    batch = pool.Batch.random([6, 9])
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        for part in session.prepare(engine.plan(0, [6, 9]).rank_plan(0)):
            carrier = types.SimpleNamespace(micro_batch=part.micro_batch)

            def run(q, k, v, _, carrier=carrier):  # type: ignore[no-untyped-def]
                return attention(q, k, v, carrier)

            pool.check_micro_batch(part.micro_batch, batch, run)


def test_expanded_gradient() -> None:
    engine = skrull.local(pool.make_job(bucket=64))
    share = engine.plan(0, [6]).rank_plan(0)
    q = torch.randn(6, pool.Q_HEADS, pool.HEAD_DIM, dtype=torch.float64)
    k = torch.randn(6, pool.KV_HEADS, pool.HEAD_DIM, dtype=torch.float64)
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        session.prepare(share)
        ours, dense = (t.clone().requires_grad_() for t in (q, q))
        attention(ours, k, k, share.micro_batches[0]).sum().backward()
    pool.dense_attention(dense, k, k).sum().backward()
    torch.testing.assert_close(ours.grad, dense.grad)


def test_the_scale_is_the_sessions() -> None:
    engine = skrull.local(pool.make_job(bucket=64))
    share = engine.plan(0, [6]).rank_plan(0)
    batch = pool.Batch.random([6])
    q, k, v = (batch.inputs[name][0] for name in ("q", "k", "v"))
    with pool.open_session(engine, 0, InProcessPeers(), scale=0.0) as session:
        session.prepare(share)
        o = attention(q, k, v, share.micro_batches[0])
    torch.testing.assert_close(o[-1, 0], v[:, 0].mean(dim=0))


def test_gradients_of_gradients_are_refused() -> None:
    engine = skrull.local(pool.make_job(bucket=64))
    share = engine.plan(0, [6]).rank_plan(0)
    q = torch.randn(6, pool.Q_HEADS, pool.HEAD_DIM, dtype=torch.float64)
    q.requires_grad_()
    k = q[:, : pool.KV_HEADS]
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        session.prepare(share)
        o = attention(q, k, k, share.micro_batches[0])
        (gradient,) = torch.autograd.grad(o.sum(), q, create_graph=True)
        with pytest.raises(RuntimeError, match="no autograd formula"):
            gradient.sum().backward()


def test_without_gradients_there_is_no_backward() -> None:
    engine = skrull.local(pool.make_job(bucket=64))
    share = engine.plan(0, [6]).rank_plan(0)
    q = torch.randn(6, pool.Q_HEADS, pool.HEAD_DIM, dtype=torch.float64)
    k = q[:, : pool.KV_HEADS]
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        session.prepare(share)
        with torch.no_grad():
            assert not attention(q, k, k, share.micro_batches[0]).requires_grad
