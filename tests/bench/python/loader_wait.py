#!/usr/bin/env python3
"""How long a training loop waits for plans and for its data.

  loader_wait.py JOB_SPEC LENGTHS [--server HOST:PORT] [--step-seconds S] ...

Goes through batches of LENGTHS (one integer a line) as rank 0 of the job, and
sleeps --step-seconds in place of training each of them. Prints a table: for each
prefetch depth, the seconds a step that the loop waited for a plan (the sampler
alone) and for a packed batch (the loader), mean and worst, and the mean as a share
of the step. The first step of an epoch waits for its plan and for the workers to
start; it is told apart. Plans come from this process, or from a daemon.

Environment: PYTHONPATH and SKRULL_LIBRARY_DIR as for the tests.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Iterable

import numpy as np
import skrull
from skrull.torch import SkrullBatchSampler, SkrullDataLoader


class Tokens:
    """A dataset of sequences of the given lengths; all tokens are 1."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"input_ids": np.ones(self.lengths[index], dtype=np.int64)}


def waits(steps: Iterable[object], count: int, step_seconds: float) -> list[float]:
    """Seconds that each of the first `count` steps was waited for."""
    taken = []
    source = iter(steps)
    for _ in range(count):
        begin = time.perf_counter()
        next(source)
        taken.append(time.perf_counter() - begin)
        time.sleep(step_seconds)
    return taken


def row(name: str, prefetch: str, taken: list[float], step_seconds: float) -> str:
    first, rest = taken[0], taken[1:]
    mean = sum(rest) / len(rest)
    return (
        f"{name:<8} {prefetch:>8} {first * 1e3:>10.2f} {mean * 1e3:>10.3f} "
        f"{max(rest) * 1e3:>10.3f} {mean / (mean + step_seconds):>9.3%}"
    )


def without_prefetch(
    engine: skrull.Engine, lengths: list[int], batch_size: int, count: int
) -> list[float]:
    """Seconds of planning each batch when it is needed."""
    taken = []
    for step in range(count):
        batch = lengths[step * batch_size : (step + 1) * batch_size]
        begin = time.perf_counter()
        engine.plan(10_000_000 + step, batch).rank_plan(0)
        taken.append(time.perf_counter() - begin)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job_spec", type=pathlib.Path)
    parser.add_argument("lengths", type=pathlib.Path)
    parser.add_argument("--server", help="a daemon's HOST:PORT; default: this process")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    lengths = [int(n) for n in given.lengths.read_text().split() if n.isdigit()]
    job = skrull.Job.from_file(given.job_spec)
    if given.server:
        name = f"loader-wait-{time.time_ns()}"
        engine: skrull.Engine = skrull.connect(given.server, job=name, spec=job)
    else:
        engine = skrull.local(job)
    print("waits    prefetch   first ms    mean ms   worst ms   of step")
    with engine:
        taken = without_prefetch(engine, lengths, given.batch_size, given.steps)
        print(row("plan", "none", taken, given.step_seconds))
        for prefetch in (1, 2, 4):
            sampler = SkrullBatchSampler(
                lengths, given.batch_size, engine, 0, prefetch=prefetch
            )
            taken = waits(sampler, given.steps, given.step_seconds)
            print(row("plan", str(prefetch), taken, given.step_seconds))
        loader = SkrullDataLoader(
            Tokens(lengths),
            engine,
            0,
            batch_size=given.batch_size,
            lengths=lengths,
            num_workers=given.workers,
            multiprocessing_context="forkserver" if given.workers else None,
        )
        taken = waits(loader, given.steps, given.step_seconds)
        print(row("batch", "2", taken, given.step_seconds))


if __name__ == "__main__":
    main()
