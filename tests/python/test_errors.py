"""Errors keep what they tell, whatever they are made of."""

from __future__ import annotations

import pickle

import pytest
import skrull
from skrull.errors import make_error


@pytest.mark.parametrize(
    ("code", "kind", "builtin"),
    [
        ("INVALID_ARGUMENT", skrull.InvalidArgumentError, ValueError),
        ("DEADLINE_EXCEEDED", skrull.DeadlineExceededError, TimeoutError),
        ("UNAVAILABLE", skrull.UnavailableError, ConnectionError),
        ("PERMISSION_DENIED", skrull.PermissionDeniedError, PermissionError),
        ("UNAUTHENTICATED", skrull.UnauthenticatedError, PermissionError),
        ("NOT_FOUND", skrull.NotFoundError, LookupError),
        ("OUT_OF_MEMORY", skrull.OutOfMemoryError, MemoryError),
        ("UNSUPPORTED", skrull.UnsupportedError, NotImplementedError),
        ("UNIMPLEMENTED", skrull.UnsupportedError, NotImplementedError),
        ("FAILED_PRECONDITION", skrull.FailedPreconditionError, Exception),
        ("ABORTED", skrull.AbortedError, Exception),
        ("DEVICE_ERROR", skrull.SkrullError, Exception),
    ],
)
def test_a_code_has_its_class(
    code: str, kind: type[skrull.SkrullError], builtin: type[Exception]
) -> None:
    error = make_error(
        code,
        "what",
        reason="WHY",
        field="lengths",
        indices=[3, 4],
        limit=7,
        retry_after=0.5,
        request_id="abc",
    )
    assert type(error) is kind
    assert isinstance(error, builtin)
    again = pickle.loads(pickle.dumps(error))
    for told in (error, again):
        assert (told.code, told.message, told.reason) == (code, "what", "WHY")
        assert (told.field, told.indices, told.limit) == ("lengths", (3, 4), 7)
        assert (told.retry_after, told.request_id) == (0.5, "abc")
        assert str(told) == "what (request abc)"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("FORKED", skrull.ForkError), ("DIGEST_MISMATCH", skrull.DigestMismatchError)],
)
def test_a_reason_may_have_its_class(
    reason: str, kind: type[skrull.SkrullError]
) -> None:
    error = make_error("FAILED_PRECONDITION", "what", reason=reason)
    assert type(error) is kind
    assert isinstance(error, skrull.FailedPreconditionError)
