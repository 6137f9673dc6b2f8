"""Starts, stops and kills real skrulld processes for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any

# Path of the program under test.
ENVIRONMENT = "SKRULL_SKRULLD"

_READY = re.compile(r"skrulld listening on (\S+),")
_START_SECONDS = 60.0


class Daemon:
    """A daemon that accepts calls, on a free loopback port, its store in memory.

    Attributes:
        address: "127.0.0.1:PORT".
        pid: Its process.

    Raises:
        RuntimeError: It ended, or was not ready within a minute; has its output.
    """

    def __init__(self, *flags: str) -> None:
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [
                os.environ[ENVIRONMENT],
                "--listen_address=127.0.0.1:0",
                "--metrics_address=",
                "--store=memory",
                *flags,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        self.pid = self._process.pid
        deadline = time.monotonic() + _START_SECONDS
        while not (ready := _READY.search(self.output())):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"skrulld did not start: {self.output()}")
            time.sleep(0.02)
        self.address = ready[1]

    def output(self) -> str:
        """All that it has written."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL; waits until it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        self.kill()
        self._output.close()
