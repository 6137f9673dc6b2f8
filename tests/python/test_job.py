"""Jobs from text, files, profiles and Hugging Face configurations."""

from __future__ import annotations

import json
import pathlib
import pickle
from typing import Any

import pytest
import skrull

from conftest import SOURCE, TEXT

CONFIG: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
}
POOL: dict[str, Any] = {"dp_size": 2, "cp_size": 4, "bucket_size_tokens": 4096}


def test_a_text_is_described_with_defaults_filled_in() -> None:
    job = skrull.Job.from_text(TEXT)
    assert (job.dp_size, job.cp_size, job.world_size) == (2, 4, 8)
    assert (job.q_heads, job.kv_heads, job.head_dim) == (4, 2, 16)
    assert job.layer_count == 2
    assert job.bucket_size_tokens == 600
    assert job.longest_sequence == 2400
    assert job.policy == "POLICY_OPTIMIZED"
    assert job.text == TEXT


def test_every_example_job_is_a_job() -> None:
    paths = sorted((SOURCE / "deploy/examples/jobs").glob("*.textproto"))
    assert paths
    for path in paths:
        job = skrull.Job.from_file(path)
        assert job == skrull.Job.from_text(path.read_text())
        assert pickle.loads(pickle.dumps(job)) == job


@pytest.mark.parametrize(
    ("text", "field", "part"),
    [
        ("model {", "job_spec", "line 1"),
        (TEXT.replace("cp_size: 4", "cp_size: 0"), "parallelism.cp_size", "cp_size"),
        (TEXT.replace("600", "0"), "memory.bucket_size_tokens", "bucket"),
    ],
)
def test_a_wrong_text_names_the_place(text: str, field: str, part: str) -> None:
    with pytest.raises(skrull.InvalidArgumentError, match=part) as caught:
        skrull.Job.from_text(text)
    assert caught.value.field == field


def test_a_wrong_file_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "wrong.textproto"
    path.write_text("model { hidden_size: -1 }")
    with pytest.raises(
        skrull.InvalidArgumentError, match=r"wrong\.textproto"
    ) as caught:
        skrull.Job.from_file(path)
    assert caught.value.field == "model.hidden_size"


def test_a_text_that_c_would_cut_is_refused() -> None:
    with pytest.raises(skrull.InvalidArgumentError, match="NUL"):
        skrull.Job.from_text(TEXT + "\0 this would be lost")


class HuggingFaceLike:
    """What transformers' configurations offer of themselves."""

    hidden_size = 768

    def to_dict(self) -> dict[str, Any]:
        return {
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_inner": 3072,
            "vocab_size": 50257,
        }


def test_a_configuration_in_any_form_gives_the_same_job(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    want = skrull.Job.from_pretrained_config(CONFIG, **POOL)
    for form in (
        tmp_path,
        tmp_path / "config.json",
        str(tmp_path / "config.json"),
        {"text_config": CONFIG, "vision_config": {"hidden_size": 7}},
    ):
        assert skrull.Job.from_pretrained_config(form, **POOL) == want
    assert (want.q_heads, want.kv_heads, want.head_dim) == (14, 2, 64)
    assert "FLOPS_FORMULA_EXACT" in want.text
    gpt2 = skrull.Job.from_pretrained_config(HuggingFaceLike(), **POOL)
    assert (gpt2.q_heads, gpt2.kv_heads, gpt2.head_dim) == (12, 12, 64)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"]
)
def test_what_a_configuration_lacks_is_named(key: str) -> None:
    config = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(skrull.InvalidArgumentError, match=key):
        skrull.Job.from_pretrained_config(config, **POOL)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"bucket_size_tokens": None}, "memory"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"block_scope": "world"}, "block_scope"),
        ({"policy": "fast"}, "policy"),
        ({"cost": {"seconds_per_flop": "slow"}}, "seconds_per_flop"),
        ({"labels": {"a": 1}}, "labels"),
    ],
)
def test_a_wrong_option_is_named(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(skrull.InvalidArgumentError, match=part):
        skrull.Job.from_pretrained_config(CONFIG, **{**POOL, **changes})


def test_zero_3_makes_micro_batches_uniform() -> None:
    two = skrull.Job.from_pretrained_config(CONFIG, **POOL, zero_stage=2)
    three = skrull.Job.from_pretrained_config(CONFIG, **POOL, zero_stage=3)
    assert "uniform_micro_batch_count: true" in three.text
    assert "uniform_micro_batch_count: true" not in two.text


def test_the_bucket_follows_from_memory() -> None:
    job = skrull.Job.from_pretrained_config(
        CONFIG,
        dp_size=1,
        cp_size=2,
        device_bytes=10_000,
        static_bytes=1_000,
        bytes_per_token=9.0,
        reserve_fraction=0.1,
        labels={"owner": 'é "quoted"\n'},
        policy="POLICY_SKRULL",
        cost={"seconds_per_flop": 1e-14, "intra_node": {"seconds_per_byte": 1e-9}},
    )
    assert job.bucket_size_tokens == (9_000 - 1_000) // 9
    assert job.policy == "POLICY_SKRULL"


def test_a_profile_is_completed_by_parallelism(tmp_path: pathlib.Path) -> None:
    profile = tmp_path / "profile.textproto"
    profile.write_text(TEXT.replace("parallelism { dp_size: 2 cp_size: 4 }", ""))
    job = skrull.Job.from_profile(profile, dp_size=3, cp_size=5, block_scope="pool")
    assert job.world_size == 15
    assert job.longest_sequence == 15 * 600


def test_the_list_of_policies_is_the_planners(job: skrull.Job) -> None:
    engine = skrull.local(job)
    with pytest.raises(skrull.InvalidArgumentError) as caught:
        engine.plan(0, [5], policy="POLICY_NONE")
    assert caught.value.message.split("none of ")[1].split(", ") == list(
        skrull.POLICIES
    )
    for policy in skrull.POLICIES:
        assert engine.plan(0, [5, 9], policy=policy).policy == policy
