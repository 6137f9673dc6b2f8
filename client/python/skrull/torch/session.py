"""A rank's executor, as a training loop uses it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import torch

from skrull.engine import Engine
from skrull.errors import InvalidArgumentError, SkrullError
from skrull.rank_plan import RankPlan
from skrull.torch import _tensors
from skrull.torch._execution import EXCHANGES, Execution, Settings
from skrull.torch.rendezvous import (
    InProcessPeers,
    Rendezvous,
    connect,
    default_rendezvous,
)
from skrull.torch.step import Step

_COMMS = ("host", "nccl", "in_process")


class Session:
    """One rank's executor: attention of the micro-batches of a step at a time.

    Making a session is collective: it returns when all ranks of the job's pool
    made theirs. So are ``prepare``, ``agree``, ``restart``, and each attention call,
    forward and backward: every rank makes the same ones in the same order, also
    with 0 rows. A call that fails on one rank fails on all; the session then only
    repeats that failure, until ``restart``.

    For one thread at a time, except ``abort``. Not for children of fork(): there
    every call raises ForkError.

    Example:
        >>> with Session(engine, rank, q_heads=32, kv_heads=8, head_dim=128) as session:
        ...     for batch in loader:
        ...         session.prepare(batch.rank_plan)
        ...         for part in batch:
        ...             ...  # attention(q, k, v, part.micro_batch)

    Args:
        engine: Of the job; ``engine.world_size`` ranks take part.
        rank: This one, 0 .. world_size - 1.
        q_heads: Query heads on this rank, a multiple of ``kv_heads``.
        kv_heads: Key and value heads on this rank, >= 1.
        head_dim: Elements of a head, >= 1.
        dtype: Of q, k, v and their gradients: float16, bfloat16, float32 or
            float64.
        device: ``"cpu"`` or a CUDA device. On CUDA, work goes to torch's current
            stream; on the CPU calls return when it is done.
        backend: Attention kernels; None: ``"cpu"``, or ``"cuda"`` there.
        comm: How rows travel: ``"host"`` (processes, TCP), ``"nccl"`` (processes,
            a GPU each) or ``"in_process"`` (threads). None: what suits the device;
            a single rank is in process.
        scale: Of q.k before the softmax; None: head_dim^-0.5.
        deterministic: Equal calls give equal bits.
        exchange: ``"all_gather"``, or ``"ring"`` for less memory.
        rendezvous: How ranks find each other; None: the engine's daemon, else
            ``torch.distributed``. Not used in process.
        peers: Of ``"in_process"``: one object that all ranks share.
        host: Address of this machine that the other ranks reach; None: 127.0.0.1.
        time_limit: Seconds that a rank waits for the others, in any call.
        cpu_threads: Of the cpu backend; None: ``torch.get_num_threads()``.

    Attributes:
        engine: As given.
        rank: As given.
        attention_seconds: Wall time inside attention calls since it was last set
            to 0; on CUDA that of putting them on the stream alone.

    Raises:
        SkrullError: An argument that is wrong or not supported, a library that is
            missing, or ranks that did not come.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        *,
        q_heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device = "cpu",
        backend: str | None = None,
        comm: str | None = None,
        scale: float | None = None,
        deterministic: bool = True,
        exchange: str = "all_gather",
        rendezvous: Rendezvous | None = None,
        peers: InProcessPeers | None = None,
        host: str | None = None,
        time_limit: float = 60.0,
        cpu_threads: int | None = None,
    ) -> None:
        self.engine = engine
        self.rank = rank
        self.attention_seconds = 0.0
        where = _device(device)
        _one_of("exchange", exchange, EXCHANGES)
        _tensors.dtype_code(dtype)
        self._settings = Settings(
            rank=rank,
            world_size=engine.world_size,
            q_heads=q_heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            dtype=dtype,
            device=where,
            backend=backend or where.type,
            # A head_dim that is none is the executor's to refuse.
            scale=max(head_dim, 1) ** -0.5 if scale is None else scale,
            deterministic=deterministic,
            exchange=exchange,
            cpu_threads=cpu_threads or torch.get_num_threads(),
        )
        self._comm = comm or _default_comm(engine.world_size, where)
        _one_of("comm", self._comm, _COMMS)
        self._rendezvous = rendezvous
        self._peers = self._checked_peers(peers)
        self._host = host
        self._time_limit = time_limit
        self._current: Step | None = None
        self._execution = self._start()

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self._settings.device

    @property
    def current(self) -> Step | None:
        """The step prepared last; None before the first, and after a restart."""
        return self._current

    @property
    def scale(self) -> float:
        """Of q.k before the softmax."""
        return self._settings.scale

    def prepare(self, rank_plan: RankPlan | None) -> Step:
        """Agrees with all ranks on the plan, and makes it the current step.

        Args:
            rank_plan: This rank's share. None: this rank got none (its planner
                call failed); all ranks then raise instead of waiting for it.

        Raises:
            DigestMismatchError: Ranks hold different plans; on every rank, before
                anything is exchanged. The session can prepare another plan.
            SkrullError: A rank failed, or did not come in time.
        """
        handle = self._execution.prepare(rank_plan)
        assert rank_plan is not None  # without one all ranks have raised
        self._current = Step(self, self._execution, rank_plan, handle)
        return self._current

    def agree(self, statement: str) -> None:
        """Waits until all ranks have said the same, such as how a step ended.

        Raises:
            DigestMismatchError: A rank said something else; on every rank.
            SkrullError: A rank failed, or did not come in time.
        """
        self._execution.agree(statement)

    def failure(self) -> SkrullError | None:
        """Why the session cannot be used, or None. Does not block."""
        try:
            self._execution.poll()
        except SkrullError as error:
            return error
        return None

    def abort(self, reason: str) -> None:
        """Fails the session on all ranks, so that none waits for this one.

        May come from any thread. No effect if it failed before.

        Args:
            reason: What the other ranks' errors say.
        """
        self._execution.abort(f"rank {self.rank}: {reason}")

    def restart(self) -> None:
        """Meets the other ranks anew. Collective; all steps are left behind.

        Raises:
            SkrullError: As for the class.
        """
        self.close()
        self._execution = self._start()

    def close(self) -> None:
        """Waits for the session's work and releases it. Later calls do nothing."""
        self._current = None
        self._execution.close()

    def __enter__(self) -> Session:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it; after an exception the other ranks are told first."""
        if error is not None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()

    def _start(self) -> Execution:
        settings = self._settings
        meet = self._rendezvous
        if meet is None and self._comm != "in_process":
            meet = default_rendezvous(self.engine, self.rank)
        return Execution(
            settings,
            lambda: connect(
                settings,
                self._comm,
                meet=meet,
                peers=self._peers,
                host=self._host,
                time_limit=self._time_limit,
            ),
        )

    def _checked_peers(self, peers: InProcessPeers | None) -> InProcessPeers | None:
        if (
            self._comm == "in_process"
            and peers is None
            and self._settings.world_size > 1
        ):
            raise InvalidArgumentError(
                f"peers: {self._settings.world_size} ranks in one process need one "
                "InProcessPeers for all of them",
                field="peers",
            )
        if self._comm != "in_process" and peers is not None:
            raise InvalidArgumentError(
                f'peers: belongs to comm="in_process", not {self._comm!r}',
                field="peers",
            )
        return peers


def _device(device: str | torch.device) -> torch.device:
    where = torch.device(device)
    if where.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(
            f"device: must be cpu or cuda, is {where}", field="device"
        )
    if where.type == "cuda" and where.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(where.type) if where.type == "cpu" else where


def _default_comm(world_size: int, device: torch.device) -> str:
    if device.type == "cuda":
        return "nccl"
    return "in_process" if world_size == 1 else "host"


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidArgumentError(
            f"{name}: must be one of {', '.join(known)}, is {value!r}", field=name
        )
