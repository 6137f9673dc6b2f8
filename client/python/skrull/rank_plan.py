"""One rank's share of a plan: what a trainer runs."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from skrull._native import client, executor
from skrull._native.handle import Owned
from skrull._native.structs import DOUBLE, INT32, INT64, RankPlanView, sized
from skrull._native.structs import Segment as NativeSegment
from skrull.errors import InvalidArgumentError

_SEGMENT = np.dtype(NativeSegment)


@dataclasses.dataclass(frozen=True)
class Segment:
    """The rank's part of one sequence.

    Attributes:
        sequence: Index of the sequence in the global batch.
        token_count: Length of the whole sequence, tokens.
        first_rank: First rank of the block that the sequence is on.
        degree: Ranks of the block; 1: this rank holds all of it.
        low: Half-open range of positions; the whole sequence when degree is 1.
        high: The second range that the rank holds; empty when degree is 1.
    """

    sequence: int
    token_count: int
    first_rank: int
    degree: int
    low: tuple[int, int]
    high: tuple[int, int]

    @property
    def rows(self) -> int:
        """Tokens that the rank holds."""
        return self.low[1] - self.low[0] + self.high[1] - self.high[0]


class MicroBatch:
    """A rank's share of one micro-batch; may hold no row at all.

    Rows are in the order of ``segments``, of each its low range, then its high
    one. Arrays are made at their first use, and read-only.

    Attributes:
        rank_plan: The share of the whole step that it is part of.
        index: Its place there, from 0.
        segments: Of which sequences the rank holds what, in row order.
        rows: Tokens on this rank.
        local_rows: The first of them, of sequences that no other rank holds.
        token_count: Tokens of the micro-batch over all ranks.
        token_weight: ``rows`` over the tokens of the whole batch: the rank's share
            of the loss where every token counts.
        part: Set by ``skrull.torch`` when a session prepares the rank plan: names
            the micro-batch there. 0: none has.
    """

    part: int = 0

    def __init__(self, rank_plan: RankPlan, index: int) -> None:
        self.rank_plan = rank_plan
        self.index = index
        begin, end = rank_plan._segment_offsets[index : index + 2]
        self.segments: tuple[Segment, ...] = tuple(
            Segment(sequence, token_count, first_rank, degree, (a, b), (c, d))
            for sequence, token_count, first_rank, degree, a, b, c, d in (
                rank_plan._segments[begin:end].tolist()
            )
        )
        self.rows = sum(segment.rows for segment in self.segments)
        self.local_rows = sum(s.rows for s in self.segments if s.degree == 1)
        self.token_count = int(rank_plan._token_counts[index])
        self.token_weight = float(rank_plan._token_weights[index])

    @functools.cached_property
    def positions(self) -> npt.NDArray[np.int32]:
        """Position of each row in its sequence, int32 [rows]: position ids."""
        return self._query("skrull_plan_positions", self.rows)

    @functools.cached_property
    def sequences(self) -> npt.NDArray[np.int32]:
        """Index of each row's sequence in the global batch, int32 [rows]."""
        return self._query("skrull_plan_sequences", self.rows)

    def to_cu_seqlens(self) -> tuple[npt.NDArray[np.int32], int]:
        """Row offsets of the attention segments, as varlen kernels take them.

        A local sequence is one segment; a sharded one is two (low and high range,
        empty ones left out), whose keys come from the whole block.

        Returns:
            Offsets, int32 [segments + 1] from 0 to ``rows``, and the rows of the
            longest segment.
        """
        info = sized(executor.MicroBatchInfo)
        executor.check(
            executor.library().skrull_plan_micro_batch(
                self.rank_plan.native, self.index, ctypes.byref(info)
            )
        )
        offsets = self._query("skrull_plan_cu_seqlens", info.cu_seqlens_count)
        return offsets, int(info.max_seqlen)

    def gather(
        self,
        tokens_by_sequence: Sequence[npt.ArrayLike] | Mapping[int, npt.ArrayLike],
        *,
        dtype: npt.DTypeLike = np.int64,
    ) -> npt.NDArray[Any]:
        """Packs this rank's rows out of whole sequences.

        Args:
            tokens_by_sequence: By a sequence's index in the global batch, an array
                [token_count, ...]. Only the sequences of ``segments`` are read, so
                a mapping may hold those alone.
            dtype: Of the result.

        Returns:
            [rows, ...] in row order; [0] if there is no row.

        Raises:
            InvalidArgumentError: A sequence is missing, or has another length than
                the plan was made for.
        """
        parts: list[npt.NDArray[Any]] = []
        for segment in self.segments:
            if segment.rows == 0:
                continue
            tokens = np.asarray(_whole(tokens_by_sequence, segment), dtype=dtype)
            parts += [tokens[slice(*segment.low)], tokens[slice(*segment.high)]]
        return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)

    def _query(self, function: str, count: int) -> npt.NDArray[np.int32]:
        values = np.empty(count, dtype=np.int32)
        executor.check(
            getattr(executor.library(), function)(
                self.rank_plan.native,
                self.index,
                values.ctypes.data_as(ctypes.POINTER(INT32)),
                count,
            )
        )
        values.setflags(write=False)
        return values

    def __repr__(self) -> str:
        """A summary."""
        return (
            f"MicroBatch(index={self.index}, rows={self.rows}, "
            f"local_rows={self.local_rows}, segments={len(self.segments)})"
        )


def _whole(
    tokens_by_sequence: Sequence[npt.ArrayLike] | Mapping[int, npt.ArrayLike],
    segment: Segment,
) -> npt.ArrayLike:
    try:
        tokens = tokens_by_sequence[segment.sequence]
    except LookupError:
        raise InvalidArgumentError(
            f"sequence {segment.sequence} is missing, of which this rank holds "
            f"{segment.rows} tokens",
            field="tokens_by_sequence",
            indices=[segment.sequence],
        ) from None
    length = len(tokens)  # type: ignore[arg-type]
    if length != segment.token_count:
        raise InvalidArgumentError(
            f"sequence {segment.sequence} has {length} tokens, where the plan was "
            f"made for {segment.token_count}",
            field="tokens_by_sequence",
            indices=[segment.sequence],
        )
    return tokens


class RankPlan:
    """One rank's share of a plan. Immutable, thread-safe, and can be pickled.

    Every rank has as many micro-batches, in the same order; a rank without rows in
    one takes part in its collectives with weight 0.

    Attributes:
        job: Name of the job; empty for a plan made for a spec alone.
        step: The training step.
        attempt: The attempt at that step, from 0.
        digest: SHA-256 of the whole plan.
        rank: Whose share it is.
        world_size: Ranks of the pool.
        blocks: (first_rank, degree) of every communicator of the whole plan.
        batch_token_count: Tokens of the batch over all ranks.
        predicted_seconds: Predicted time of the step, seconds.
        micro_batches: The rank's share of each.
    """

    def __init__(
        self,
        info: client.RankPlanInfo,
        view: RankPlanView,
    ) -> None:
        count = view.micro_batch_count
        self.job: str = info.job.decode()
        self.step: int = info.step
        self.attempt: int = info.attempt
        self.digest: str = view.digest.decode()
        self.rank: int = view.rank
        self.world_size: int = view.ranks
        self.batch_token_count: int = info.batch_token_count
        self.predicted_seconds: float = info.predicted_seconds
        self._segment_offsets = _copy(view.segment_offsets, count + 1, np.int64)
        self._segments = _copy(view.segments, int(self._segment_offsets[-1]), _SEGMENT)
        self._token_counts = _copy(view.token_counts, count, np.int64)
        self._token_weights = _copy(view.token_weights, count, np.float64)
        self._blocks = _copy(view.blocks, 2 * view.block_count, np.int32)
        self.blocks: tuple[tuple[int, int], ...] = tuple(
            (first, degree) for first, degree in self._blocks.reshape(-1, 2).tolist()
        )

    @functools.cached_property
    def micro_batches(self) -> tuple[MicroBatch, ...]:
        """The rank's share of each micro-batch."""
        return tuple(MicroBatch(self, i) for i in range(self._token_counts.size))

    @property
    def native(self) -> ctypes.c_void_p:
        """The executor's handle, ``skrull_plan*``; lives as long as this object."""
        owned: Owned | None = self.__dict__.get("_native")
        if owned is None:
            # One that a second thread made meanwhile stays.
            owned = self.__dict__.setdefault("_native", self._make_native())
        return owned.pointer

    def _make_native(self) -> Owned:
        native = executor.library()
        handle = ctypes.c_void_p()
        view = sized(
            RankPlanView,
            digest=self.digest.encode(),
            rank=self.rank,
            ranks=self.world_size,
            micro_batch_count=self._token_counts.size,
            block_count=len(self.blocks),
            segment_offsets=_pointer(self._segment_offsets, INT64),
            segments=_pointer(self._segments, NativeSegment),
            token_counts=_pointer(self._token_counts, INT64),
            token_weights=_pointer(self._token_weights, DOUBLE),
            blocks=_pointer(self._blocks, INT32),
        )
        executor.check(
            native.skrull_plan_create(ctypes.byref(view), ctypes.byref(handle))
        )
        return Owned(handle, native.skrull_plan_destroy)

    def __getstate__(self) -> dict[str, Any]:
        """All but the handle and what follows from the rest."""
        state = self.__dict__.copy()
        state.pop("_native", None)
        state.pop("micro_batches", None)
        return state

    def __repr__(self) -> str:
        """A summary."""
        return (
            f"RankPlan(step={self.step}, attempt={self.attempt}, rank={self.rank} of "
            f"{self.world_size}, micro_batches={self._token_counts.size}, "
            f"digest={self.digest[:12]})"
        )


def rank_plan_from_native(handle: ctypes.c_void_p, world_size: int) -> RankPlan:
    """Copies a ``skrull_client_rank_plan``, and releases it.

    Raises:
        UnsupportedError: It is a share of a plan of chunks.
    """
    native = client.library()
    try:
        info, view = sized(client.RankPlanInfo), sized(RankPlanView)
        client.check(
            native.skrull_client_rank_plan_describe(handle, ctypes.byref(info))
        )
        client.check(
            native.skrull_client_rank_plan_view(handle, world_size, ctypes.byref(view))
        )
        return RankPlan(info, view)
    finally:
        native.skrull_client_rank_plan_destroy(handle)


def _copy(pointer: Any, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    if count == 0:
        return np.empty(0, dtype=kind)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    data = ctypes.string_at(address, count * kind.itemsize)  # type: ignore[arg-type]
    return np.frombuffer(data, dtype=kind)  # read-only


def _pointer(array: npt.NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(ctypes.c_void_p(array.ctypes.data), ctypes.POINTER(kind))
