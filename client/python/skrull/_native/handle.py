"""Owners of C handles."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from skrull.errors import FailedPreconditionError, ForkError

Destroy = Callable[[ctypes.c_void_p], Any]


class Owned:
    """Owns a handle of something immutable, which the garbage collector destroys.

    It takes no lock, so that it works in a child of fork(), whatever the parent's
    other threads were doing.

    Args:
        pointer: The handle, not NULL.
        destroy: The C function that releases it.
    """

    __slots__ = ("_destroy", "pointer")

    def __init__(self, pointer: ctypes.c_void_p, destroy: Destroy) -> None:
        self.pointer = pointer
        self._destroy = destroy

    def __del__(self) -> None:
        """Destroys the handle."""
        with contextlib.suppress(AttributeError):  # half made
            self._destroy(self.pointer)


class Connected:
    """Owns a handle that talks to a daemon and can be closed under its users.

    ``close`` may come from any thread while others are inside calls with the
    handle: it is destroyed when the last of them has left. In a child of the
    process that made it every use raises, and nothing is destroyed: its threads
    do not exist there.

    Args:
        pointer: The handle, not NULL.
        destroy: The C function that releases it.
        name: What it is, for errors.
    """

    def __init__(self, pointer: ctypes.c_void_p, destroy: Destroy, name: str) -> None:
        self._pointer = pointer
        self._destroy = destroy
        self._name = name
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False

    @contextlib.contextmanager
    def use(self) -> Iterator[ctypes.c_void_p]:
        """The pointer, which stays valid inside the ``with``.

        Raises:
            ForkError: In a child of the process that made it.
            FailedPreconditionError: It is closed.
        """
        check_process(self._process, self._name)
        with self._lock:
            if self._closed:
                raise FailedPreconditionError(
                    f"the {self._name} is closed", reason="CLOSED"
                )
            self._users += 1
        try:
            yield self._pointer
        finally:
            with self._lock:
                self._users -= 1
                last = self._closed and self._users == 0
            if last:
                self._destroy(self._pointer)

    def close(self) -> None:
        """Ends the use of the handle; later calls do nothing."""
        if self._process != os.getpid():
            return  # whoever held its lock at the fork will never let go of it
        with self._lock:
            last = not self._closed and self._users == 0
            self._closed = True
        if last:
            self._destroy(self._pointer)

    def __del__(self) -> None:
        """Destroys what nobody closed."""
        with contextlib.suppress(AttributeError):  # half made
            self.close()


def check_process(owner: int, name: str) -> None:
    """Raises ForkError unless process ``owner`` is this one."""
    if owner == os.getpid():
        return
    raise ForkError(
        f"the {name} was made by process {owner}, and process {os.getpid()} is a "
        "fork of it: gRPC does not survive fork(). Make DataLoader workers with "
        'multiprocessing_context="spawn" or "forkserver", or use it in the parent '
        "alone",
        reason="FORKED",
    )
