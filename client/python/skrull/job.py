"""Jobs: what the planner must know of a training run."""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from skrull import _job_text
from skrull._native import client
from skrull._native.structs import sized
from skrull.errors import InvalidArgumentError

# Names that ``policy`` takes, in the order of proto/skrull/v1/job.proto.
POLICIES = (
    "POLICY_SKRULL",
    "POLICY_STATIC_CP",
    "POLICY_PACKED_STATIC_CP",
    "POLICY_OPTIMIZED",
    "POLICY_DACP_ONLY",
    "POLICY_ROUND_ROBIN",
    "POLICY_SORTED",
    "POLICY_CHUNK_FLOW",
)


class Job:
    """A training job: model sizes, ranks, memory and costs. Immutable.

    It is the text form of ``skrull.v1.JobSpec``, checked: a ``Job`` that exists
    can be planned for. ``proto/skrull/v1/job.proto`` states every field with
    unit, range and default.

    Example:
        >>> job = Job.from_text(
        ...     "model { hidden_size: 64 layer_count: 2 attention_head_count: 4 }"
        ...     " parallelism { cp_size: 2 } memory { bucket_size_tokens: 512 }")
        >>> job.world_size
        2

    Args:
        text: The text form.

    Raises:
        InvalidArgumentError: The text does not parse (line and column), or a
            field is missing or out of range (``field`` names it).
    """

    __slots__ = ("_spec", "_text")

    def __init__(self, text: str) -> None:
        spec = sized(client.JobSpec)
        client.check(
            client.library().skrull_client_describe_job_spec(
                _encode(text), ctypes.byref(spec)
            )
        )
        self._text = text
        self._spec = spec

    @classmethod
    def from_text(cls, text: str) -> Job:
        """The job that a text form describes; see the class."""
        return cls(text)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Job:
        """The job that a ``*.textproto`` file describes.

        Raises:
            OSError: The file cannot be read.
            InvalidArgumentError: As for the class; the message begins with the
                path.
        """
        text = pathlib.Path(path).read_text(encoding="utf-8")
        try:
            return cls(text)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"{os.fspath(path)}: {error.message}",
                reason=error.reason,
                field=error.field,
            ) from None

    @classmethod
    def from_profile(
        cls,
        path: str | os.PathLike[str],
        *,
        dp_size: int,
        cp_size: int,
        **options: Any,
    ) -> Job:
        """The job of a machine that ``skrull-profile`` measured.

        Args:
            path: What ``skrull-profile`` wrote: the model, memory and cost parts.
            dp_size: Data-parallel size.
            cp_size: Context-parallel size.
            **options: ``tp_size``, ``pp_size``, ``ranks_per_node``,
                ``block_scope``, ``uniform_micro_batch_count``, ``policy`` and
                ``labels``, as of :meth:`from_pretrained_config`.

        Raises:
            OSError: The file cannot be read.
            InvalidArgumentError: As for the class; also for an unknown option.
        """
        profile = pathlib.Path(path).read_text(encoding="utf-8")
        return cls(
            profile
            + "\n"
            + _job_text.parallelism_text(dp_size=dp_size, cp_size=cp_size, **options)
        )

    @classmethod
    def from_pretrained_config(
        cls,
        config: Any,
        *,
        dp_size: int,
        cp_size: int,
        bucket_size_tokens: int | None = None,
        device_bytes: int | None = None,
        static_bytes: int | None = None,
        bytes_per_token: float | None = None,
        reserve_fraction: float | None = None,
        zero_stage: int = 0,
        block_scope: str = "group",
        tp_size: int = 1,
        pp_size: int = 1,
        ranks_per_node: int = 0,
        policy: str | None = None,
        labels: Mapping[str, str] | None = None,
        cost: Mapping[str, Any] | None = None,
    ) -> Job:
        """The job of a Hugging Face model.

        Args:
            config: A ``transformers`` configuration, its dictionary, or the path
                of a ``config.json`` or of the folder that holds one. Composite
                models (vision and text) are read by their ``text_config``.
            dp_size: Data-parallel size, >= 1.
            cp_size: Context-parallel size, >= 1: ranks that can share a sequence.
            bucket_size_tokens: Tokens that one rank holds in a micro-batch. Give
                this, or the memory below from which it follows.
            device_bytes: Memory of one device, bytes.
            static_bytes: Bytes taken whatever the batch: weights, gradients and
                optimizer state, as sharded by ZeRO.
            bytes_per_token: Activation bytes of one token.
            reserve_fraction: Share of ``device_bytes`` kept free, in [0, 1).
            zero_stage: 3 (or FSDP's full sharding): every rank runs every
                micro-batch, also empty ones. 0 to 2 make no difference here.
            block_scope: Over which ranks a sequence may be sharded: ``"group"``
                (its CP group), ``"subgroup"`` (also parts of it) or ``"pool"``
                (also several groups).
            tp_size: Tensor-parallel size, for information.
            pp_size: Pipeline stages.
            ranks_per_node: Consecutive ranks on one node; 0: one node holds all.
            policy: Of batches that name none, e.g. ``"POLICY_SKRULL"``; None: the
                planner's own default.
            labels: Notes that the daemon echoes.
            cost: Fields of ``CostSpec`` that replace what is chosen here, which is
                the exact count of FLOPs.

        Raises:
            InvalidArgumentError: Names the key that the configuration lacks, or
                the argument out of range.
            OSError: The file cannot be read.
        """
        memory = {
            "bucket_size_tokens": bucket_size_tokens,
            "device_bytes": device_bytes,
            "static_bytes": static_bytes,
            "bytes_per_token": bytes_per_token,
            "reserve_fraction": reserve_fraction,
        }
        if zero_stage not in (0, 1, 2, 3):
            raise InvalidArgumentError(
                f"zero_stage: must be 0, 1, 2 or 3, is {zero_stage!r}",
                field="zero_stage",
            )
        return cls(
            _job_text.model_text(config)
            + _job_text.parallelism_text(
                dp_size=dp_size,
                cp_size=cp_size,
                tp_size=tp_size,
                pp_size=pp_size,
                ranks_per_node=ranks_per_node,
                block_scope=block_scope,
                uniform_micro_batch_count=zero_stage == 3,
                policy=policy,
                labels=labels,
            )
            + _job_text.message_text("memory", memory)
            + _job_text.message_text(
                "cost", {"flops_formula": "FLOPS_FORMULA_EXACT", **(cost or {})}
            )
        )

    @property
    def text(self) -> str:
        """The text form it was made of."""
        return self._text

    @property
    def dp_size(self) -> int:
        """Data-parallel size."""
        return int(self._spec.dp_size)

    @property
    def cp_size(self) -> int:
        """Context-parallel size: ranks of one CP group."""
        return int(self._spec.cp_size)

    @property
    def world_size(self) -> int:
        """Ranks of the pool: dp_size * cp_size."""
        return self.dp_size * self.cp_size

    @property
    def bucket_size_tokens(self) -> int:
        """Tokens that one rank holds in a micro-batch, given or derived."""
        return int(self._spec.bucket_size_tokens)

    @property
    def longest_sequence(self) -> int:
        """Longest sequence that the job can place, tokens."""
        return int(self._spec.longest_sequence)

    @property
    def layer_count(self) -> int:
        """Transformer layers."""
        return int(self._spec.layer_count)

    @property
    def q_heads(self) -> int:
        """Query heads; 0 if the spec does not say."""
        return int(self._spec.q_heads)

    @property
    def kv_heads(self) -> int:
        """Key/value heads; 0 if the spec does not say."""
        return int(self._spec.kv_heads)

    @property
    def head_dim(self) -> int:
        """Width of a head; 0 if the spec does not say."""
        return int(self._spec.head_dim)

    @property
    def policy(self) -> str:
        """Name of the policy of batches that name none."""
        return str(self._spec.policy.decode())

    def __eq__(self, other: object) -> bool:
        """Equal texts are equal jobs."""
        return isinstance(other, Job) and other._text == self._text

    def __hash__(self) -> int:
        """Of the text."""
        return hash(self._text)

    def __repr__(self) -> str:
        """A summary."""
        return (
            f"Job(dp_size={self.dp_size}, cp_size={self.cp_size}, "
            f"bucket_size_tokens={self.bucket_size_tokens}, policy={self.policy})"
        )

    def __reduce__(self) -> tuple[type[Job], tuple[str]]:
        """Pickles the text."""
        return type(self), (self._text,)


def _encode(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a job's text is a str, not {type(text).__name__}")
    if "\0" in text:
        raise InvalidArgumentError("the job's text holds a NUL character")
    return text.encode()
