"""Megatron-Core's own GPTModel by plans, on the CPU, against one process."""

from __future__ import annotations

import pathlib
from typing import Any

import adapted
import numpy as np
import pytest
import skrull
import torch.distributed as dist
import training
from skrull.torch import Session, token_weighted_loss

import forked_ranks
import plain_rows
import torch

pytest.importorskip("megatron.core")  # an environment of one's own may lack it
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_config import (
    TransformerConfig,
)
from skrull.integrations.megatron import (
    SkrullCoreAttention,
    follow_positions,
    model_inputs,
    packed_seq_params,
    use_skrull,
)

TOLERANCE = 1e-12  # one step of float64


class _PlainAttention(torch.nn.Module):
    """One whole sequence at a time, by PyTorch."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *_: Any,
        **__: Any,
    ) -> torch.Tensor:
        q, k, v = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        o = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        return o.permute(2, 0, 1, 3).flatten(2)


def _config(**options: Any) -> TransformerConfig:
    given: dict[str, Any] = {
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_query_groups": 2,
        "ffn_hidden_size": 128,
        "gated_linear_unit": True,
        "normalization": "RMSNorm",
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "use_cpu_initialization": True,
        "persist_layer_norm": False,
        "params_dtype": torch.float64,
    }
    return TransformerConfig(**(given | options))


def _model(*, planned: bool) -> GPTModel:
    torch.cuda.current_device = lambda: "cpu"  # where Megatron puts its angles
    parallel_state.initialize_model_parallel(1, 1)
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    if planned:
        use_skrull(spec)
    else:
        spec.submodules.self_attention.submodules.core_attention = _PlainAttention
    torch.manual_seed(5)
    model = GPTModel(_config(), spec, 256, 4096, position_embedding_type="rope")
    if planned:
        follow_positions(model)
    return model.double()


def _alone(rank: int, folder: pathlib.Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of the first batch and its gradients, a sequence at a time."""
    with forked_ranks.process_group(rank, 1, folder):
        model = _model(planned=False)
        samples = adapted.batch(0)
        total = 0.0
        for sample in samples:
            tokens = sample["input_ids"]
            logits = model(tokens[None], torch.arange(len(tokens))[None], None)
            labels = torch.cat((sample["labels"][1:], torch.tensor([-100])))[None]
            loss = token_weighted_loss(
                logits, labels, plain_rows.label_count(samples), world_scale=1
            )
            loss.backward()
            total += loss.item()
        return total, {name: p.grad for name, p in model.named_parameters()}


def _planned(rank: int, folder: pathlib.Path) -> tuple[float, dict[str, torch.Tensor]]:
    with (
        forked_ranks.process_group(rank, training.WORLD_SIZE, folder),
        adapted.engine("POOL") as engine,
    ):
        model = _model(planned=True)
        with Session(
            engine, rank, q_heads=4, kv_heads=2, head_dim=16, dtype=torch.float64
        ) as session:
            share = adapted.shares(engine, rank)[0]
            session.prepare(share)
            samples = adapted.batch(0)
            total = torch.zeros((), dtype=torch.float64)
            for rows in plain_rows.rows_of(share, samples):
                inputs, labels = model_inputs(rows)
                loss = token_weighted_loss(
                    model(**inputs),
                    labels,
                    plain_rows.label_count(samples),
                    world_scale=1,
                )
                loss.backward()
                total += loss.detach()
            dist.all_reduce(total)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return total.item(), {name: p.grad for name, p in model.named_parameters()}


def test_trains_as_one_process(tmp_path: pathlib.Path) -> None:
    for name in ("one", "all"):
        (tmp_path / name).mkdir()
    [(loss, gradients)] = forked_ranks.run(1, _alone, tmp_path / "one")
    ranks = forked_ranks.run(training.WORLD_SIZE, _planned, tmp_path / "all")
    for loss_of_rank, gradients_of_rank in ranks:
        assert loss_of_rank == pytest.approx(loss, rel=TOLERANCE)
        assert gradients_of_rank.keys() == gradients.keys()
        for name, value in gradients.items():
            torch.testing.assert_close(
                gradients_of_rank[name], value, rtol=0, atol=TOLERANCE, msg=name
            )


def test_packed_seq_params_say_what_varlen_kernels_take() -> None:
    with adapted.engine() as engine:
        share = adapted.shares(engine, 0)[0]
    for batch in share.micro_batches:
        params = packed_seq_params(batch)
        queries, longest = batch.to_cu_seqlens()
        assert params.cu_seqlens_q.tolist() == queries.tolist()
        assert params.max_seqlen_q == longest
        # A run of queries ends where its keys end, at its last position.
        ends = batch.positions[queries[1:] - 1] + 1
        assert np.diff(params.cu_seqlens_kv.numpy()).tolist() == ends.tolist()
        assert params.max_seqlen_kv == ends.max()
        assert params.position_ids.tolist() == batch.positions.tolist()


@pytest.mark.parametrize(
    ("option", "value"),
    [("attention_dropout", 0.1), ("context_parallel_size", 2), ("window_size", (4, 0))],
)
def test_refuses_what_it_does_not_compute(option: str, value: Any) -> None:
    with pytest.raises(skrull.UnsupportedError, match=option):
        SkrullCoreAttention(
            config=_config(**{option: value}),
            layer_number=1,
            attn_mask_type=AttnMaskType.causal,
            attention_type="self",
        )


def test_refuses_another_mask() -> None:
    with pytest.raises(skrull.UnsupportedError, match="attn_mask_type"):
        SkrullCoreAttention(
            config=_config(),
            layer_number=1,
            attn_mask_type=AttnMaskType.no_mask,
            attention_type="self",
        )


def test_refuses_a_call_without_plan() -> None:
    attention = SkrullCoreAttention(
        config=_config(),
        layer_number=1,
        attn_mask_type=AttnMaskType.causal,
        attention_type="self",
    )
    rows = torch.zeros(3, 1, 4, 16)
    with pytest.raises(skrull.InvalidArgumentError, match="packed_seq_params"):
        attention(rows, rows, rows)
