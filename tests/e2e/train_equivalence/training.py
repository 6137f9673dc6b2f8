"""What is trained: a small Qwen2 with random weights, its data, and its job.

One process and eight ranks train the same thing, so that their losses can be
compared: `new_model`, `samples` and `job_text` are pure functions.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

DP_SIZE = 2
CP_SIZE = 4
WORLD_SIZE = DP_SIZE * CP_SIZE
BATCH_SIZE = 16
STEPS = 30
LEARNING_RATE = 3e-3
IGNORED = -100

_VOCABULARY = 256
_BUCKET_TOKENS = 128

# The field names are those of proto/skrull/v1/job.proto. The costs are chosen so
# that long sequences are worth sharding and short ones are not, as at full
# scale, where both numbers are larger: plans then mix the two.
_JOB = """
model {{
  hidden_size: 64 layer_count: 2 attention_head_count: 4 kv_head_count: 2
  head_dim: 16 intermediate_size: 128 vocab_size: {vocabulary}
}}
parallelism {{
  dp_size: {dp} cp_size: {cp} block_scope: BLOCK_SCOPE_{scope}
  uniform_micro_batch_count: {uniform}
}}
memory {{ bucket_size_tokens: {bucket} }}
cost {{
  flops_formula: FLOPS_FORMULA_EXACT seconds_per_flop: 1e-9 pass_multiplier: 3
  seconds_per_micro_batch: 0.005 bytes_per_element: 8
  intra_node {{ seconds_per_collective: 1e-4 seconds_per_byte: 1e-9 }}
}}
calibration {{ refit: false }}
policy: POLICY_{policy}
"""


@dataclasses.dataclass(frozen=True)
class History:
    """What a run left behind.

    `losses[k]` is the mean loss of the label tokens of step k, before its
    update. `seconds` is the wall time of the steps, without setting up.
    """

    losses: list[float]
    weights: dict[str, torch.Tensor]
    seconds: float


def job_text(scope: str = "GROUP", policy: str = "OPTIMIZED") -> str:
    """The job as a text proto; scope GROUP or POOL, policy without its prefix."""
    return _JOB.format(
        vocabulary=_VOCABULARY,
        dp=DP_SIZE,
        cp=CP_SIZE,
        scope=scope,
        bucket=_BUCKET_TOKENS,
        policy=policy,
        uniform="false",
    )


def new_model(dtype: torch.dtype, attention: str) -> Qwen2ForCausalLM:
    """A model with the same weights in every process, on the CPU."""
    config = Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        use_cache=False,
        attn_implementation=attention,
    )
    torch.manual_seed(20)
    return Qwen2ForCausalLM(config).to(dtype).train()


def new_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)


def lengths(examples: pathlib.Path, steps: int = STEPS) -> list[int]:
    """Lengths of `steps` global batches: fourteen sequences of a chat data set and
    two of a long-context one each, scaled down by 8 and by 64. 1 .. 506 tokens.
    """
    chat = _scaled(examples / "lmsyschat1m.txt", 8)
    long = _scaled(examples / "chatqa2.txt", 64)
    result = []
    for step in range(steps):
        short, tail = chat[step * 14 : step * 14 + 14], long[step * 2 : step * 2 + 2]
        result += short[:7] + tail[:1] + short[7:] + tail[1:]
    return result


def samples(sequence_lengths: list[int]) -> list[dict[str, Any]]:
    """Token sequences that a model can learn, and which of them are labels.

    A token follows from the one before it, but for a tenth that are random. The
    first half of every third sample is a prompt, whose loss does not count.
    `labels` are not shifted, as transformers has them.
    """
    random = np.random.default_rng(7)
    follower = random.permutation(_VOCABULARY)
    result = []
    for index, length in enumerate(sequence_lengths):
        tokens = np.empty(length, np.int64)
        token = int(random.integers(_VOCABULARY))
        for position in range(length):
            surprise = random.random() < 0.1
            token = int(random.integers(_VOCABULARY) if surprise else follower[token])
            tokens[position] = token
        labels = tokens.copy()
        if index % 3 == 0:
            labels[: length // 2] = IGNORED
        result.append(
            {"input_ids": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}
        )
    return result


def _scaled(path: pathlib.Path, divisor: int) -> list[int]:
    return [max(1, int(line) // divisor) for line in path.read_text().split()]
