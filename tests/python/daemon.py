"""A real skrulld for tests, on ports of its own."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import time
from types import TracebackType

_READY_SECONDS = 60
_PATH = "SKRULL_DAEMON"


class Daemon:
    """A daemon that runs until it is stopped or killed.

    Args:
        folder: Where its output goes.
        store: e.g. "memory" or "sqlite:/path".
        address: Where it listens; port 0 takes a free one.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        store: str = "memory",
        address: str = "127.0.0.1:0",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"skrulld-{time.monotonic_ns()}.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    os.environ[_PATH],
                    f"--listen_address={address}",
                    "--metrics_address=127.0.0.1:0",
                    f"--store={store}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.address = self._wait()

    def _wait(self) -> str:
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            text = self._log.read_text()
            found = re.search(r"skrulld listening on ([^, ]+),", text)
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(f"skrulld is not ready: {self._log.read_text()}")

    def kill(self) -> None:
        """As a machine that vanishes: SIGKILL."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
