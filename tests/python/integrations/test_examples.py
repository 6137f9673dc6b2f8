"""The examples run, learn, and lose the same on two ranks as on four."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import runpy
import socket
import sys

import pytest

import forked_ranks
import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "client/python/examples"
STEPS = 3


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank(rank: int, ranks: int, port: int, name: str, options: list[str]) -> str:
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME="lo",
    )
    if name == "train_deepspeed.py":
        import deepspeed

        # A module that it would compile first; torch.distributed does as well.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    sys.argv = [name, f"--steps={STEPS}", *options]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return output.getvalue()


def _losses(ranks: int, name: str, options: list[str]) -> list[float]:
    outputs = forked_ranks.run(ranks, _rank, ranks, _free_port(), name, options)
    assert all("loss 4" not in output for output in outputs[1:])
    steps = re.findall(r"^step (\d+): loss ([\d.]+)$", outputs[0], re.MULTILINE)
    assert [int(step) for step, _ in steps] == list(range(STEPS))
    return [float(loss) for _, loss in steps]


@pytest.mark.parametrize(
    ("name", "options", "needs"),
    [
        ("train_ddp.py", [], "torch.distributed.fsdp"),
        ("train_ddp.py", ["--fsdp"], "torch.distributed.fsdp"),
        ("train_transformers.py", [], "transformers.trainer"),
        ("train_deepspeed.py", ["--zero=2"], "deepspeed"),
        ("train_deepspeed.py", ["--zero=3"], "deepspeed"),
        ("train_megatron.py", [], "megatron.core.models.gpt.gpt_model"),
    ],
)
def test_example(name: str, options: list[str], needs: str) -> None:
    pytest.importorskip(needs)  # also: once, before the ranks are forked
    losses = _losses(2, name, options)
    assert losses[0] > losses[1] > losses[2]
    assert _losses(4, name, options) == pytest.approx(losses, abs=3e-4)
