"""Batches: every token once, the same at any resume point, from any worker."""

from __future__ import annotations

import collections
import itertools
import random

import pool
import pytest
import skrull
from samples import STRIDE, Samples, label, token
from skrull.torch import (
    SkrullBatchSampler,
    SkrullDataLoader,
    StepPlan,
    TrainBatch,
    global_label_count,
)

import torch
from daemon import Daemon


def _random_case(seed: int) -> tuple[skrull.Job, list[int]]:
    draw = random.Random(seed)
    dp, cp = draw.choice([(1, 1), (1, 2), (2, 2), (1, 3), (3, 2), (1, 8)])
    bucket = draw.choice([16, 40])
    job = pool.make_job(
        dp,
        cp,
        bucket,
        scope=draw.choice(["GROUP", "SUBGROUP", "POOL"]),
        policy=draw.choice(
            ["POLICY_SKRULL", "POLICY_OPTIMIZED", "POLICY_STATIC_CP", "POLICY_SORTED"]
        ),
    )
    longest = bucket * cp
    lengths = [draw.choice([1, 2, draw.randint(1, longest)]) for _ in range(20)]
    return job, lengths


@pytest.mark.parametrize("seed", range(40))
def test_every_token_once_with_its_position_and_label(seed: int) -> None:
    job, lengths = _random_case(seed)
    masked = seed % 2 == 1
    rows: collections.Counter[tuple[int, int, int]] = collections.Counter()
    for rank in range(job.world_size):
        loader = SkrullDataLoader(
            Samples(lengths, masked=masked),
            skrull.local(job),
            rank,
            batch_size=6,
            seed=seed,
        )
        for batch in loader:
            for part in batch:
                assert part.input_ids.shape == (1, part.rows)
                rows.update(
                    zip(
                        part.input_ids[0].tolist(),
                        part.position_ids[0].tolist(),
                        part.labels[0].tolist(),
                        strict=True,
                    )
                )
    wanted = {
        (token(i, p), p, label(i, p, length, masked=masked)): 1
        for i, length in enumerate(lengths)
        for p in range(length)
    }
    assert rows == wanted, f"seed {seed}"


LENGTHS = [5, 40, 3, 17, 26, 1, 9, 30, 12, 2, 8]


def _sampler(**options: object) -> SkrullBatchSampler:
    engine = skrull.local(pool.make_job(cp=2, bucket=32))
    return SkrullBatchSampler(LENGTHS, 4, engine, 0, **options)


def _seen(steps: list[StepPlan]) -> list[tuple[int, int, list[int], str]]:
    return [(s.step, s.epoch, s.indices.tolist(), s.rank_plan.digest) for s in steps]


def test_an_epoch_is_the_dataset_and_its_last_batch_is_kept() -> None:
    sampler = _sampler()
    first, second = list(sampler), list(sampler)
    assert [s.step for s in first + second] == [0, 1, 2, 3, 4, 5]
    assert [len(s.indices) for s in first] == [4, 4, 3]
    for epoch in (first, second):
        indices = itertools.chain.from_iterable(s.indices.tolist() for s in epoch)
        assert sorted(indices) == list(range(len(LENGTHS)))
    assert first[0].indices.tolist() != second[0].indices.tolist()
    for step in first:
        planned = {
            segment.sequence: segment.token_count
            for mb in step.rank_plan.micro_batches
            for segment in mb.segments
        }
        for sequence, length in planned.items():
            assert LENGTHS[step.indices[sequence]] == length


def test_options_of_the_order() -> None:
    assert [len(s.indices) for s in _sampler(drop_last=True)] == [4, 4]
    plain = _sampler(shuffle=False)
    in_order = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert [s.indices.tolist() for s in plain] == in_order
    assert _seen(list(_sampler(seed=1))) == _seen(list(_sampler(seed=1)))
    one, other = (_seen(list(_sampler(seed=seed)))[0][2] for seed in (1, 2))
    assert one != other


def test_epochs_as_pytorch_users_expect() -> None:
    sampler = _sampler()
    both = _seen(list(sampler)) + _seen(list(sampler))

    again = _sampler()
    again.set_epoch(1)
    assert _seen(list(again)) == both[3:]
    again.set_epoch(0)
    broken_off = _seen(list(itertools.islice(again, 2)))
    assert broken_off == both[:2]
    assert again.next_step == 2
    assert _seen(list(again)) == both[:3], "iterating again begins the epoch anew"
    assert again.epoch == 1


def test_resuming_at_any_step_gives_the_same_batches() -> None:
    sampler = _sampler()
    all_steps = _seen(list(sampler)) + _seen(list(sampler))
    for start in range(6):
        resumed = _sampler(start_step=start)
        resumed.set_epoch(start // 3)  # as a training loop does
        rest = _seen(list(resumed))
        rest += _seen(list(resumed)) if start < 3 else []
        assert rest == all_steps[start:]


@pytest.mark.parametrize("workers", [0, 2])
def test_state_of_a_loader_is_the_training_loops(workers: int) -> None:
    """Not that of the workers, which are ahead of it."""

    def loader() -> SkrullDataLoader:
        engine = skrull.local(pool.make_job(cp=2, bucket=32))
        return SkrullDataLoader(
            Samples(LENGTHS),
            engine,
            1,
            batch_size=2,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )

    whole = [_tensors(batch) for batch in loader()]
    broken_off = loader()
    begun = [_tensors(batch) for batch in itertools.islice(broken_off, 2)]
    resumed = loader()
    resumed.load_state_dict(broken_off.state_dict())
    assert resumed.epoch == 0
    assert begun + [_tensors(batch) for batch in resumed] == whole


def test_a_state_of_other_batches_is_refused() -> None:
    state = _sampler(seed=1).state_dict()
    with pytest.raises(skrull.InvalidArgumentError, match="seed: is 2"):
        _sampler(seed=2).load_state_dict(state)


def _tensors(batch: TrainBatch) -> list[object]:
    parts = [
        [part.input_ids.tolist(), part.labels.tolist(), part.position_ids.tolist()]
        for part in batch
    ]
    return [batch.step, batch.rank_plan.digest, batch.indices.tolist(), parts]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_read_what_one_process_reads(daemon: Daemon, method: str) -> None:
    """Case 36: the engine, here with a connection, is made before the workers."""
    job = pool.make_job(cp=2, bucket=32)

    def batches(**workers: object) -> list[object]:
        with skrull.connect(
            daemon.address, job=f"workers-{method}", spec=job
        ) as engine:
            loader = SkrullDataLoader(
                Samples(LENGTHS, masked=True), engine, 0, batch_size=2, **workers
            )
            return [_tensors(batch) for _ in range(2) for batch in loader]

    alone = batches()
    assert len(alone) == 12
    shared = batches(
        num_workers=2, multiprocessing_context=method, persistent_workers=True
    )
    assert shared == alone


def test_plans_are_asked_for_ahead() -> None:
    engine = skrull.local(pool.make_job(cp=2, bucket=32))
    sampler = SkrullBatchSampler(LENGTHS, 2, engine, 0, prefetch=3)
    assert [engine.pending for _ in sampler] == [3, 3, 3, 2, 1, 0]
    for _ in sampler:
        break
    assert engine.pending == 0, "nobody waits for them any more"


def test_refused_batches_name_the_dataset() -> None:
    """Of a daemon whose job holds less than the sampler was told."""
    engine = skrull.local(pool.make_job(cp=2, bucket=32))
    sampler = SkrullBatchSampler([5, 6, 7, 64], 2, engine, 0, shuffle=False)
    steps = iter(sampler)
    assert next(steps).step == 0

    def refuse() -> skrull.Plan:
        raise skrull.FailedPreconditionError("too long", indices=[1])

    engine.next = refuse  # type: ignore[method-assign]
    with pytest.raises(skrull.FailedPreconditionError, match=r"in the dataset: 3\)"):
        next(steps)


def test_sequences_that_never_fit_are_named_at_once() -> None:
    engine = skrull.local(pool.make_job(cp=2, bucket=32))
    with pytest.raises(skrull.FailedPreconditionError, match="65 are at 1") as error:
        SkrullBatchSampler([64, 65, 1, 66], 2, engine, 0)
    assert (error.value.indices, error.value.limit) == ((1, 3), 64)


def test_workers_that_stay_are_used_again_after_breaking_off() -> None:
    def loader(**workers: object) -> SkrullDataLoader:
        engine = skrull.local(pool.make_job(cp=2, bucket=32))
        return SkrullDataLoader(Samples(LENGTHS), engine, 0, batch_size=2, **workers)

    kept = loader(
        num_workers=1,
        multiprocessing_context="fork",
        persistent_workers=True,
        prefetch_factor=3,
    )
    for batch in kept:
        if batch.step == 1:
            break
    again = [_tensors(batch) for batch in kept]
    assert again == [_tensors(batch) for batch in loader()]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_of_another_length_is_named(workers: int) -> None:
    loader = SkrullDataLoader(
        Samples([4, 4, 4], wrong=2),
        skrull.local(pool.make_job(bucket=32)),
        0,
        batch_size=3,
        lengths=[4, 4, 4],
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    with pytest.raises(
        skrull.InvalidArgumentError, match=r"dataset\[2\]\['input_ids'\]"
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 9, "drop_last": True}, "batch_size"),
        ({"lengths": [4]}, "lengths"),
        ({"lengths": [4, 0]}, "lengths"),
        ({"lengths": [4.5, 5.0]}, "lengths"),
        ({"rank": 2}, "rank"),
        ({"seed": -1}, "seed"),
        ({"prefetch": 0}, "prefetch"),
        ({"start_step": -1}, "start_step"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, object], field: str) -> None:
    given: dict[str, object] = {"rank": 0, "batch_size": 2, **options}
    engine = skrull.local(pool.make_job(cp=2, bucket=32))
    with pytest.raises(skrull.InvalidArgumentError) as error:
        SkrullDataLoader(Samples([4, 5]), engine, **given)
    assert error.value.field == field


def test_label_counts_add_up() -> None:
    lengths = [10, 40, 3]
    job = pool.make_job(cp=2, bucket=32)
    batches = [
        next(
            iter(
                SkrullDataLoader(
                    Samples(lengths, masked=True), skrull.local(job), rank, batch_size=3
                )
            )
        )
        for rank in range(2)
    ]
    total = sum(part.label_count for batch in batches for part in batch)
    wanted = sum(
        label(i, p, n, masked=True) != -100
        for i, n in enumerate(lengths)
        for p in range(n)
    )
    assert total == wanted
    mine = sum(part.label_count for part in batches[0])
    counted = global_label_count(
        batches[0].labels, world_size=2, reduce=lambda n: n + total - mine
    )
    assert counted == wanted
    assert sum(part.loss_weight for b in batches for part in b) == pytest.approx(1)


def test_another_plan_of_the_same_batch() -> None:
    job = pool.make_job(cp=2, bucket=32)
    engine = skrull.local(job)
    loader = SkrullDataLoader(Samples(LENGTHS), engine, 0, batch_size=4)
    batch = next(iter(loader))
    lengths = [LENGTHS[i] for i in batch.indices]
    smaller = skrull.local(pool.make_job(cp=2, bucket=21))
    plans = [smaller.plan(batch.step, lengths, attempt=1) for _ in range(2)]
    parts = [batch.replan(plan.rank_plan(0)) for plan in plans]
    assert parts[0].step == batch.step
    assert parts[0].rank_plan.attempt == 1
    for part in parts[0]:
        sequences = {int(i) // STRIDE for i in part.input_ids[0]}
        assert sequences <= set(batch.indices.tolist())
        positions = part.input_ids[0] % STRIDE
        assert torch.equal(positions, part.position_ids[0])
        moved = part.to("meta")
        assert moved.input_ids.is_meta
        assert moved.micro_batch is part.micro_batch
