"""What goes wrong, as exceptions.

Every failure of the package that is not a plain ``TypeError`` is a
:class:`SkrullError`. Its subclasses follow the canonical codes of
``docs/errors.md``, and where Python has a word for it they are that too: an
:class:`InvalidArgumentError` is a ``ValueError``, an :class:`UnavailableError` a
``ConnectionError``. All of them survive pickling, so they cross the border of a
``DataLoader`` worker whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class SkrullError(Exception):
    """A call that failed.

    Attributes:
        code: Canonical code, e.g. ``"FAILED_PRECONDITION"``.
        message: For people.
        reason: For programs, e.g. ``"SEQUENCE_TOO_LONG"``; empty if there is none.
        field: Path of the field at fault, e.g. ``"lengths"``; empty if none is.
        indices: Entries of that field at fault; at most 32 are listed.
        limit: The limit that was broken, or None.
        retry_after: Seconds after which a repeat may work, or None for not
            before something changes.
        request_id: What the daemon's log calls the request; empty if there was
            none.
    """

    code: str = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reason: str = "",
        field: str = "",
        indices: Sequence[int] = (),
        limit: int | None = None,
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.reason = reason
        self.field = field
        self.indices = tuple(indices)
        self.limit = limit
        self.retry_after = retry_after
        self.request_id = request_id

    def __str__(self) -> str:
        """The message and, where there is one, the request's id."""
        if self.request_id:
            return f"{self.message} (request {self.request_id})"
        return self.message

    def __reduce__(self) -> tuple[Callable[..., SkrullError], tuple[Any, ...]]:
        """Pickles everything, not only the message."""
        return _rebuild, (type(self), self.message, self._details())

    def _details(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "reason": self.reason,
            "field": self.field,
            "indices": self.indices,
            "limit": self.limit,
            "retry_after": self.retry_after,
            "request_id": self.request_id,
        }


def _rebuild(
    kind: type[SkrullError], message: str, details: dict[str, Any]
) -> SkrullError:
    return kind(message, **details)


class InvalidArgumentError(SkrullError, ValueError):
    """The request is malformed; names the field or the indices."""

    code = "INVALID_ARGUMENT"


class FailedPreconditionError(SkrullError):
    """The batch can never fit the job, or a state forbids the call."""

    code = "FAILED_PRECONDITION"


class ForkError(FailedPreconditionError):
    """A connection was used in a child of the process that made it."""


class DigestMismatchError(FailedPreconditionError):
    """Ranks hold different plans of one step; raised on every rank."""


class NotFoundError(SkrullError, LookupError):
    """There is no such job, device, backend or communicator."""

    code = "NOT_FOUND"


class AlreadyExistsError(SkrullError):
    """The job's name is taken by a job with another spec."""

    code = "ALREADY_EXISTS"


class UnavailableError(SkrullError, ConnectionError):
    """The daemon cannot be reached, or drains."""

    code = "UNAVAILABLE"


class DeadlineExceededError(SkrullError, TimeoutError):
    """The call's time ran out."""

    code = "DEADLINE_EXCEEDED"


class ResourceExhaustedError(SkrullError):
    """A limit of the daemon or of the planner was reached."""

    code = "RESOURCE_EXHAUSTED"


class PermissionDeniedError(SkrullError, PermissionError):
    """The caller is known, and may not do this."""

    code = "PERMISSION_DENIED"


class UnauthenticatedError(SkrullError, PermissionError):
    """The daemon knows neither token nor certificate of the caller."""

    code = "UNAUTHENTICATED"


class UnsupportedError(SkrullError, NotImplementedError):
    """This version, or the chosen backend, cannot do that."""

    code = "UNIMPLEMENTED"


class AbortedError(SkrullError):
    """Another rank failed; the message says which."""

    code = "ABORTED"


class OutOfMemoryError(SkrullError, MemoryError):
    """The executor got no memory of its device."""

    code = "OUT_OF_MEMORY"


_BY_CODE: dict[str, type[SkrullError]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        FailedPreconditionError,
        NotFoundError,
        AlreadyExistsError,
        UnavailableError,
        DeadlineExceededError,
        ResourceExhaustedError,
        PermissionDeniedError,
        UnauthenticatedError,
        UnsupportedError,
        AbortedError,
        OutOfMemoryError,
    )
}
_BY_CODE["UNSUPPORTED"] = UnsupportedError
_BY_REASON: dict[str, type[SkrullError]] = {
    "FORKED": ForkError,
    "DIGEST_MISMATCH": DigestMismatchError,
}


def make_error(code: str, message: str, **details: Any) -> SkrullError:
    """The exception of a canonical code.

    Args:
        code: e.g. ``"INVALID_ARGUMENT"``; one without a class of its own gives a
            plain :class:`SkrullError` that carries it.
        message: For people.
        **details: The other attributes of :class:`SkrullError`.
    """
    kind = _BY_REASON.get(details.get("reason", ""), _BY_CODE.get(code, SkrullError))
    return kind(message, code=code, **details)
