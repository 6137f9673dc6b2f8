#!/usr/bin/env python3
"""What the Python client costs: imports, calls, and bytes on the wire.

  overhead.py SKRULLD      # with SKRULL_LIBRARY_DIR and PYTHONPATH set

Prints one line a measurement. Times are medians; a call's overhead is its wall time
less what the planner in C++ says that it took.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import skrull

ROOT = pathlib.Path(__file__).resolve().parents[3]
JOB = ROOT / "deploy/examples/jobs/qwen2.5-0.5b.textproto"
LENGTHS = ROOT / "deploy/examples/lengths/wikipedia.txt"
BATCH = 256
REPEATS = 50


class Meter:
    """A TCP relay on the loopback interface that counts bytes both ways."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.sent = self.received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            far = socket.create_connection(self._target)
            for source, sink, name in ((near, far, "sent"), (far, near, "received")):
                threading.Thread(
                    target=self._relay, args=(source, sink, name), daemon=True
                ).start()

    def _relay(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        while data := source.recv(1 << 16):
            setattr(self, name, getattr(self, name) + len(data))
            sink.sendall(data)
        with contextlib.suppress(OSError):  # the other direction ended it
            sink.shutdown(socket.SHUT_WR)


def median(work: Callable[[int], float]) -> float:
    """Of REPEATS calls with rising numbers, after two that do not count."""
    return statistics.median([work(i) for i in range(REPEATS + 2)][2:])


def import_seconds(module: str) -> float:
    """Of a new interpreter, beyond what an empty one takes."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return statistics.median([run(f"import {module}") - run("") for _ in range(9)])


def call_overhead(
    engine: skrull.Engine, batches: list[list[int]]
) -> tuple[float, float]:
    """Seconds of a plan call, and of it what is not planning in C++."""
    planning: list[float] = []

    def call(step: int) -> float:
        start = time.perf_counter()
        plan = engine.plan(step, batches[step % len(batches)])
        wall = time.perf_counter() - start
        planning.append(plan.planning_seconds or 0.0)
        return wall

    wall = median(call)
    return wall, wall - statistics.median(planning[2:])


def hidden_seconds(engine: skrull.Engine, batches: list[list[int]]) -> float:
    """How long next() waits, with two steps ahead and a pause for the training."""
    depth, pause = 2, 0.02

    for step in range(depth):
        engine.submit(10_000 + step, batches[step % len(batches)])

    def wait(step: int) -> float:
        time.sleep(pause)  # the step trains
        start = time.perf_counter()
        engine.next()
        waited = time.perf_counter() - start
        ahead = step + depth
        engine.submit(10_000 + ahead, batches[ahead % len(batches)])
        return waited

    return median(wait)


def start_daemon(
    path: str, folder: pathlib.Path
) -> tuple[subprocess.Popen[bytes], str]:
    """The daemon, and where it listens."""
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [path, "--listen_address=127.0.0.1:0", "--metrics_address=127.0.0.1:0"],
            stdout=output,
            stderr=output,
        )
    mark = "skrulld listening on "
    while mark not in log.read_text():
        if process.poll() is not None:
            raise RuntimeError(log.read_text())
        time.sleep(0.02)
    return process, log.read_text().split(mark)[1].split(",")[0]


def main() -> None:
    """Measures and prints."""
    values = [int(line) for line in LENGTHS.read_text().split()]
    batches = [values[i : i + BATCH] for i in range(0, 20 * BATCH, BATCH)]
    job = skrull.Job.from_file(JOB)
    for module in ("numpy", "skrull"):
        print(f"import {module}: {import_seconds(module) * 1e3:.0f} ms")
    local = skrull.local(job, name="bench")
    wall, overhead = call_overhead(local, batches)
    print(
        f"in process: plan of {BATCH} lengths for {job.world_size} ranks "
        f"{wall * 1e6:.0f} us, of it around the planner {overhead * 1e6:.0f} us"
    )
    plan = local.plan(0, batches[0])
    start = time.perf_counter()
    shares = [plan.rank_plan(rank) for rank in range(job.world_size)]
    each = (time.perf_counter() - start) / len(shares)
    print(f"a rank's share: {each * 1e6:.0f} us")
    print(f"in process, two steps ahead: {hidden_seconds(local, batches) * 1e6:.0f} us")
    with tempfile.TemporaryDirectory() as folder:
        process, address = start_daemon(sys.argv[1], pathlib.Path(folder))
        try:
            meter = Meter(address)
            engine = skrull.connect(meter.address, job="bench", spec=job)
            wall, overhead = call_overhead(engine, batches)
            print(
                f"daemon: plan call {wall * 1e6:.0f} us, of it around the planner "
                f"{overhead * 1e6:.0f} us"
            )
            print(
                "daemon, two steps ahead: "
                f"{hidden_seconds(engine, batches) * 1e6:.0f} us"
            )
            before = meter.sent, meter.received
            for step in range(20_000, 20_000 + REPEATS):
                engine.plan(step, batches[step % len(batches)])
            sent, received = (
                (now - then) / REPEATS
                for now, then in zip((meter.sent, meter.received), before, strict=True)
            )
            print(f"wire, a plan call: {sent:.0f} bytes out, {received:.0f} in")
            before_share = meter.received
            for _ in range(REPEATS):
                engine.rank_plan(20_000, 0)
            received = (meter.received - before_share) / REPEATS
            print(f"wire, a rank's share: {received:.0f} bytes in")
            engine.close()
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
