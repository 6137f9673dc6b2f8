"""The loss is a single device's, whatever the split: cases.md 31 to 34."""

from __future__ import annotations

import copy

import pool
import pytest
import skrull
import torch.nn.functional
from model import VOCABULARY, Model, single_device_loss
from skrull.torch import (
    InProcessPeers,
    global_label_count,
    token_weighted_loss,
)

import torch


def _loss_of(mean: float, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of ``count`` tokens whose losses are ``mean`` each."""
    # -log softmax = log(1 + exp(-x)) = mean
    x = -torch.log(torch.expm1(torch.tensor(mean, dtype=torch.float64)))
    logits = torch.stack([x, torch.zeros(())]).expand(count, 2)
    return logits, torch.zeros(count, dtype=torch.int64)


def test_micro_batches_weigh_as_many_tokens_as_they_have() -> None:
    """Case 32: 10 labels of loss 2 and 1000 of loss 1."""
    parts = [_loss_of(2.0, 10), _loss_of(1.0, 1000)]
    count = global_label_count((labels for _, labels in parts), world_size=1)
    assert count == 1010
    total = sum(
        token_weighted_loss(logits, labels, count, world_scale=1)
        for logits, labels in parts
    )
    assert float(total) == pytest.approx(1020 / 1010, abs=1e-12)


def test_without_labels_or_rows_the_loss_is_zero_and_has_gradients() -> None:
    for rows in (0, 3):
        logits = torch.randn(1, rows, 5, requires_grad=True)
        labels = torch.full((1, rows), -100)
        loss = token_weighted_loss(logits, labels, 7, world_scale=4)
        loss.backward()
        assert loss.item() == 0
        assert logits.grad is not None
        assert not logits.grad.any()


def test_16_bit_logits_are_summed_in_float32() -> None:
    logits = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(300, dtype=torch.int64)
    rounded = logits.bfloat16()
    loss = token_weighted_loss(rounded, labels, 300, world_scale=1)
    assert loss.dtype == torch.float32
    wanted = torch.nn.functional.cross_entropy(rounded.double(), labels)
    assert float(loss) == pytest.approx(float(wanted), rel=1e-5)


def test_wrong_arguments_are_named() -> None:
    logits = torch.zeros(3, 5)
    with pytest.raises(skrull.InvalidArgumentError, match="global_label_count"):
        token_weighted_loss(logits, torch.zeros(3, dtype=torch.int64), 0, world_scale=1)
    with pytest.raises(skrull.InvalidArgumentError, match=r"labels: \[4\]"):
        token_weighted_loss(logits, torch.zeros(4, dtype=torch.int64), 1, world_scale=1)
    with pytest.raises(skrull.FailedPreconditionError, match="4 ranks"):
        global_label_count([], world_size=4)


def _sequences(
    lengths: list[int], labelled: dict[int, range] | None = None
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ids and shifted labels of each sequence; labels only where `labelled` says."""
    generator = torch.Generator().manual_seed(11)
    made = []
    for index, length in enumerate(lengths):
        ids = torch.randint(VOCABULARY, (length,), generator=generator)
        labels = torch.cat([ids[1:], torch.tensor([-100])])
        if labelled is not None:
            counts = torch.zeros(length, dtype=torch.bool)
            counts[list(labelled.get(index, range(0)))] = True
            labels = torch.where(counts, labels, -100)
        made.append((ids, labels))
    return made


def _single_device(
    sequences: list[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[float, list[torch.Tensor]]:
    """Loss and gradients of the mean over all labels, sequence by sequence."""
    model = Model()
    loss = single_device_loss(model, sequences)
    loss.backward()
    return loss.item(), [p.grad for p in model.parameters()]


def _pool(
    job: skrull.Job, sequences: list[tuple[torch.Tensor, torch.Tensor]], step: int
) -> tuple[skrull.Plan, float, list[torch.Tensor]]:
    """Loss and gradients averaged over ranks, as DDP does, of the planned pool."""
    engine = skrull.local(job)
    plan = engine.plan(step, [len(ids) for ids, _ in sequences])
    peers = InProcessPeers()
    ids, labels = ([pair[i] for pair in sequences] for i in (0, 1))
    count = sum(int((part != -100).sum()) for part in labels)

    common = Model()

    def run(rank: int) -> tuple[float, list[torch.Tensor]]:
        model = copy.deepcopy(common)
        mine = [0.0]
        with pool.open_session(engine, rank, peers) as session:
            session.prepare(plan.rank_plan(rank))
            for mb in plan.rank_plan(rank).micro_batches:
                positions = torch.from_numpy(mb.positions.copy())
                logits = model(pool.rows_of(mb, ids), positions, mb)
                loss = token_weighted_loss(
                    logits,
                    pool.rows_of(mb, labels),
                    count,
                    world_scale=engine.world_size,
                )
                loss.backward()
                mine.append(loss.item())
        return sum(mine), [p.grad for p in model.parameters()]

    per_rank = pool.on_ranks(engine.world_size, run)
    losses, gradients = zip(*per_rank, strict=True)
    mean = [torch.stack(each).mean(dim=0) for each in zip(*gradients, strict=True)]
    return plan, sum(losses) / len(losses), mean


def _check_equal(
    job: skrull.Job, sequences: list[tuple[torch.Tensor, torch.Tensor]], step: int = 0
) -> skrull.Plan:
    loss, gradients = _single_device(sequences)
    plan, ours, made = _pool(job, sequences, step)
    assert ours == pytest.approx(loss, rel=1e-12)
    for ours_each, wanted in zip(made, gradients, strict=True):
        assert torch.isfinite(ours_each).all()
        torch.testing.assert_close(ours_each, wanted, rtol=1e-10, atol=1e-13)
    return plan


def test_five_sequences_in_one_buffer() -> None:
    """Case 31: nothing leaks over the borders of sequences."""
    plan = _check_equal(
        pool.make_job(cp=2, bucket=64, policy="POLICY_PACKED_STATIC_CP"),
        _sequences([9, 3, 17, 5, 12]),
    )
    assert plan.num_micro_batches == 1


def test_labels_on_a_few_ranks_alone() -> None:
    """Case 33: 8192 tokens over 8 ranks, the last 100 labelled; and over one."""
    sequences = _sequences([8192], {0: range(8091, 8191)})
    many, one = (
        _pool(pool.make_job(cp=n, bucket=8192 // n), sequences, step=0) for n in (8, 1)
    )
    assert many[1] == pytest.approx(one[1], rel=1e-12)
    for ours, wanted in zip(many[2], one[2], strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-13)
    labelled = [
        (pool.rows_of(mb, [sequences[0][1]]) != -100).any()
        for rank in range(8)
        for mb in many[0].rank_plan(rank).micro_batches
    ]
    assert sum(labelled) < 8


def test_accumulation_over_one_three_and_two_micro_batches() -> None:
    """Case 34."""
    job = pool.make_job(dp=2, cp=2, bucket=16)
    batches = ([20, 3, 4], [30, 25, 28, 20, 22], [30, 20, 25, 5])
    counts = [
        _check_equal(job, _sequences(lengths), step).num_micro_batches
        for step, lengths in enumerate(batches)
    ]
    assert counts == [1, 3, 2]
