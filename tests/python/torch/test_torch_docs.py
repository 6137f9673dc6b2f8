"""The program of docs/python/torch.md runs, and learns."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python" / "torch.md"


def test_the_program_of_the_page() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 1
    done = subprocess.run(
        [sys.executable, "-c", programs[0]], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    losses = re.findall(r"epoch (\d), step (\d): loss (\d\.\d+)", done.stdout)
    assert [(epoch, step) for epoch, step, _ in losses] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "2"),
        ("1", "3"),
    ]
    first, *_, last = (float(loss) for _, _, loss in losses)
    assert last < first
