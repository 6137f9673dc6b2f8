"""Forks, other packages with gRPC of their own, and the end of the process."""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest
import skrull

from conftest import LENGTHS, TEXT
from daemon import Daemon

_SECONDS = 120  # for what ends in two; a hang is the failure


def run(code: str, *arguments: str) -> str:
    """Output of a new interpreter, which must end by itself and in peace."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def in_a_fork(work: Callable[[], str]) -> str:
    """What `work` returns, or raises, in a child made by fork()."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_a_local_engine_works_in_a_fork(job: skrull.Job) -> None:
    engine = skrull.local(job)
    want = engine.plan(0, LENGTHS)
    engine.submit(1, LENGTHS)  # its thread is not in the child

    def work() -> str:
        assert engine.pending == 0
        engine.submit(0, LENGTHS)
        share = engine.next(timeout=60).rank_plan(1)
        assert want.rank_plan(1).micro_batches[0].positions.size == (
            share.micro_batches[0].rows
        )
        return share.digest

    assert in_a_fork(work) == want.digest
    assert engine.next().step == 1


def test_a_connection_in_a_fork_is_an_error_at_once(
    daemon: Daemon, job: skrull.Job
) -> None:
    engine = skrull.connect(daemon.address, job="fork", spec=job)
    engine.submit(0, LENGTHS)
    for call in (
        lambda: engine.plan(0, LENGTHS),
        lambda: engine.submit(1, LENGTHS),
        lambda: engine.next(),
        lambda: engine.rank_plan(0, 0),
        lambda: engine.pending,
        lambda: skrull.connect(daemon.address, job="fork"),
    ):
        assert in_a_fork(lambda call=call: str(call())).startswith("ForkError: ")
    assert in_a_fork(lambda: str(engine.close())) == "None"
    assert engine.next() == engine.plan(0, LENGTHS)
    engine.close()


def plan_in_worker(address: str) -> str:
    """A DataLoader worker that plans both ways."""
    local = skrull.local(TEXT, name="workers").plan(0, LENGTHS)
    with skrull.connect(address, job="workers") as engine:
        assert engine.plan(0, LENGTHS) == local
    return local.digest


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_may_connect_themselves(
    daemon: Daemon, job: skrull.Job, method: str
) -> None:
    with skrull.connect(daemon.address, job="workers", spec=job) as engine:
        want = engine.plan(0, LENGTHS)
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(plan_in_worker, [daemon.address] * 4) == [want.digest] * 4
            # Plans and shares cross the border of a worker.
            share = pool.apply(want.rank_plan, (1,))
        assert share.micro_batches[0].segments == (
            want.rank_plan(1).micro_batches[0].segments
        )


IMPORT_ORDER = """
import sys
address, *names = sys.argv[1:]
for name in names:
    __import__(name)
import skrull
if "grpc" in names:
    import grpc
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)
if "torch" in names:
    import torch
    assert torch.ones(3).sum() == 3
with skrull.connect(address, job="order") as engine:
    engine.submit(0, [5, 9])
    print(engine.next().digest)
if "grpc" in names:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)
"""


@pytest.mark.parametrize(
    "names", [" ".join(p) for p in itertools.permutations(["skrull", "torch", "grpc"])]
)
def test_imports_in_any_order(daemon: Daemon, job: skrull.Job, names: str) -> None:
    for name in ("torch", "grpc"):
        if importlib.util.find_spec(name) is None:
            pytest.fail(f"{name} is not installed: see tests/python/requirements.txt")
    with skrull.connect(daemon.address, job="order", spec=job) as engine:
        want = engine.plan(0, [5, 9]).digest
    assert run(IMPORT_ORDER, daemon.address, *names.split()).strip() == want


def test_importing_takes_neither_torch_nor_grpc_nor_a_library() -> None:
    code = (
        "import skrull, sys; "
        "print([m for m in ('torch', 'grpc', 'transformers') if m in sys.modules], "
        "'libskrull' in open('/proc/self/maps').read())"
    )
    assert run(code).strip() == "[] False"


OPEN_AT_EXIT = """
import os, signal, sys, threading
import skrull
address, process = sys.argv[1], int(sys.argv[2])
engine = skrull.connect(address, job="exit", spec=skrull.Job(sys.argv[3]))
for step in range(4):
    engine.submit(step, [5, 9])
engine.next()
threading.Thread(target=lambda: engine.rank_plan(99, 0), daemon=True).start()
local = skrull.local(engine.job)
for step in range(4):
    local.submit(step, [5, 9])
if process:
    os.kill(process, signal.SIGKILL)
    engine.submit(9, [5, 9])
print("end")
"""


@pytest.mark.parametrize("killed", [False, True])
def test_the_interpreter_exits_with_all_open(
    tmp_path: pathlib.Path, killed: bool
) -> None:
    with Daemon(tmp_path) as daemon:
        process = daemon.process.pid if killed else 0
        output = run(OPEN_AT_EXIT, daemon.address, str(process), TEXT)
    assert output == "end\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="-P")
def test_a_library_that_is_missing_is_named(tmp_path: pathlib.Path) -> None:
    code = (
        "import skrull\n"
        "try: skrull.Job('')\n"
        "except ImportError as error: print(error)\n"
    )
    environment = {**os.environ, "SKRULL_LIBRARY_DIR": str(tmp_path)}
    (tmp_path / "libskrull_client.so").write_text("no library")
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    ).stdout
    assert str(tmp_path / "libskrull_client.so") in told
