"""A dataset in which every token tells where it is from."""

from __future__ import annotations

import numpy as np

STRIDE = 10_000  # above any length
MASKED = 3  # every third label does not count, where labels are given


def token(index: int, position: int) -> int:
    return index * STRIDE + position


def label(index: int, position: int, length: int, *, masked: bool) -> int:
    """What the row of a token is to predict."""
    following = position + 1
    if following == length or (masked and following % MASKED == 0):
        return -100
    return token(index, following)


class Samples:
    """Map-style; odd samples are lists, even ones arrays.

    Args:
        lengths: Of the samples, tokens.
        masked: Samples have labels of their own.
        wrong: A sample that is one token short.
        vocabulary: Tokens are below it; 0: they tell where they are from.
    """

    def __init__(
        self,
        lengths: list[int],
        *,
        masked: bool = False,
        wrong: int | None = None,
        vocabulary: int = 0,
    ) -> None:
        self.lengths = lengths
        self.masked = masked
        self.wrong = wrong
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, object]:
        length = self.lengths[index] - (index == self.wrong)
        ids = np.array([token(index, p) for p in range(length)], dtype=np.int32)
        if self.vocabulary:
            ids = ids * 7 % self.vocabulary
        sample: dict[str, object] = {"input_ids": ids.tolist() if index % 2 else ids}
        if self.masked:
            labels = np.where(np.arange(length) % MASKED == 0, -100, ids)
            sample["labels"] = labels.tolist() if index % 2 else labels
        return sample


def refuse_to_work(worker: int) -> None:
    raise RuntimeError(f"worker {worker} does not feel like it")
