"""A small Qwen2 with random weights and data for it: what the examples train.

Put your own checkpoint, dataset and job in their place:

    AutoModelForCausalLM.from_pretrained(...)
    skrull.Job.from_pretrained_config(model.config, dp_size=..., cp_size=...,
                                      bucket_size_tokens=...)
"""

from __future__ import annotations

import argparse

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

import skrull

VOCABULARY = 128


def make_model() -> Qwen2ForCausalLM:
    """The same weights on every rank."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return Qwen2ForCausalLM(config).train()


def make_dataset(count: int) -> list[dict[str, torch.Tensor]]:
    """Sequences of 1 .. 1024 tokens, few of them long; each counts up."""
    random = torch.Generator().manual_seed(1)
    lengths = torch.empty(count).log_normal_(4.0, 1.2, generator=random)
    return [
        {"input_ids": (torch.arange(length) + length) % VOCABULARY}
        for length in lengths.long().clamp(1, 1024).tolist()
    ]


def arguments() -> argparse.Namespace:
    """Options of the examples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="HOST:PORT of a skrulld; none: plan here")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--zero", type=int, default=2, help="stage of DeepSpeed")
    return parser.parse_args()


def connect(
    address: str | None, model: Qwen2ForCausalLM, world_size: int, zero_stage: int = 0
) -> skrull.Engine:
    """The planner in this process, or a daemon's."""
    job = skrull.Job.from_pretrained_config(
        model.config,
        dp_size=1,
        cp_size=world_size,
        bucket_size_tokens=512,
        zero_stage=zero_stage,
    )
    if address is None:
        return skrull.local(job)
    return skrull.connect(address, job="example", spec=job)
