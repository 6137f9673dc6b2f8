#!/usr/bin/env python3
"""Style and types of the Python package and of its tests.

check_style.py ROOT      # exits 1 with what ruff and mypy say, or 0
"""

import subprocess
import sys
import tempfile


def main() -> int:
    """Runs the linters on ROOT."""
    root = sys.argv[1]
    package = f"{root}/client/python"
    tests = (f"{root}/tests/python", f"{root}/tests/e2e/train_equivalence")
    configuration = f"--config-file={package}/pyproject.toml"
    failed = 0
    with tempfile.TemporaryDirectory() as cache:
        for command in (
            ["ruff", "check", "--no-cache", package, *tests],
            ["ruff", "format", "--no-cache", "--check", package, *tests],
            ["mypy", f"--cache-dir={cache}", configuration, f"{package}/skrull"],
        ):
            done = subprocess.run([sys.executable, "-m", *command])
            failed |= done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
