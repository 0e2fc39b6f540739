"""Deterministic reductions: 64 partial results combined pairwise, equal on every CPU and thread count."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
from typing import Any

from ..jit.range_kernel import inlined
from .element import Element

LANES = 64
BLOCK = 4096
"""Elements after which partial results are added in the wider type."""


@functools.cache
def along(read: Any, number: Any, total: Any, start: Any, prepared: Any, combine: Any) -> Any:
    """Makes a reduction of `count` consecutive elements: ``(x, base, count, shift, lanes)``, `lanes` being an array of
    `LANES` numbers.

    Args:
        read, number, total: of an `Element`.
        start: what `combine` leaves as it is.
        prepared: of a number and the shift, before numbers are combined.
    """

    @inlined
    def reduced(x: Any, base: Any, count: Any, shift: Any, lanes: Any) -> Any:
        found = total(start)
        at = base
        end = base + count
        while at < end:
            stop = min(end, at + BLOCK)
            for k in range(16):
                lanes[k] = number(start)
            if stop - at >= LANES:
                for k in range(16, LANES):
                    lanes[k] = number(start)
                whole = at + (stop - at) // LANES * LANES
                for j in range(at, whole, LANES):
                    for k in range(LANES):
                        lanes[k] = number(combine(lanes[k], prepared(read(x[j + k]), shift)))
                at = whole
                for k in range(32):
                    lanes[k] = number(combine(lanes[k], lanes[k + 32]))
                for k in range(16):
                    lanes[k] = number(combine(lanes[k], lanes[k + 16]))
            whole = at + (stop - at) // 16 * 16
            for j in range(at, whole, 16):
                for k in range(16):
                    lanes[k] = number(combine(lanes[k], prepared(read(x[j + k]), shift)))
            for k in range(stop - whole):
                lanes[k] = number(combine(lanes[k], prepared(read(x[whole + k]), shift)))
            for k in range(8):
                lanes[k] = number(combine(lanes[k], lanes[k + 8]))
            for k in range(4):
                lanes[k] = number(combine(lanes[k], lanes[k + 4]))
            folded = combine(combine(lanes[0], lanes[1]), combine(lanes[2], lanes[3]))
            found = total(combine(found, total(folded)))
            at = stop
        return found

    return reduced


def along_element(kind: Element, start: Any, prepared: Any, combine: Any) -> Any:
    """`along` for a dtype."""
    return along(kind.read, kind.number, kind.total, start, prepared, combine)


@inlined
def add(a: Any, b: Any) -> Any:
    """Sum."""
    return a + b


@inlined
def multiply(a: Any, b: Any) -> Any:
    """Product."""
    return a * b


@inlined
def maximum(a: Any, b: Any) -> Any:
    """The maximum; NaN if either is NaN."""
    return b if b > a or b != b else a


@inlined
def minimum(a: Any, b: Any) -> Any:
    """The minimum; NaN if either is NaN."""
    return b if b < a or b != b else a


@inlined
def identity(value: Any, shift: Any) -> Any:
    """The element unchanged."""
    return value


@inlined
def square(value: Any, shift: Any) -> Any:
    """The square of the distance from `shift`."""
    return (value - shift) * (value - shift)


__all__ = ["BLOCK", "LANES", "along", "along_element", "maximum", "identity", "add", "minimum", "square", "multiply"]
