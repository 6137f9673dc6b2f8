"""What the tests share: jobs, batches and a daemon.

SKRULL_LIBRARY_DIR and SKRULL_DAEMON name what the build made; CMake sets them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import skrull

from daemon import Daemon

SOURCE = pathlib.Path(__file__).resolve().parents[2]

TEXT = """
model { hidden_size: 64 layer_count: 2 attention_head_count: 4 kv_head_count: 2 }
parallelism { dp_size: 2 cp_size: 4 }
memory { bucket_size_tokens: 600 }
"""
LENGTHS = [100, 2000, 30, 64, 1, 7, 500]


@pytest.fixture(scope="session")
def job() -> skrull.Job:
    """8 ranks, 600 tokens each."""
    return skrull.Job.from_text(TEXT)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for the tests of a file, which use job names of their own."""
    with Daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running
