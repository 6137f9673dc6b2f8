"""transformers' Trainer on planned batches, against a loop in one process."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import adapted
import pytest
import skrull
import training
from skrull.integrations.trainer import SkrullTrainer
from skrull.integrations.transformers import session_of, use_skrull
from skrull.torch import SkrullDataLoader
from transformers import TrainingArguments

import forked_ranks
import plain_rows
import torch

CLIP = 0.5
# float32: see the equivalence training. The log has four digits.
TOLERANCE = 2e-3


def _arguments(folder: pathlib.Path, **options: Any) -> TrainingArguments:
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": adapted.STEPS,
        "optim": "adamw_torch",
        "learning_rate": training.LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": CLIP,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "ddp_backend": "gloo",
        "ddp_find_unused_parameters": False,
    }
    return TrainingArguments(**(given | options))


def _rank(
    rank: int, folder: pathlib.Path
) -> tuple[list[float], dict[str, torch.Tensor]]:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(training.WORLD_SIZE),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",  # asked for, and not used
    )
    with (
        forked_ranks.process_group(rank, training.WORLD_SIZE, folder),
        adapted.engine() as engine,
    ):
        arguments = _arguments(folder)
        assert arguments.process_index == rank
        model = training.new_model(torch.float32, "eager")
        use_skrull(model)
        with session_of(model, engine, rank) as session:
            loader = SkrullDataLoader(
                adapted.SAMPLES,
                engine,
                rank,
                batch_size=training.BATCH_SIZE,
                shuffle=False,
            )
            trainer = SkrullTrainer(model, arguments, session=session, loader=loader)
            trainer.train()
        log = [float(e["loss"]) for e in trainer.state.log_history if "loss" in e]
        assert trainer.state.global_step == adapted.STEPS
        return log, {n: p.detach().clone() for n, p in model.named_parameters()}


def _alone() -> tuple[list[float], dict[str, torch.Tensor]]:
    model = training.new_model(torch.float32, "sdpa")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.LEARNING_RATE, weight_decay=0
    )
    losses = []
    for step in range(adapted.STEPS):
        samples = adapted.batch(step)
        count = plain_rows.label_count(samples)
        total = 0.0
        for sample in samples:
            logits = model(input_ids=sample["input_ids"][None]).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits, sample["labels"][1:], reduction="sum"
            )
            (loss / count).backward()
            total += loss.item() / count
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, {n: p.detach() for n, p in model.named_parameters()}


def test_trains_as_a_loop_of_ones_own(tmp_path: pathlib.Path) -> None:
    losses, weights = _alone()
    ranks = forked_ranks.run(training.WORLD_SIZE, _rank, tmp_path)
    # The Trainer logs on rank 0.
    assert ranks[0][0] == pytest.approx(losses, rel=TOLERANCE)
    for _, weights_of_rank in ranks:
        for name, value in weights.items():
            torch.testing.assert_close(
                weights_of_rank[name],
                value,
                rtol=0,
                atol=0.05 * training.LEARNING_RATE,
                msg=name,
            )


def _refused(
    rank: int, folder: pathlib.Path, cp_size: int, options: dict[str, Any]
) -> None:
    job = skrull.Job.from_pretrained_config(
        training.new_model(torch.float32, "eager").config,
        dp_size=1,
        cp_size=cp_size,
        bucket_size_tokens=512,
    )
    model = training.new_model(torch.float32, "eager")

    class Session:
        engine = skrull.local(job)

    with (
        forked_ranks.process_group(rank, 1, folder),
        pytest.raises(skrull.InvalidArgumentError) as caught,
    ):
        SkrullTrainer(
            model, _arguments(folder, **options), session=Session(), loader=None
        )
    assert ("must be 1" if options else "the job has 2") in str(caught.value)


@pytest.mark.parametrize(
    ("cp_size", "options"), [(1, {"gradient_accumulation_steps": 2}), (2, {})]
)
def test_refuses_what_would_train_wrongly(
    cp_size: int, options: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    # In a process of its own: the Trainer leaves state behind in the process.
    forked_ranks.run(1, _refused, tmp_path, cp_size, options)
