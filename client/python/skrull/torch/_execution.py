"""One rank's executor and what it is made of, over the C interface."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Iterator

import torch

from skrull._native import executor
from skrull._native.handle import check_process
from skrull._native.library import directories
from skrull._native.structs import RankPlanView, sized, text
from skrull.errors import DigestMismatchError, FailedPreconditionError, SkrullError
from skrull.rank_plan import RankPlan
from skrull.torch import _tensors
from skrull.torch._handles import Handle, create

EXCHANGES = ("all_gather", "ring")  # by their numbers in the C interface
_HEAD_MAJOR = 2  # skrull_backend_info.lse_order


@dataclasses.dataclass(frozen=True)
class Settings:
    """What an executor computes, and on what. Fields: see ``Session``."""

    rank: int
    world_size: int
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    backend: str
    scale: float
    deterministic: bool
    exchange: str
    cpu_threads: int


class Execution:
    """Device, backend, communicator and executor of one rank.

    Calls that all ranks make (``prepare``, ``agree``, ``forward``, ``backward``)
    end it when they fail, on every rank: each later call raises the same failure.
    One call at a time; ``abort`` may come from any thread at any time.

    Args:
        settings: What to make.
        connect: Makes the communicator.

    Raises:
        SkrullError: The executor's reason. Other ranks are told.
    """

    def __init__(self, settings: Settings, connect: Callable[[], Handle]) -> None:
        self.settings = settings
        self._process = os.getpid()
        self._lock = threading.Lock()  # of calls, which may block
        self._abort_lock = threading.Lock()  # of abort, and of the executor's end
        self._native = executor.library()
        self._on_cpu = settings.device.type == "cpu"
        self._device = self._create_device()
        self._stream = self._create_stream() if self._on_cpu else None
        self._backend = self._create_backend()
        info = sized(executor.BackendInfo)
        executor.check(
            self._native.skrull_backend_describe(
                self._backend.pointer, ctypes.byref(info)
            )
        )
        self._head_major = info.lse_order == _HEAD_MAJOR
        self._tail_rows: int = info.kv_tail_rows
        self._comm = connect()
        try:
            self._executor = self._create_executor()
        except SkrullError as error:
            self._native.skrull_comm_abort(self._comm.pointer, str(error).encode())
            raise

    def prepare(self, rank_plan: RankPlan | None) -> Handle:
        """Agrees with all ranks on their plan; gives the step's handle.

        Args:
            rank_plan: None: this rank got none, which fails it on all ranks.

        Raises:
            DigestMismatchError: The ranks hold different plans. It can prepare
                another one.
        """
        plan = None if rank_plan is None else rank_plan.native
        return self._prepare(plan)

    def agree(self, statement: str) -> None:
        """Waits until every rank has come to say the same.

        Raises:
            DigestMismatchError: A rank said something else.
        """
        digest = hashlib.sha256(statement.encode()).hexdigest()
        view = sized(
            RankPlanView,
            digest=digest.encode(),
            rank=self.settings.rank,
            ranks=self.settings.world_size,
        )
        plan = create(
            self._native.skrull_plan_create,
            self._native.skrull_plan_destroy,
            executor.check,
            ctypes.byref(view),
        )
        try:
            self._prepare(plan.pointer).close()
        except DigestMismatchError as error:
            raise DigestMismatchError(
                f"this rank says {statement!r}: {error.message}"
            ) from None
        finally:
            plan.close()

    def forward(
        self,
        step: Handle,
        micro_batch: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of one layer of one micro-batch.

        Args:
            step: As ``prepare`` gave it.
            micro_batch: Its index in the step.
            q: [rows, q_heads, head_dim].
            k: [rows, kv_heads, head_dim].
            v: [rows, kv_heads, head_dim].

        Returns:
            o like q, dense, and the log-sum-exps [rows * q_heads] in the order
            that the backend wants them in.
        """
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            _tensors.check(name, tensor, self.settings.device)
        q, k, v = _tensors.strided(q), self._keys(k), self._keys(v)
        o = q.new_empty(q.shape)
        lse = q.new_empty(q.shape[0] * q.shape[1], dtype=_tensors.accumulator(q.dtype))
        self._call(
            self._native.skrull_executor_forward,
            step,
            micro_batch,
            sized(
                executor.ForwardTensors,
                q=_tensors.view(q),
                k=_tensors.view(k),
                v=_tensors.view(v),
                o=_tensors.view(o),
                lse=self._lse(lse, q.shape[1]),
            ),
        )
        return o, lse

    def backward(
        self,
        step: Handle,
        micro_batch: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        d_o: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradients of q, k and v, dense, from that of o.

        Args:
            step: As of ``forward``; so are ``micro_batch``, ``q``, ``k``, ``v``.
            micro_batch: See ``step``.
            q: See ``step``.
            k: See ``step``.
            v: See ``step``.
            o: As ``forward`` gave it; so is ``lse``.
            lse: See ``o``.
            d_o: Gradient of ``o``, of its shape.
        """
        for name, tensor in (("q", q), ("k", k), ("v", v), ("d_o", d_o)):
            _tensors.check(name, tensor, self.settings.device)
        q, k, v = _tensors.strided(q), self._keys(k), self._keys(v)
        o, d_o = _tensors.strided(o), _tensors.strided(d_o)
        dq, dk, dv = (t.new_empty(t.shape) for t in (q, k, v))
        self._call(
            self._native.skrull_executor_backward,
            step,
            micro_batch,
            sized(
                executor.BackwardTensors,
                q=_tensors.view(q),
                k=_tensors.view(k),
                v=_tensors.view(v),
                o=_tensors.view(o),
                lse=self._lse(lse, q.shape[1]),
                d_o=_tensors.view(d_o),
                dq=_tensors.view(dq),
                dk=_tensors.view(dk),
                dv=_tensors.view(dv),
            ),
        )
        return dq, dk, dv

    def poll(self) -> None:
        """Raises the executor's first failure, if there is one; does not block."""
        with self._calling():
            self._poll()

    def abort(self, reason: str) -> None:
        """Fails this executor and the other ranks', unless it failed before."""
        if self._process != os.getpid():
            return
        with self._abort_lock:
            if not self._executor.closed:
                self._native.skrull_executor_abort(
                    self._executor.pointer, reason.replace("\0", "").encode()
                )

    def close(self) -> None:
        """Waits for its work and releases everything. Later calls do nothing."""
        if self._process != os.getpid():
            return
        with self._lock, self._abort_lock:
            for handle in (self._executor, self._comm, self._backend, self._device):
                handle.close()

    def _prepare(self, plan: ctypes.c_void_p | None) -> Handle:
        with self._calling():
            try:
                return create(
                    self._native.skrull_executor_prepare,
                    self._native.skrull_step_destroy,
                    executor.check,
                    self._executor.pointer,
                    plan,
                )
            except FailedPreconditionError as error:
                raise DigestMismatchError(error.message) from None

    def _call(
        self,
        function: Callable[..., int],
        step: Handle,
        micro_batch: int,
        tensors: ctypes.Structure,
    ) -> None:
        """Runs one call; on the CPU until its work is done.

        On CUDA the work is on torch's current stream when it returns, and ends
        before what torch puts there next.
        """
        with self._calling():
            stream = self._stream
            if stream is None:
                current = torch.cuda.current_stream(self.settings.device)
                stream = ctypes.c_void_p(current.cuda_stream)
            executor.check(
                function(
                    self._executor.pointer,
                    step.pointer,
                    micro_batch,
                    ctypes.byref(tensors),
                    stream,
                )
            )
            if self._on_cpu:
                code = self._native.skrull_device_synchronize(
                    self._device.pointer, stream
                )
                failed = executor.error(code) if code else None
                self._poll()  # its reason is nearer to the cause than the device's
                if failed is not None:
                    raise failed

    def _poll(self) -> None:
        executor.check(self._native.skrull_executor_poll(self._executor.pointer))

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """One call at a time, and none where it cannot be made."""
        # First: in a child nobody may let go of the lock.
        check_process(self._process, "session")
        with self._lock:
            if self._executor.closed:
                raise FailedPreconditionError("the session is closed", reason="CLOSED")
            yield

    def _keys(self, tensor: torch.Tensor) -> torch.Tensor:
        return _tensors.with_tail(tensor, self._tail_rows)

    def _lse(self, lse: torch.Tensor, heads: int) -> executor.Tensor:
        return _tensors.view(_tensors.lse_view(lse, heads, head_major=self._head_major))

    def _create_device(self) -> Handle:
        name = self.settings.device.type
        options = sized(
            executor.DeviceOptions,
            name=text(name),
            ordinal=self.settings.device.index or 0,
            directory=plugin_directory(f"libskrull_device_{name}.so"),
        )
        return create(
            self._native.skrull_device_create,
            self._native.skrull_device_destroy,
            executor.check,
            ctypes.byref(options),
        )

    def _create_stream(self) -> ctypes.c_void_p:
        """A stream of the device, which is destroyed with it."""
        stream = ctypes.c_void_p()
        executor.check(
            self._native.skrull_device_create_stream(
                self._device.pointer, ctypes.byref(stream)
            )
        )
        return stream

    def _create_backend(self) -> Handle:
        options = sized(
            executor.BackendOptions,
            name=text(self.settings.backend),
            directory=plugin_directory(f"libskrull_backend_{self.settings.backend}.so"),
            cpu_threads=self.settings.cpu_threads,
        )
        return create(
            self._native.skrull_backend_create,
            self._native.skrull_backend_destroy,
            executor.check,
            ctypes.byref(options),
        )

    def _create_executor(self) -> Handle:
        settings = self.settings
        options = sized(
            executor.ExecutorOptions,
            scale=settings.scale,
            dtype=_tensors.dtype_code(settings.dtype),
            q_heads=settings.q_heads,
            kv_heads=settings.kv_heads,
            head_dim=settings.head_dim,
            deterministic=settings.deterministic,
            exchange=EXCHANGES.index(settings.exchange),
        )
        return create(
            self._native.skrull_executor_create,
            self._native.skrull_executor_destroy,
            executor.check,
            ctypes.byref(options),
            self._device.pointer,
            self._backend.pointer,
            self._comm.pointer,
        )


def plugin_directory(file: str) -> bytes | None:
    """Where a shared object that is opened by name lies; None: the linker knows."""
    for directory in directories():
        if os.path.exists(os.path.join(directory, file)):
            return directory.encode()
    return None
