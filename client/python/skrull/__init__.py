"""Plans which rank trains which tokens of a batch of unequal sequences.

Example:
    >>> import skrull
    >>> job = skrull.Job.from_pretrained_config(
    ...     "config.json", dp_size=1, cp_size=8, bucket_size_tokens=16384)
    >>> engine = skrull.local(job)               # or skrull.connect("host:7419", ...)
    >>> plan = engine.plan(0, [512, 70000, 33])
    >>> for micro_batch in plan.rank_plan(rank=3).micro_batches:
    ...     input_ids = micro_batch.gather(token_ids_by_sequence)

Importing this package imports neither torch nor grpc; ``skrull.torch`` does the
former.
"""

from skrull._connect import connect
from skrull._version import __version__
from skrull.engine import Engine
from skrull.errors import (
    AbortedError,
    AlreadyExistsError,
    DeadlineExceededError,
    DigestMismatchError,
    FailedPreconditionError,
    ForkError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
    PermissionDeniedError,
    ResourceExhaustedError,
    SkrullError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
)
from skrull.fallback_engine import FallbackEngine
from skrull.job import POLICIES, Job
from skrull.local_engine import LocalEngine, local
from skrull.plan import Plan, PlanFigures
from skrull.rank_plan import MicroBatch, RankPlan, Segment
from skrull.remote_engine import RemoteEngine
from skrull.report import ReportAnswer, StepReport

__all__ = [
    "POLICIES",
    "AbortedError",
    "AlreadyExistsError",
    "DeadlineExceededError",
    "DigestMismatchError",
    "Engine",
    "FailedPreconditionError",
    "FallbackEngine",
    "ForkError",
    "InvalidArgumentError",
    "Job",
    "LocalEngine",
    "MicroBatch",
    "NotFoundError",
    "OutOfMemoryError",
    "PermissionDeniedError",
    "Plan",
    "PlanFigures",
    "RankPlan",
    "RemoteEngine",
    "ReportAnswer",
    "ResourceExhaustedError",
    "Segment",
    "SkrullError",
    "StepReport",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "connect",
    "local",
]
