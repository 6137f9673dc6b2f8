"""libskrull_exec.so by ctypes: ``cuda/c_api/skrull_exec.h``.

Calls drop the GIL. Plans of chunks (``skrull_exec_chunks.h``) are not bound.
"""

from __future__ import annotations

import ctypes
import functools

from skrull._native.library import load_declared
from skrull._native.structs import (
    DOUBLE,
    HANDLE,
    INT32,
    INT64,
    OUT_HANDLE,
    TEXT,
    Prototype,
    RankPlanView,
)
from skrull.errors import SkrullError, make_error

VERSION = 2

# int32_t (*skrull_rendezvous)(context, offer, offer_bytes, answer, answer_bytes,
#                              message, message_bytes)
RENDEZVOUS = ctypes.CFUNCTYPE(
    INT32, HANDLE, HANDLE, INT64, HANDLE, ctypes.POINTER(INT64), HANDLE, INT64
)
# int32_t (*skrull_gather_digests)(context, mine, all, message, message_bytes)
GATHER_DIGESTS = ctypes.CFUNCTYPE(INT32, HANDLE, HANDLE, HANDLE, HANDLE, INT64)


class DeviceOptions(ctypes.Structure):
    """``skrull_device_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("name", TEXT),
        ("poison_buffers", INT32),
        ("ordinal", INT32),
        ("directory", TEXT),
    ]


class BackendOptions(ctypes.Structure):
    """``skrull_backend_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("name", TEXT),
        ("directory", TEXT),
        ("cpu_threads", INT32),
        ("reserved", INT32),
    ]


class BackendInfo(ctypes.Structure):
    """``skrull_backend_info``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("lse_order", INT32),
        ("kv_tail_rows", INT32),
    ]


class CommOptions(ctypes.Structure):
    """``skrull_comm_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("name", TEXT),
        ("rank", INT32),
        ("ranks", INT32),
        ("time_limit_seconds", DOUBLE),
        ("peer", HANDLE),
        ("host", TEXT),
        ("rendezvous", RENDEZVOUS),
        ("rendezvous_context", HANDLE),
        ("directory", TEXT),
        ("device_ordinal", INT32),
        ("plain_buffers", INT32),
    ]


class MicroBatchInfo(ctypes.Structure):
    """``skrull_micro_batch_info``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("rows", INT64),
        ("local_rows", INT64),
        ("cu_seqlens_count", INT64),
        ("max_seqlen", INT64),
        ("block_count", INT64),
        ("token_count", INT64),
        ("token_weight", DOUBLE),
    ]


class ExecutorOptions(ctypes.Structure):
    """``skrull_executor_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("scale", DOUBLE),
        ("dtype", INT32),
        ("q_heads", INT32),
        ("kv_heads", INT32),
        ("head_dim", INT32),
        ("deterministic", INT32),
        ("exchange", INT32),
        ("grad_comm_accumulator", INT32),
        ("reserved", INT32),
        ("gather_digests", GATHER_DIGESTS),
        ("gather_context", HANDLE),
    ]


class Tensor(ctypes.Structure):
    """``skrull_attention_tensor``: [rows, heads, dim], strides in elements."""

    _fields_ = [
        ("data", HANDLE),
        ("rows", INT64),
        ("row_stride", INT64),
        ("head_stride", INT64),
        ("dtype", INT32),
        ("heads", INT32),
        ("dim", INT32),
        ("reserved", INT32),
    ]


class ForwardTensors(ctypes.Structure):
    """``skrull_forward_tensors``."""

    _fields_ = [
        ("struct_bytes", INT64),
        *((name, Tensor) for name in ("q", "k", "v", "o", "lse")),
    ]


class BackwardTensors(ctypes.Structure):
    """``skrull_backward_tensors``."""

    _fields_ = [
        ("struct_bytes", INT64),
        *(
            (name, Tensor)
            for name in ("q", "k", "v", "o", "lse", "d_o", "dq", "dk", "dv")
        ),
    ]


_P = ctypes.POINTER
_PROTOTYPES: tuple[Prototype, ...] = (
    ("skrull_exec_version", INT32, ()),
    ("skrull_exec_status_name", TEXT, (INT32,)),
    ("skrull_exec_last_error", TEXT, ()),
    ("skrull_device_create", INT32, (_P(DeviceOptions), OUT_HANDLE)),
    ("skrull_device_destroy", None, (HANDLE,)),
    ("skrull_device_create_stream", INT32, (HANDLE, OUT_HANDLE)),
    ("skrull_device_destroy_stream", INT32, (HANDLE, HANDLE)),
    ("skrull_device_synchronize", INT32, (HANDLE, HANDLE)),
    ("skrull_backend_create", INT32, (_P(BackendOptions), OUT_HANDLE)),
    ("skrull_backend_destroy", None, (HANDLE,)),
    ("skrull_backend_describe", INT32, (HANDLE, _P(BackendInfo))),
    ("skrull_comm_create", INT32, (_P(CommOptions), OUT_HANDLE)),
    ("skrull_comm_destroy", None, (HANDLE,)),
    ("skrull_comm_abort", INT32, (HANDLE, TEXT)),
    ("skrull_plan_create", INT32, (_P(RankPlanView), OUT_HANDLE)),
    ("skrull_plan_destroy", None, (HANDLE,)),
    ("skrull_plan_micro_batch_count", INT32, (HANDLE, _P(INT32))),
    ("skrull_plan_micro_batch", INT32, (HANDLE, INT32, _P(MicroBatchInfo))),
    ("skrull_plan_positions", INT32, (HANDLE, INT32, _P(INT32), INT64)),
    ("skrull_plan_sequences", INT32, (HANDLE, INT32, _P(INT32), INT64)),
    ("skrull_plan_cu_seqlens", INT32, (HANDLE, INT32, _P(INT32), INT64)),
    (
        "skrull_executor_create",
        INT32,
        (_P(ExecutorOptions), HANDLE, HANDLE, HANDLE, OUT_HANDLE),
    ),
    ("skrull_executor_destroy", None, (HANDLE,)),
    ("skrull_executor_prepare", INT32, (HANDLE, HANDLE, OUT_HANDLE)),
    ("skrull_step_destroy", None, (HANDLE,)),
    (
        "skrull_executor_forward",
        INT32,
        (HANDLE, HANDLE, INT32, _P(ForwardTensors), HANDLE),
    ),
    (
        "skrull_executor_backward",
        INT32,
        (HANDLE, HANDLE, INT32, _P(BackwardTensors), HANDLE),
    ),
    ("skrull_executor_poll", INT32, (HANDLE,)),
    ("skrull_executor_wait", INT32, (HANDLE, DOUBLE)),
    ("skrull_executor_abort", INT32, (HANDLE, TEXT)),
)


@functools.cache
def library() -> ctypes.CDLL:
    """The library, opened at the first use.

    Raises:
        ImportError: See :func:`skrull._native.library.load_declared`.
    """
    return load_declared("skrull_exec", VERSION, _PROTOTYPES)


def error(code: int) -> SkrullError:
    """What this thread's last call failed with, which returned ``code``."""
    native = library()
    return make_error(
        native.skrull_exec_status_name(code).decode(),
        native.skrull_exec_last_error().decode(errors="replace"),
    )


def check(code: int) -> None:
    """Raises what a call that returned this code failed with; 0 is fine."""
    if code != 0:
        raise error(code)
