"""What ranks tell of a step, and what they are told back."""

from __future__ import annotations

import dataclasses
import math

from skrull.errors import InvalidArgumentError

OUTCOMES = ("ok", "oom", "failed")


@dataclasses.dataclass(frozen=True)
class StepReport:
    """How a step went on one rank.

    Attributes:
        step: The training step, >= 0.
        attempt: The attempt that ran.
        rank: The rank that reports.
        outcome: ``"ok"``, ``"oom"`` (out of device memory) or ``"failed"``.
        step_seconds: Wall time of the step; None: not measured.
        attention_seconds: Of it in attention.
        exchange_seconds: Of it in exchange of keys and values that nothing hid.
        peak_bytes: Highest device memory in use; 0: not measured.

    Raises:
        InvalidArgumentError: A value out of range; ``field`` names it.
    """

    step: int
    attempt: int
    rank: int
    outcome: str = "ok"
    step_seconds: float | None = None
    attention_seconds: float | None = None
    exchange_seconds: float | None = None
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if self.outcome not in OUTCOMES:
            raise InvalidArgumentError(
                f"outcome: must be one of {', '.join(OUTCOMES)}, is {self.outcome!r}",
                field="outcome",
            )
        for name in ("step_seconds", "attention_seconds", "exchange_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < math.inf:
                raise InvalidArgumentError(
                    f"{name}: must be a number of seconds >= 0, is {seconds!r}",
                    field=name,
                )
        for name in ("step", "attempt", "rank", "peak_bytes"):
            if getattr(self, name) < 0:
                raise InvalidArgumentError(
                    f"{name}: must be at least 0, is {getattr(self, name)}", field=name
                )


@dataclasses.dataclass(frozen=True)
class ReportAnswer:
    """What a rank must do after its report.

    Attributes:
        attempt: The latest committed attempt of the step. Above the report's own:
            a rank ran out of memory, and every rank runs this attempt instead.
        calibration_epoch: Of the job's cost model, now.
    """

    attempt: int
    calibration_epoch: int
