"""Plans of global batches, as they come from an engine."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from skrull import _html
from skrull._native import client
from skrull._native.handle import Owned
from skrull._native.structs import INT64, sized
from skrull.errors import InvalidArgumentError
from skrull.rank_plan import RankPlan, rank_plan_from_native


@dataclasses.dataclass(frozen=True)
class PlanFigures:
    """What a plan costs, by the objective every policy is judged by.

    Attributes:
        predicted_seconds: Predicted time of the step, seconds.
        lower_bound_seconds: No legal plan of this batch can be faster, seconds.
        roll_back_count: Roll-backs of the heuristic in the micro-batches it kept.
        sharded_sequence_count: Sequences on more than one rank.
        sharded_token_count: Tokens of those.
        micro_batch_count: Micro-batches; 0 in a plan of chunks.
        max_rank_tokens: Rows of the fullest rank of any micro-batch, tokens.
        dp_imbalance: Slowest DP rank's time over the mean, minus 1.
        rank_imbalance: Busiest rank's compute over the mean, minus 1.
        pipeline_seconds: Time through the pipeline's stages; 0 without a pipeline.
        pipeline_bubble: Share of that time the stages idle.
    """

    predicted_seconds: float
    lower_bound_seconds: float
    roll_back_count: int
    sharded_sequence_count: int
    sharded_token_count: int
    micro_batch_count: int
    max_rank_tokens: int
    dp_imbalance: float
    rank_imbalance: float
    pipeline_seconds: float
    pipeline_bubble: float


class Plan:
    """A plan of one global batch: which rank computes what, in which micro-batch.

    Made by an engine. Immutable; may be used by several threads, and pickled.
    Equal plans have equal bytes, whoever made them.

    Attributes:
        job: Name of the job; empty for a plan made for a spec alone.
        step: The training step.
        attempt: The attempt at that step, from 0.
        digest: SHA-256 of the plan, 64 hexadecimal digits. Ranks compare it before
            the first collective of the step.
        policy: Name of the policy that made it, never unspecified.
        calibration_epoch: Epoch of the job's cost model.
        world_size: Ranks of the pool.
        figures: What it costs.
        planning_seconds: Time it took to plan; None if it was planned earlier.
        committed: It stands committed at a daemon.
        fallback_reason: How the daemon failed, where the plan was made in this
            process instead; empty for every other plan.
    """

    def __init__(
        self,
        handle: Owned,
        world_size: int,
    ) -> None:
        info = sized(client.PlanInfo)
        client.check(
            client.library().skrull_client_plan_describe(
                handle.pointer, ctypes.byref(info)
            )
        )
        self._handle = handle
        self._info = info  # its pointers live as long as the handle
        self.job: str = info.job.decode()
        self.step: int = info.step
        self.attempt: int = info.attempt
        self.digest: str = info.digest.decode()
        self.policy: str = info.policy.decode()
        self.calibration_epoch: int = info.calibration_epoch
        self.world_size = world_size
        self.figures = PlanFigures(
            **{
                field.name: getattr(info, field.name)
                for field in dataclasses.fields(PlanFigures)
            }
        )
        self.planning_seconds: float | None = (
            info.planning_seconds if info.planning_seconds >= 0 else None
        )
        self.committed = bool(info.committed)
        self.fallback_reason: str = info.fallback_reason.decode(errors="replace")
        self._shares: weakref.WeakValueDictionary[int, RankPlan] = (
            weakref.WeakValueDictionary()
        )

    @classmethod
    def from_bytes(cls, data: bytes, world_size: int) -> Plan:
        """The plan whose :meth:`to_bytes` these are.

        Args:
            data: The bytes.
            world_size: Ranks of the pool that it was made for.

        Raises:
            InvalidArgumentError: They are no plan, or not the one whose digest
                they name.
        """
        native = client.library()
        handle = ctypes.c_void_p()
        client.check(
            native.skrull_client_plan_parse(data, len(data), ctypes.byref(handle))
        )
        return cls(Owned(handle, native.skrull_client_plan_destroy), world_size)

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches, the same number on every rank; 0 in a plan of chunks."""
        return self.figures.micro_batch_count

    @property
    def from_fallback(self) -> bool:
        """Whether it was made in this process because no daemon answered."""
        return self.fallback_reason != ""

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Lengths of the batch's sequences, tokens, in the batch's order."""
        lengths = np.empty(self._info.sequence_count, dtype=np.int64)
        client.check(
            client.library().skrull_client_plan_lengths(
                self._handle.pointer,
                lengths.ctypes.data_as(ctypes.POINTER(INT64)),
                lengths.size,
            )
        )
        lengths.setflags(write=False)
        return lengths

    def to_bytes(self) -> bytes:
        """The deterministic serialization of ``skrull.v1.Plan``."""
        return ctypes.string_at(self._info.bytes, self._info.byte_count)

    def to_json(self) -> str:
        """The plan as one JSON object with the names of ``skrull.v1.Plan``."""
        json = ctypes.c_void_p()
        client.check(
            client.library().skrull_client_plan_json(
                self._handle.pointer, ctypes.byref(json)
            )
        )
        return client.take_bytes(json).decode()

    def to_html(self, job: Any) -> str:
        """A self-contained page: timeline, loads, what is sharded and why.

        Args:
            job: The :class:`skrull.Job` that the plan was made for. The page
                compares policies, so the batch is planned anew by each.

        Raises:
            InvalidArgumentError: The plan is not one that the job allows.
            UnsupportedError: It is a plan of chunks.
        """
        html = ctypes.c_void_p()
        client.check(
            client.library().skrull_client_plan_report(
                self._handle.pointer, job.text.encode(), ctypes.byref(html)
            )
        )
        return client.take_bytes(html).decode()

    def rank_plan(self, rank: int) -> RankPlan:
        """One rank's share.

        Args:
            rank: 0 .. world_size - 1.

        Raises:
            InvalidArgumentError: There is no such rank.
            UnsupportedError: It is a plan of chunks, which Python does not run.
        """
        if not 0 <= rank < self.world_size:
            raise InvalidArgumentError(
                f"rank: must be in 0 .. {self.world_size - 1}, is {rank}", field="rank"
            )
        share = self._shares.get(rank)
        if share is None:
            native = client.library()
            handle = ctypes.c_void_p()
            client.check(
                native.skrull_client_plan_rank(
                    self._handle.pointer, rank, ctypes.byref(handle)
                )
            )
            share = rank_plan_from_native(handle, self.world_size)
            self._shares[rank] = share
        return share

    def __eq__(self, other: object) -> bool:
        """Equal digests are equal plans."""
        return isinstance(other, Plan) and other.digest == self.digest

    def __hash__(self) -> int:
        """Of the digest."""
        return hash(self.digest)

    def __repr__(self) -> str:
        """A summary."""
        figures = self.figures
        return (
            f"Plan(step={self.step}, attempt={self.attempt}, policy={self.policy}, "
            f"micro_batches={figures.micro_batch_count}, "
            f"predicted_seconds={figures.predicted_seconds:.6g}, "
            f"digest={self.digest[:12]})"
        )

    def _repr_html_(self) -> str:
        """What notebooks show: figures and the load of each rank."""
        return _html.plan_html(self)

    def __reduce__(self) -> tuple[Any, tuple[bytes, Mapping[str, Any]]]:
        """Pickles the bytes, and what is not part of them."""
        return _rebuild, (
            self.to_bytes(),
            {
                "world_size": self.world_size,
                "planning_seconds": self.planning_seconds,
                "committed": self.committed,
                "fallback_reason": self.fallback_reason,
            },
        )


def _rebuild(data: bytes, attributes: Mapping[str, Any]) -> Plan:
    plan = Plan.from_bytes(data, attributes["world_size"])
    for name, value in attributes.items():
        setattr(plan, name, value)
    return plan
