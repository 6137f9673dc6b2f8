"""Owners of the executor's handles, which threads and other ranks stand behind."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any

Destroy = Callable[[ctypes.c_void_p], Any]


class Handle:
    """Owns one handle of ``skrull_exec.h``.

    It is destroyed once: by ``close``, by the garbage collector, or when the
    interpreter exits, then the youngest handle first. In a child of fork() nothing
    is destroyed: the threads that would have to end are not there.

    Args:
        pointer: The handle, not NULL.
        destroy: The C function that releases it.
    """

    def __init__(self, pointer: ctypes.c_void_p, destroy: Destroy) -> None:
        self.pointer = pointer
        self._finalizer = weakref.finalize(
            self, _destroy, os.getpid(), destroy, pointer
        )

    def close(self) -> None:
        """Destroys it; later calls do nothing."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """It is destroyed."""
        return not self._finalizer.alive


def _destroy(process: int, destroy: Destroy, pointer: ctypes.c_void_p) -> None:
    if process == os.getpid():
        destroy(pointer)


def create(
    function: Callable[..., int],
    destroy: Destroy,
    check: Callable[[int], None],
    *arguments: Any,
) -> Handle:
    """Calls a ``*_create`` function, and owns what it makes.

    Args:
        function: Takes ``arguments`` and a pointer to the new handle.
        destroy: Releases the handle.
        check: Raises what a code of ``function`` other than 0 stands for.
        *arguments: Of ``function``.
    """
    pointer = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(pointer)))
    return Handle(pointer, destroy)
