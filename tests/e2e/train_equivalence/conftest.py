"""The runs' wall times and losses: printed, and written for the plot.

SKRULL_BUILD_DIR/train_equivalence/losses.json is an object {name of the run: {"losses":
[...], "seconds": ...}}.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

torch.set_num_threads(1)  # no thread may run when ranks are forked

RUNS: dict[str, dict[str, object]] = {}


class Record:
    """Collects runs for the summary."""

    def __call__(self, name: str, losses: list[float], seconds: float) -> None:
        RUNS[name] = {"losses": losses, "seconds": seconds}


@pytest.fixture(scope="session")
def record() -> Record:
    return Record()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not RUNS:
        return
    terminalreporter.section("equivalence training")
    for name, run in RUNS.items():
        losses, seconds = run["losses"], run["seconds"]
        terminalreporter.write_line(
            f"{name:24} {len(losses):3} steps {seconds:6.1f} s   loss "
            f"{losses[0]:.6f} -> {losses[-1]:.6f}"
        )
    folder = pathlib.Path(os.environ["SKRULL_BUILD_DIR"]) / "train_equivalence"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "losses.json").write_text(json.dumps(RUNS, indent=1))
