"""transformers' models by plans, under DDP and FSDP, against one process."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import adapted
import pytest
import skrull
import training
from skrull.integrations.data_parallel import gradient_sync
from skrull.integrations.transformers import (
    KEYWORD,
    model_inputs,
    session_of,
    use_skrull,
)
from skrull.torch import InProcessPeers, token_weighted_loss
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

import forked_ranks
import plain_rows
import torch

# See TOLERANCE of the equivalence training.
TOLERANCE = 1e-11


def _wrap(model: Qwen2ForCausalLM, how: str) -> torch.nn.Module:
    if how == "fsdp":
        for layer in model.model.layers:
            fully_shard(layer)
        return fully_shard(model)
    if how == "checkpointing":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return DistributedDataParallel(model)


def _rank(
    rank: int, how: str, folder: pathlib.Path
) -> tuple[list[float], dict[str, torch.Tensor], int]:
    """Losses, final weights, and the micro-batches without rows."""
    with (
        forked_ranks.process_group(rank, training.WORLD_SIZE, folder),
        adapted.engine("POOL") as engine,
    ):
        model = training.new_model(torch.float64, "eager")
        use_skrull(model)
        with session_of(model, engine, rank) as session:
            wrapped = _wrap(model, how)
            optimizer = training.new_optimizer(wrapped)

            def step(rows: list[plain_rows.Rows], label_count: int) -> torch.Tensor:
                total = torch.zeros((), dtype=torch.float64)
                for index, batch in enumerate(rows):
                    with gradient_sync(wrapped, when=index + 1 == len(rows)):
                        inputs, labels = model_inputs(batch)
                        loss = token_weighted_loss(
                            wrapped(**inputs).logits,
                            labels,
                            label_count,
                            world_scale=training.WORLD_SIZE,
                        )
                        loss.backward()
                    total += loss.detach()
                optimizer.step()
                optimizer.zero_grad()
                return total

            shares = adapted.shares(engine, rank)
            losses = adapted.train(session, shares, step)
        weights = {
            name: value.full_tensor() if how == "fsdp" else value.detach()
            for name, value in model.named_parameters()
        }
        empty = sum(b.rows == 0 for share in shares for b in share.micro_batches)
        return losses, weights, empty


@pytest.mark.parametrize("how", ["ddp", "checkpointing", "fsdp"])
def test_trains_as_one_process(how: str, tmp_path: pathlib.Path) -> None:
    wanted = adapted.expected(torch.float64)
    ranks = forked_ranks.run(training.WORLD_SIZE, _rank, how, tmp_path)
    for losses, weights, _ in ranks:
        assert losses == pytest.approx(wanted.losses, rel=TOLERANCE)
        for name, value in wanted.weights.items():
            torch.testing.assert_close(
                weights[name], value, rtol=0, atol=TOLERANCE, msg=name
            )


def test_rank_without_rows_has_gradients_of_zero() -> None:
    job = skrull.Job.from_text(training.job_text())
    with skrull.local(job) as engine:
        # One sequence, and eight ranks: most have nothing to do.
        plan = engine.plan(0, [3])
        share = next(
            plan.rank_plan(r)
            for r in range(engine.world_size)
            if plan.rank_plan(r).micro_batches[0].rows == 0
        )
    rows = plain_rows.rows_of(share, [adapted.SAMPLES[0]])[0]
    assert rows.input_ids.shape == (1, 0)
    inputs, labels = model_inputs(rows)
    assert inputs["input_ids"].shape == inputs["position_ids"].shape == (1, 1)
    assert labels.tolist() == [[plain_rows.IGNORED]]


def _model(**options: Any) -> Qwen2ForCausalLM:
    config = {
        "vocab_size": 32,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    return Qwen2ForCausalLM(Qwen2Config(**(config | options)))


def _one_rank(model: Any) -> tuple[skrull.torch.Session, plain_rows.Rows]:
    engine = skrull.local(
        skrull.Job.from_pretrained_config(
            model.config, dp_size=1, cp_size=1, bucket_size_tokens=64
        )
    )
    session = session_of(model, engine, 0, comm="in_process", peers=InProcessPeers())
    share = engine.plan(0, [5]).rank_plan(0)
    session.prepare(share)
    tokens = torch.arange(5)
    return session, plain_rows.rows_of(
        share, [{"input_ids": tokens, "labels": tokens}]
    )[0]


def test_compiles_to_one_graph() -> None:
    model = _model(num_hidden_layers=1)
    use_skrull(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    session, rows = _one_rank(model)
    with session:
        inputs, _ = model_inputs(rows)
        wanted = model(**inputs).logits
        torch.testing.assert_close(compiled(**inputs).logits, wanted)


def test_refuses_dropout() -> None:
    with pytest.raises(skrull.UnsupportedError, match=r"attention_dropout is 0\.1"):
        use_skrull(_model(attention_dropout=0.1))


def test_refuses_sliding_windows() -> None:
    model = _model(use_sliding_window=True, sliding_window=8, max_window_layers=1)
    with pytest.raises(skrull.UnsupportedError, match="sliding windows"):
        use_skrull(model)


def test_refuses_soft_capped_scores() -> None:
    model = Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            layer_types=["full_attention"],
        )
    )
    with pytest.raises(skrull.UnsupportedError, match="attn_logit_softcapping"):
        use_skrull(model)


def test_refuses_a_call_without_micro_batch() -> None:
    model = _model()
    use_skrull(model)
    with pytest.raises(skrull.InvalidArgumentError, match="model_inputs"):
        model(input_ids=torch.arange(5)[None])


def test_refuses_an_attention_mask_that_hides_tokens() -> None:
    model = _model()
    use_skrull(model)
    session, rows = _one_rank(model)
    with session:
        inputs, _ = model_inputs(rows)
        inputs["attention_mask"] = torch.ones(1, 1, 5, 5, dtype=torch.bool)
        with pytest.raises(skrull.UnsupportedError, match="attention_mask"):
            model(**inputs)


def test_refuses_another_scale() -> None:
    model = _model()
    use_skrull(model)
    session, rows = _one_rank(model)
    with session:
        model.model.layers[0].self_attn.scaling = 0.5
        with pytest.raises(skrull.InvalidArgumentError, match="scale"):
            model(**model_inputs(rows)[0])


def test_refuses_tokens_of_another_micro_batch() -> None:
    model = _model()
    use_skrull(model)
    session, rows = _one_rank(model)
    with session:
        short = dataclasses.replace(
            rows,
            input_ids=rows.input_ids[:, :3],
            position_ids=rows.position_ids[:, :3],
        )
        inputs, _ = model_inputs(short)
        assert inputs[KEYWORD].rows == 5
        with pytest.raises(skrull.InvalidArgumentError, match="3 rows"):
            model(**inputs)
