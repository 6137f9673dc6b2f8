"""How an engine that plans at a daemon is made."""

from __future__ import annotations

import ctypes

from skrull._native import client
from skrull._native.handle import Connected, Owned
from skrull._native.structs import sized, text
from skrull.errors import FailedPreconditionError, InvalidArgumentError
from skrull.fallback_engine import FallbackEngine
from skrull.job import Job
from skrull.remote_engine import RemoteEngine


def connect(
    address: str,
    *,
    job: str,
    spec: Job | None = None,
    generation: int = 0,
    token: str | None = None,
    token_file: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_server_name: str | None = None,
    allow_plaintext_token: bool = False,
    timeout: float = 30.0,
    unreachable_after: float = 10.0,
    prefetch_depth: int = 8,
    fallback: bool = False,
) -> RemoteEngine:
    """An engine that plans at a daemon.

    Args:
        address: ``"host:port"``; several with commas between them are replicas.
        job: Name of the job.
        spec: Creates the job, or joins the one of that name and spec; None joins
            the job that exists.
        generation: 0 joins whatever generation there is. With a spec, a higher one
            than the job's replaces it, and its plans are forgotten.
        token: Shown with every call. At most one of this and ``token_file``.
        token_file: Read again when it changes.
        tls_ca: PEM file of authorities; turns TLS on.
        tls_cert: PEM file of this client's certificate.
        tls_key: PEM file of its key.
        tls_server_name: Name in the daemon's certificate, if not the address's.
        allow_plaintext_token: Show the token without TLS to another machine, too.
        timeout: Deadline of each call, seconds, in (0, 86400].
        unreachable_after: A call gives up when the daemon was not reached for so
            many seconds; 0: after the first attempt.
        prefetch_depth: Most batches that ``submit`` holds, 1 .. 1024.
        fallback: Plan in this process while the daemon cannot be reached; see
            :class:`skrull.FallbackEngine`. It must be there to connect.

    Raises:
        InvalidArgumentError: Names the option out of range, or the field.
        NotFoundError: No spec was given, and there is no such job.
        AlreadyExistsError: The name is taken by a job with another spec.
        UnavailableError: The daemon cannot be reached.
        ForkError: A parent of this process made a connection before it forked.
    """
    if not timeout > 0:
        raise InvalidArgumentError(
            f"timeout: must be above 0 seconds, is {timeout}", field="timeout"
        )
    if not unreachable_after >= 0:
        raise InvalidArgumentError(
            f"unreachable_after: must be at least 0 seconds, is {unreachable_after}",
            field="unreachable_after",
        )
    if prefetch_depth < 1:
        raise InvalidArgumentError(
            f"prefetch_depth: must be at least 1, is {prefetch_depth}",
            field="prefetch_depth",
        )
    options = sized(
        client.DaemonOptions,
        address=text(address),
        timeout_seconds=timeout,
        unreachable_after_seconds=unreachable_after or -1.0,
        prefetch_depth=prefetch_depth,
        allow_plaintext_token=int(allow_plaintext_token),
        tls_ca_file=text(tls_ca),
        tls_cert_file=text(tls_cert),
        tls_key_file=text(tls_key),
        tls_server_name=text(tls_server_name),
        token=text(token),
        token_file=text(token_file),
    )
    native = client.library()
    handle = ctypes.c_void_p()
    client.check(
        native.skrull_client_daemon_create(ctypes.byref(options), ctypes.byref(handle))
    )
    daemon = Connected(
        handle, native.skrull_client_daemon_destroy, "connection to the daemon"
    )
    try:
        return _join(daemon, job, spec, generation, prefetch_depth if fallback else 0)
    except BaseException:
        daemon.close()
        raise


def _join(
    daemon: Connected,
    name: str,
    spec: Job | None,
    generation: int,
    fallback_depth: int,
) -> RemoteEngine:
    """Creates or joins the job; with a depth, the engine may plan by itself."""
    native = client.library()
    handle = ctypes.c_void_p()
    with daemon.use() as pointer:
        if spec is None:
            code = native.skrull_client_daemon_get_job(
                pointer, text(name), 0.0, ctypes.byref(handle)
            )
        else:
            code = native.skrull_client_daemon_create_job(
                pointer,
                text(name),
                text(spec.text),
                generation,
                0.0,
                ctypes.byref(handle),
            )
        client.check(code)
    job = Owned(handle, native.skrull_client_job_destroy)
    info = sized(client.JobInfo)
    client.check(native.skrull_client_job_describe(job.pointer, ctypes.byref(info)))
    if generation not in (0, info.generation):
        raise FailedPreconditionError(
            f"job {name} is at generation {info.generation}, not {generation}",
            reason="GENERATION_MISMATCH",
        )
    joined = (
        daemon,
        spec or Job(info.job_spec_text.decode()),
        name,
        info.generation,
        info.calibration_epoch,
    )
    if fallback_depth == 0:
        return RemoteEngine(*joined)
    with daemon.use() as pointer:
        handle = ctypes.c_void_p()
        client.check(
            native.skrull_client_fallback_create(
                pointer, job.pointer, ctypes.byref(handle)
            )
        )
    fallback = Connected(
        handle, native.skrull_client_fallback_destroy, "connection to the daemon"
    )
    return FallbackEngine(*joined, fallback, fallback_depth)
