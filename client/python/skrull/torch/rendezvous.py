"""How the ranks of a pool find each other."""

from __future__ import annotations

import collections
import ctypes
import threading
from collections.abc import Callable

import torch.distributed

from skrull._native import executor
from skrull._native.structs import sized, text
from skrull.engine import Engine
from skrull.errors import InvalidArgumentError
from skrull.local_engine import LocalEngine
from skrull.torch._execution import Settings, plugin_directory
from skrull.torch._handles import Handle, create

# Gives every rank what rank 0 offers: takes this rank's offer, empty on ranks other
# than 0, and returns rank 0's. Called once by every rank of the pool, at the same
# time; blocks until all came.
Rendezvous = Callable[[bytes], bytes]

_KEY = "skrull.torch"  # of meetings at the daemon; sessions meet one by one
_COMM_FAILED = 7  # skrull_status_code


class InProcessPeers:
    """Brings together ranks that are threads of one process.

    Give the same object to the sessions of all ranks. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._joined: collections.Counter[int] = collections.Counter()
        self._rounds: dict[int, list[Handle]] = collections.defaultdict(list)

    def join(
        self, rank: int, ranks: int, make: Callable[[Handle | None], Handle]
    ) -> Handle:
        """The rank's way to the others; its n-th call meets their n-th.

        Args:
            rank: Who joins.
            ranks: How many there are.
            make: Makes a communicator that joins the given one; None: the first.
        """
        with self._lock:
            number = self._joined[rank]
            members = self._rounds[number]
            member = make(members[0] if members else None)
            members.append(member)
            self._joined[rank] += 1
            if len(members) == ranks:
                del self._rounds[number]
            return member


def default_rendezvous(engine: Engine, rank: int) -> Rendezvous:
    """The engine's daemon if it has one, else ``torch.distributed``.

    Args:
        engine: Of the job; its pool is who meets.
        rank: This rank.

    Raises:
        InvalidArgumentError: There is neither, or torch's ranks are not the pool's.
    """
    size = engine.world_size
    if not isinstance(engine, LocalEngine):
        return lambda offer: engine.rendezvous(_KEY, rank, size, offer)
    if not torch.distributed.is_initialized():
        raise InvalidArgumentError(
            f"rendezvous: {size} ranks need a way to find each other: connect to a "
            "daemon, initialise torch.distributed, or give one",
            field="rendezvous",
        )
    mine = (torch.distributed.get_rank(), torch.distributed.get_world_size())
    if mine != (rank, size):
        raise InvalidArgumentError(
            f"rendezvous: this is rank {rank} of {size}, but {mine[0]} of {mine[1]} to "
            "torch.distributed: give one that brings the pool together",
            field="rendezvous",
        )
    return _broadcast


def _broadcast(offer: bytes) -> bytes:
    box = [offer]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


def connect(
    settings: Settings,
    name: str,
    *,
    meet: Rendezvous | None,
    peers: InProcessPeers | None,
    host: str | None,
    time_limit: float,
) -> Handle:
    """Makes the rank's communicator. Collective; arguments as of ``Session``.

    Raises:
        SkrullError: Why the ranks did not come together.
        Exception: What ``meet`` raised.
    """
    raised: list[BaseException] = []
    callback = _as_callback(meet, raised) if meet else executor.RENDEZVOUS()

    def make(peer: Handle | None) -> Handle:
        native = executor.library()
        options = sized(
            executor.CommOptions,
            name=text(name),
            rank=settings.rank,
            ranks=settings.world_size,
            time_limit_seconds=time_limit,
            peer=peer.pointer if peer else None,
            host=text(host),
            rendezvous=callback,
            directory=plugin_directory("libskrull_comm_nccl.so"),
            device_ordinal=settings.device.index or 0,
        )
        return create(
            native.skrull_comm_create,
            native.skrull_comm_destroy,
            executor.check,
            ctypes.byref(options),
        )

    try:
        if peers is not None:
            return peers.join(settings.rank, settings.world_size, make)
        return make(None)
    except Exception as error:
        if raised:
            raise raised[0] from error
        raise


def _as_callback(meet: Rendezvous, raised: list[BaseException]) -> object:
    """A rendezvous for C, which gets a code where ``meet`` raises."""

    def call(
        _context: int | None,
        offer: int | None,
        offer_bytes: int,
        answer: int,
        answer_bytes: ctypes._Pointer[ctypes.c_int64],
        message: int,
        message_bytes: int,
    ) -> int:
        try:
            given = meet(ctypes.string_at(offer, offer_bytes) if offer else b"")
            if len(given) > answer_bytes[0]:
                raise InvalidArgumentError(
                    f"rendezvous: an answer of {len(given)} bytes, where at most "
                    f"{answer_bytes[0]} are possible"
                )
            ctypes.memmove(answer, given, len(given))
            answer_bytes[0] = len(given)
            return 0
        except BaseException as error:  # none may pass through C
            raised.append(error)
            said = str(error).encode()[: message_bytes - 1] + b"\0"
            ctypes.memmove(message, said, len(said))
            return _COMM_FAILED

    return executor.RENDEZVOUS(call)
