"""Runs a function on every rank of a pool, each rank a process of its own.

The ranks are forked: what the caller has imported is there at once, and what they
are given need not be pickled. So fork before a thread is started or a connection
made. Results are pickled.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pathlib
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

import torch


class RankError(AssertionError):
    """A rank raised, died or did not end in time; the message has what each said."""


def run(
    world_size: int,
    function: Callable[..., Any],
    *arguments: Any,
    timeout_seconds: float = 120.0,
) -> list[Any]:
    """What function(rank, *arguments) returned on each rank, in their order.

    A rank that fails ends the others: they may wait for it for ever.

    Raises:
        RankError: With the traceback of each rank that failed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ranks = {}
        try:
            for rank in range(world_size):
                ranks[_fork(rank, folder, function, arguments, timeout_seconds)] = rank
            failed = _wait(dict(ranks), timeout_seconds)
        finally:
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG) == (0, 0):
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)
        results = [_result(folder, rank) for rank in range(world_size)]
        errors = [text for ok, text in results if not ok and text]
        if failed or errors:
            raise RankError("\n".join([failed, *errors]))
        return [value for _, value in results]


@contextlib.contextmanager
def process_group(
    rank: int, world_size: int, folder: os.PathLike[str]
) -> Iterator[None]:
    """torch.distributed over gloo on the loopback interface, one thread a rank.

    The ranks find each other by a file in `folder`, which must be new.
    """
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(os.path.join(folder, "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _fork(
    rank: int,
    folder: pathlib.Path,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    timeout_seconds: float,
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        # Says where it hangs, before the parent kills it.
        faulthandler.dump_traceback_later(0.95 * timeout_seconds)
        value = (True, function(rank, *arguments))
        code = 0
    except BaseException:
        value = (False, f"rank {rank}: {traceback.format_exc()}")
    faulthandler.cancel_dump_traceback_later()
    try:
        (folder / f"{rank}.new").write_bytes(pickle.dumps(value))
        (folder / f"{rank}.new").rename(folder / str(rank))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(ranks: dict[int, int], timeout_seconds: float) -> str:
    """Waits for all, or a short while for the others after one failed; what went
    wrong with the first."""
    deadline = time.monotonic() + timeout_seconds
    failed = ""
    while ranks and time.monotonic() < deadline:
        for pid in list(ranks):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            rank = ranks.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code != 0 and not failed:
                failed = f"rank {rank} ended with {code}"
                deadline = min(deadline, time.monotonic() + 5)
        time.sleep(0.01)
    if ranks and not failed:
        failed = f"ranks {sorted(ranks.values())} ran for {timeout_seconds} s"
    return failed


def _result(folder: pathlib.Path, rank: int) -> tuple[bool, Any]:
    path = folder / str(rank)
    return pickle.loads(path.read_bytes()) if path.exists() else (False, "")
