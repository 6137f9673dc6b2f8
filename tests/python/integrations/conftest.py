"""Where the adapters' tests find their helpers; threads, for ranks share cores."""

from __future__ import annotations

import pathlib
import sys

import torch

_SOURCE = pathlib.Path(__file__).resolve().parents[3]
for folder in (
    _SOURCE / "tests/python",
    _SOURCE / "tests/e2e/train_equivalence",
    _SOURCE / "client/python/examples",
):
    sys.path.insert(0, str(folder))

torch.set_num_threads(1)  # also: no thread must run when ranks are forked
