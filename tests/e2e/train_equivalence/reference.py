"""The same training in one process, of one sequence at a time, without skrull."""

from __future__ import annotations

import time
from typing import Any

import torch

import training


def train(
    data: list[dict[str, Any]], steps: int, dtype: torch.dtype
) -> training.History:
    """Trains on batch k of the data in step k.

    The loss of a step is the sum over all label tokens of the batch by their
    count, which is what data parallel training has to add up to.
    """
    model = training.new_model(dtype, "sdpa")
    optimizer = training.new_optimizer(model)
    losses = []
    begin = time.perf_counter()
    for step in range(steps):
        first = step * training.BATCH_SIZE
        batch = data[first : first + training.BATCH_SIZE]
        label_count = sum(
            int((sample["labels"][1:] != training.IGNORED).sum()) for sample in batch
        )
        loss_sum = 0.0
        for sample in batch:
            if len(sample["labels"]) < 2:
                continue  # nothing follows its only token
            logits = model(input_ids=sample["input_ids"][None]).logits[0]
            loss = torch.nn.functional.cross_entropy(
                logits[:-1],
                sample["labels"][1:],
                reduction="sum",
                ignore_index=training.IGNORED,
            )
            (loss / label_count).backward()
            loss_sum += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss_sum / label_count)
    return training.History(
        losses,
        {name: value.detach().clone() for name, value in model.named_parameters()},
        time.perf_counter() - begin,
    )
