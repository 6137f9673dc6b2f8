"""DeepSpeed's own engine under ZeRO-2 and ZeRO-3, against one process."""

from __future__ import annotations

import os
import pathlib

import adapted
import pytest
import skrull
import training
from skrull.integrations.deepspeed import check_config, train_step
from skrull.integrations.transformers import model_inputs, session_of, use_skrull
from skrull.torch import token_weighted_loss

import forked_ranks
import plain_rows
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}
# float32, in which DeepSpeed keeps weights: see the equivalence training.
TOLERANCE = 1e-5


def _rank(
    rank: int, stage: int, folder: pathlib.Path
) -> tuple[list[float], dict[str, torch.Tensor]]:
    import deepspeed

    # A module that it would compile first; torch.distributed does as well.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    os.environ.update(RANK=str(rank), WORLD_SIZE="8", LOCAL_RANK="0", LOCAL_SIZE="1")
    with (
        forked_ranks.process_group(rank, training.WORLD_SIZE, folder),
        adapted.engine() as planner,
    ):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        model = training.new_model(torch.float32, "eager")
        use_skrull(model)
        with session_of(model, planner, rank) as session:
            zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
            engine, *_ = deepspeed.initialize(
                model=model,
                optimizer=training.new_optimizer(model),
                config=CONFIG | {"zero_optimization": zero},
            )

            def step(rows: list[plain_rows.Rows], label_count: int) -> torch.Tensor:
                def loss_of(batch: plain_rows.Rows) -> torch.Tensor:
                    inputs, labels = model_inputs(batch)
                    return token_weighted_loss(
                        engine(**inputs).logits,
                        labels,
                        label_count,
                        world_scale=training.WORLD_SIZE,
                    )

                return train_step(engine, rows, loss_of)

            losses = adapted.train(session, adapted.shares(planner, rank), step)
            with deepspeed.zero.GatheredParameters(list(model.parameters())):
                weights = {n: p.detach().clone() for n, p in model.named_parameters()}
        return losses, weights


@pytest.mark.parametrize("stage", [2, 3])
def test_trains_as_one_process(stage: int, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("deepspeed")  # an environment of one's own may lack it
    wanted = adapted.expected(torch.float32)
    ranks = forked_ranks.run(training.WORLD_SIZE, _rank, stage, tmp_path)
    for losses, weights in ranks:
        assert losses == pytest.approx(wanted.losses, rel=TOLERANCE)
        for name, value in wanted.weights.items():
            # Adam moves a weight by up to the learning rate a step; where its
            # gradient is next to nothing, rounding decides about a share of that.
            torch.testing.assert_close(
                weights[name],
                value,
                rtol=0,
                atol=0.05 * training.LEARNING_RATE,
                msg=name,
            )


class _RecordingEngine:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        self.calls.append(f"boundary {is_boundary}")

    def backward(self, loss: torch.Tensor) -> None:
        self.calls.append(f"backward {loss.item():g}")

    def step(self) -> None:
        self.calls.append("step")


def test_only_the_last_micro_batch_is_a_boundary() -> None:
    engine = _RecordingEngine()
    total = train_step(engine, [2.0, 3.0], torch.tensor)  # type: ignore[list-item]
    assert total.item() == 5
    assert engine.calls == [
        "boundary False",
        "backward 2",
        "step",
        "boundary True",
        "backward 3",
        "step",
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gradient_accumulation_steps", 4),
        ("train_micro_batch_size_per_gpu", 2),
        ("sequence_parallel_size", 2),
    ],
)
def test_refuses_what_would_train_wrongly(option: str, value: int) -> None:
    with pytest.raises(skrull.InvalidArgumentError, match=f"{option}: must be 1"):
        check_config({option: value})


def test_takes_what_says_nothing_about_it() -> None:
    check_config({"zero_optimization": {"stage": 3}})
    check_config({"gradient_accumulation_steps": "auto"})
