"""Plain structs of both C interfaces, and how they are declared and filled."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, TypeVar

INT32 = ctypes.c_int32
INT64 = ctypes.c_int64
DOUBLE = ctypes.c_double
TEXT = ctypes.c_char_p
HANDLE = ctypes.c_void_p
OUT_HANDLE = ctypes.POINTER(ctypes.c_void_p)

Prototype = tuple[str, Any, tuple[Any, ...]]
S = TypeVar("S", bound=ctypes.Structure)


class Segment(ctypes.Structure):
    """``skrull_segment``: the rank's part of one sequence."""

    _fields_ = [
        ("sequence", INT32),
        ("token_count", INT32),
        ("first_rank", INT32),
        ("degree", INT32),
        ("low_begin", INT64),
        ("low_end", INT64),
        ("high_begin", INT64),
        ("high_end", INT64),
    ]


class RankPlanView(ctypes.Structure):
    """``skrull_rank_plan``: what the clients fill and the executor takes."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("digest", TEXT),
        ("rank", INT32),
        ("ranks", INT32),
        ("micro_batch_count", INT32),
        ("block_count", INT32),
        ("segment_offsets", ctypes.POINTER(INT64)),
        ("segments", ctypes.POINTER(Segment)),
        ("token_counts", ctypes.POINTER(INT64)),
        ("token_weights", ctypes.POINTER(DOUBLE)),
        ("blocks", ctypes.POINTER(INT32)),
    ]


def sized(kind: type[S], **fields: Any) -> S:
    """A struct with ``struct_bytes`` set and the other fields as given."""
    return kind(struct_bytes=ctypes.sizeof(kind), **fields)


def text(value: str | None) -> bytes | None:
    """A text for C; None stays NULL.

    Raises:
        ValueError: It holds a NUL character, which would end it early.
    """
    if value is None:
        return None
    if "\0" in value:
        raise ValueError(f"a text holds a NUL character: {value!r}")
    return value.encode()


def declare(library: ctypes.CDLL, prototypes: Iterable[Prototype]) -> None:
    """Gives functions their types, without which ctypes guesses ``int``."""
    for name, result, arguments in prototypes:
        function = getattr(library, name)
        function.restype = result
        function.argtypes = list(arguments)
