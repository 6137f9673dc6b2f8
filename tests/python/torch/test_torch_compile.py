"""torch.compile sees one opaque operator; checkpointing calls it again."""

from __future__ import annotations

import copy
import functools

import pool
import pytest
import skrull
import torch.utils.checkpoint
from skrull.torch import InProcessPeers, Part, attention

import torch


def _scaled(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    micro_batch: skrull.MicroBatch | Part,
) -> torch.Tensor:
    """Attention with work around it that a compiler can fuse; the same result."""
    return attention(q * 2, k / 2, v * 4, micro_batch) / 4


@pytest.mark.parametrize("by_part", [False, True])
def test_compiled_as_one_graph(by_part: bool) -> None:
    torch._dynamo.reset()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(_scaled, backend=backend, fullgraph=True, dynamic=True)
    engine = skrull.local(pool.make_job(bucket=40))
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        for step, lengths in enumerate(([5, 20, 33], [12, 9, 30])):
            batch = pool.Batch.random(lengths)
            parts = session.prepare(engine.plan(step, lengths).rank_plan(0))
            assert len(parts) > 1
            for part in parts:
                run = functools.partial(_call, compiled, part) if by_part else compiled
                pool.check_micro_batch(part.micro_batch, batch, run)
    assert len(graphs) == 1, "recompiled for each step or micro-batch"
    called = [node.target for node in graphs[0].graph.nodes]
    assert called.count(torch.ops.skrull.attention) == 1


def _call(compiled, part, q, k, v, _):  # type: ignore[no-untyped-def]
    return compiled(q, k, v, part)


def test_compiled_backward_is_opaque_too() -> None:
    """Through AOT autograd, as inductor does it, with a real graph of gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(_scaled, backend="aot_eager", fullgraph=True)
    engine = skrull.local(pool.make_job(bucket=40))
    batch = pool.Batch.random([5, 20, 33])
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        for part in session.prepare(engine.plan(0, [5, 20, 33]).rank_plan(0)):
            pool.check_micro_batch(part.micro_batch, batch, compiled)


def test_the_operators_keep_torchs_rules() -> None:
    """torch's own checker: schema, autograd, fakes, and dynamic shapes."""
    engine = skrull.local(pool.make_job(bucket=40))
    batch = pool.Batch.random([6])
    with pool.open_session(engine, 0, InProcessPeers()) as session:
        part = session.prepare(engine.plan(0, [6]).rank_plan(0))[0]
        q, k, v, d_o = (batch.inputs[name][0] for name in ("q", "k", "v", "d_o"))
        qkv = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        torch.library.opcheck(torch.ops.skrull.attention, (*qkv, part.number))
        o, lse = torch.ops.skrull.attention(q, k, v, part.number)
        torch.library.opcheck(
            torch.ops.skrull.attention_backward, (q, k, v, o, lse, d_o, part.number)
        )


class Layers(torch.nn.Module):
    """Two layers of projections and attention; float64."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        width = pool.Q_HEADS * pool.HEAD_DIM
        self.qkv = torch.nn.ModuleList(
            torch.nn.Linear(width, width + 2 * pool.KV_HEADS * pool.HEAD_DIM)
            for _ in range(2)
        )
        self.double()

    def forward(
        self, x: torch.Tensor, micro_batch: skrull.MicroBatch, reentrant: bool | None
    ) -> torch.Tensor:
        """[rows, width] to the same; checkpointed unless `reentrant` is None."""
        for qkv in self.qkv:
            layer = functools.partial(self.layer, qkv, micro_batch)
            if reentrant is None:
                x = layer(x)
            else:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=reentrant)
        return x

    def layer(
        self, qkv: torch.nn.Module, micro_batch: skrull.MicroBatch, x: torch.Tensor
    ) -> torch.Tensor:
        heads = qkv(x).unflatten(1, (-1, pool.HEAD_DIM))
        q, k, v = heads.split([pool.Q_HEADS, pool.KV_HEADS, pool.KV_HEADS], dim=1)
        return x + attention(q, k, v, micro_batch).flatten(1)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool) -> None:
    lengths = [1, 2, 5, 45, 3]
    engine = skrull.local(pool.make_job(cp=3, bucket=20))
    plan = engine.plan(0, lengths)
    assert plan.figures.sharded_sequence_count
    generator = torch.Generator().manual_seed(1)
    whole = [
        torch.randn(n, pool.Q_HEADS * pool.HEAD_DIM, generator=generator).double()
        for n in lengths
    ]
    model = Layers()
    peers = InProcessPeers()

    def run(rank: int) -> list[list[torch.Tensor]]:
        results = []
        with pool.open_session(engine, rank, peers) as session:
            for how in (None, reentrant):
                mine = copy.deepcopy(model)
                session.prepare(plan.rank_plan(rank))
                gradients = []
                for mb in plan.rank_plan(rank).micro_batches:
                    x = pool.rows_of(mb, whole).requires_grad_()
                    out = mine(x, mb, how)
                    out.square().sum().backward()
                    gradients += [out.detach(), x.grad]
                gradients += [p.grad for p in mine.parameters()]
                results.append(gradients)
        return results

    for plain, checkpointed in pool.on_ranks(3, run):
        for ours, wanted in zip(checkpointed, plain, strict=True):
            assert torch.equal(ours, wanted)
