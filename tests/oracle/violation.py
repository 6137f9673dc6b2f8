"""How rules are stated, and fields of a plan in JSON form read."""

import math


class Violation(Exception):
    """A rule of the contract that a plan or a refusal breaks."""


def require(condition, message):
    if not condition:
        raise Violation(message)


def close(a, b, offset=0.0):
    a, b = a + offset, b + offset
    return (math.isfinite(a) and math.isfinite(b) and
            abs(a - b) <= 1e-9 * max(abs(a), abs(b)))


def integer(message, name):
    """An integer field; absent means 0, as in proto3. Strings are accepted."""
    value = message.get(name, 0)
    if isinstance(value, float):
        require(value == int(value), f"{name} is {value}, not an integer")
    return int(value)


def real(message, name):
    return float(message.get(name, 0.0))
