"""libskrull_client.so by ctypes: ``client/c_api/skrull_client.h``.

Calls drop the GIL. Names here are those of the header without its prefix.
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
    sized,
)
from skrull.errors import SkrullError, make_error

VERSION = 1


class Error(ctypes.Structure):
    """``skrull_client_error``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("code", INT32),
        ("has_limit", INT32),
        ("message", TEXT),
        ("reason", TEXT),
        ("field", TEXT),
        ("request_id", TEXT),
        ("indices", ctypes.POINTER(INT64)),
        ("index_count", INT64),
        ("limit", INT64),
        ("retry_after_seconds", DOUBLE),
    ]


class JobSpec(ctypes.Structure):
    """``skrull_client_job_spec``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("dp_size", INT32),
        ("cp_size", INT32),
        ("tp_size", INT32),
        ("pp_size", INT32),
        ("bucket_size_tokens", INT64),
        ("longest_sequence", INT64),
        ("hidden_size", INT64),
        ("layer_count", INT64),
        ("q_heads", INT64),
        ("kv_heads", INT64),
        ("head_dim", INT64),
        ("policy", TEXT),
    ]


class Batch(ctypes.Structure):
    """``skrull_client_batch``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job", TEXT),
        ("policy", TEXT),
        ("step", INT64),
        ("attempt", INT32),
        ("reserved", INT32),
        ("lengths", ctypes.POINTER(INT64)),
        ("length_count", INT64),
        ("generation", INT64),
    ]


class PlanInfo(ctypes.Structure):
    """``skrull_client_plan_info``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job", TEXT),
        ("digest", TEXT),
        ("policy", TEXT),
        ("bytes", HANDLE),
        ("byte_count", INT64),
        ("step", INT64),
        ("attempt", INT32),
        ("committed", INT32),
        ("calibration_epoch", INT64),
        ("sequence_count", INT64),
        ("planning_seconds", DOUBLE),
        ("predicted_seconds", DOUBLE),
        ("lower_bound_seconds", DOUBLE),
        ("dp_imbalance", DOUBLE),
        ("rank_imbalance", DOUBLE),
        ("pipeline_seconds", DOUBLE),
        ("pipeline_bubble", DOUBLE),
        ("roll_back_count", INT64),
        ("sharded_sequence_count", INT64),
        ("sharded_token_count", INT64),
        ("micro_batch_count", INT64),
        ("max_rank_tokens", INT64),
        ("fallback_reason", TEXT),
    ]


class RankPlanInfo(ctypes.Structure):
    """``skrull_client_rank_plan_info``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job", TEXT),
        ("step", INT64),
        ("attempt", INT32),
        ("rank", INT32),
        ("batch_token_count", INT64),
        ("predicted_seconds", DOUBLE),
    ]


class PlannerOptions(ctypes.Structure):
    """``skrull_client_planner_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job_spec_text", TEXT),
        ("calibration_epoch", INT64),
    ]


class DaemonOptions(ctypes.Structure):
    """``skrull_client_daemon_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("address", TEXT),
        ("timeout_seconds", DOUBLE),
        ("unreachable_after_seconds", DOUBLE),
        ("prefetch_depth", INT32),
        ("allow_plaintext_token", INT32),
        ("tls_ca_file", TEXT),
        ("tls_cert_file", TEXT),
        ("tls_key_file", TEXT),
        ("tls_server_name", TEXT),
        ("token", TEXT),
        ("token_file", TEXT),
    ]


class JobInfo(ctypes.Structure):
    """``skrull_client_job_info``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("name", TEXT),
        ("owner", TEXT),
        ("job_spec_text", TEXT),
        ("calibrated_spec_text", TEXT),
        ("generation", INT64),
        ("calibration_epoch", INT64),
    ]


class StepReport(ctypes.Structure):
    """``skrull_client_step_report``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job", TEXT),
        ("generation", INT64),
        ("step", INT64),
        ("attempt", INT32),
        ("rank", INT32),
        ("outcome", INT32),
        ("reserved", INT32),
        ("step_seconds", DOUBLE),
        ("attention_seconds", DOUBLE),
        ("exchange_seconds", DOUBLE),
        ("peak_bytes", INT64),
    ]


class ReportAnswer(ctypes.Structure):
    """``skrull_client_report_answer``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("calibration_epoch", INT64),
        ("attempt", INT32),
        ("reserved", INT32),
    ]


class Meeting(ctypes.Structure):
    """``skrull_client_meeting``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job", TEXT),
        ("key", TEXT),
        ("generation", INT64),
        ("rank", INT32),
        ("size", INT32),
        ("offer", TEXT),
        ("offer_bytes", INT64),
    ]


class StreamOptions(ctypes.Structure):
    """``skrull_client_stream_options``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("job", TEXT),
        ("policy", TEXT),
        ("generation", INT64),
    ]


class Answer(ctypes.Structure):
    """``skrull_client_answer``."""

    _fields_ = [
        ("struct_bytes", INT64),
        ("step", INT64),
        ("attempt", INT32),
        ("answered", INT32),
    ]


_P = ctypes.POINTER
_PROTOTYPES: tuple[Prototype, ...] = (
    ("skrull_client_version", INT32, ()),
    ("skrull_client_code_name", TEXT, (INT32,)),
    ("skrull_client_last_error", INT32, (_P(Error),)),
    ("skrull_client_bytes_data", HANDLE, (HANDLE,)),
    ("skrull_client_bytes_size", INT64, (HANDLE,)),
    ("skrull_client_bytes_destroy", None, (HANDLE,)),
    ("skrull_client_describe_job_spec", INT32, (TEXT, _P(JobSpec))),
    ("skrull_client_plan_parse", INT32, (TEXT, INT64, OUT_HANDLE)),
    ("skrull_client_plan_destroy", None, (HANDLE,)),
    ("skrull_client_plan_describe", INT32, (HANDLE, _P(PlanInfo))),
    ("skrull_client_plan_lengths", INT32, (HANDLE, _P(INT64), INT64)),
    ("skrull_client_plan_json", INT32, (HANDLE, OUT_HANDLE)),
    ("skrull_client_plan_report", INT32, (HANDLE, TEXT, OUT_HANDLE)),
    ("skrull_client_plan_rank", INT32, (HANDLE, INT32, OUT_HANDLE)),
    ("skrull_client_rank_plan_destroy", None, (HANDLE,)),
    ("skrull_client_rank_plan_describe", INT32, (HANDLE, _P(RankPlanInfo))),
    ("skrull_client_rank_plan_view", INT32, (HANDLE, INT32, _P(RankPlanView))),
    ("skrull_client_planner_create", INT32, (_P(PlannerOptions), OUT_HANDLE)),
    ("skrull_client_planner_destroy", None, (HANDLE,)),
    ("skrull_client_planner_plan", INT32, (HANDLE, _P(Batch), OUT_HANDLE)),
    ("skrull_client_daemon_create", INT32, (_P(DaemonOptions), OUT_HANDLE)),
    ("skrull_client_daemon_destroy", None, (HANDLE,)),
    ("skrull_client_daemon_check_health", INT32, (HANDLE, DOUBLE)),
    (
        "skrull_client_daemon_create_job",
        INT32,
        (HANDLE, TEXT, TEXT, INT64, DOUBLE, OUT_HANDLE),
    ),
    ("skrull_client_daemon_get_job", INT32, (HANDLE, TEXT, DOUBLE, OUT_HANDLE)),
    ("skrull_client_job_describe", INT32, (HANDLE, _P(JobInfo))),
    ("skrull_client_job_destroy", None, (HANDLE,)),
    ("skrull_client_daemon_plan", INT32, (HANDLE, _P(Batch), DOUBLE, OUT_HANDLE)),
    (
        "skrull_client_daemon_rank_plan",
        INT32,
        (HANDLE, _P(Batch), INT32, DOUBLE, OUT_HANDLE),
    ),
    (
        "skrull_client_daemon_report",
        INT32,
        (HANDLE, _P(StepReport), DOUBLE, _P(ReportAnswer)),
    ),
    ("skrull_client_daemon_meet", INT32, (HANDLE, _P(Meeting), DOUBLE, OUT_HANDLE)),
    ("skrull_client_fallback_create", INT32, (HANDLE, HANDLE, OUT_HANDLE)),
    ("skrull_client_fallback_destroy", None, (HANDLE,)),
    ("skrull_client_fallback_plan", INT32, (HANDLE, _P(Batch), DOUBLE, OUT_HANDLE)),
    (
        "skrull_client_fallback_report",
        INT32,
        (HANDLE, _P(StepReport), DOUBLE, _P(ReportAnswer)),
    ),
    ("skrull_client_stream_create", INT32, (HANDLE, _P(StreamOptions), OUT_HANDLE)),
    ("skrull_client_stream_destroy", None, (HANDLE,)),
    ("skrull_client_stream_send", INT32, (HANDLE, _P(Batch))),
    ("skrull_client_stream_next", INT32, (HANDLE, DOUBLE, _P(Answer), OUT_HANDLE)),
    ("skrull_client_stream_pending", INT32, (HANDLE, _P(INT32))),
)


@functools.cache
def library() -> ctypes.CDLL:
    """The library, opened at the first use.

    Raises:
        ImportError: See :func:`skrull._native.library.load_declared`.
    """
    return load_declared("skrull_client", VERSION, _PROTOTYPES)


def last_error() -> SkrullError:
    """The failure of this thread's last call that failed."""
    error = sized(Error)
    library().skrull_client_last_error(ctypes.byref(error))
    return make_error(
        library().skrull_client_code_name(error.code).decode(),
        error.message.decode(errors="replace"),
        reason=error.reason.decode(),
        field=error.field.decode(),
        indices=[error.indices[i] for i in range(error.index_count)],
        limit=error.limit if error.has_limit else None,
        retry_after=(
            error.retry_after_seconds if error.retry_after_seconds >= 0 else None
        ),
        request_id=error.request_id.decode(),
    )


def check(code: int) -> None:
    """Raises what a call that returned this code failed with; 0 is fine."""
    if code != 0:
        raise last_error()


def take_bytes(handle: ctypes.c_void_p) -> bytes:
    """Copies what a ``skrull_client_bytes`` holds, and releases it."""
    native = library()
    try:
        return ctypes.string_at(
            native.skrull_client_bytes_data(handle),
            native.skrull_client_bytes_size(handle),
        )
    finally:
        native.skrull_client_bytes_destroy(handle)
