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
def along(widen: Any, compute_type: Any, sum_type: Any, start: Any, prepared: Any, combine: Any) -> Any:
    """Makes a reduction of `count` consecutive elements: ``(x, base, count, shift, lanes)``, `lanes` being an array of
    `LANES` elements.

    Args:
        widen, compute_type, sum_type: of an `Element`.
        start: the neutral element of `combine`.
        prepared: applied to an element and the shift, before elements are combined.
    """

    @inlined
    def reduced(x: Any, base: Any, count: Any, shift: Any, lanes: Any) -> Any:
        found = sum_type(start)
        at = base
        end = base + count
        while at < end:
            stop = min(end, at + BLOCK)
            for k in range(16):
                lanes[k] = compute_type(start)
            if stop - at >= LANES:
                for k in range(16, LANES):
                    lanes[k] = compute_type(start)
                whole = at + (stop - at) // LANES * LANES
                for j in range(at, whole, LANES):
                    for k in range(LANES):
                        lanes[k] = compute_type(combine(lanes[k], prepared(widen(x[j + k]), shift)))
                at = whole
                for k in range(32):
                    lanes[k] = compute_type(combine(lanes[k], lanes[k + 32]))
                for k in range(16):
                    lanes[k] = compute_type(combine(lanes[k], lanes[k + 16]))
            whole = at + (stop - at) // 16 * 16
            for j in range(at, whole, 16):
                for k in range(16):
                    lanes[k] = compute_type(combine(lanes[k], prepared(widen(x[j + k]), shift)))
            for k in range(stop - whole):
                lanes[k] = compute_type(combine(lanes[k], prepared(widen(x[whole + k]), shift)))
            for k in range(8):
                lanes[k] = compute_type(combine(lanes[k], lanes[k + 8]))
            for k in range(4):
                lanes[k] = compute_type(combine(lanes[k], lanes[k + 4]))
            folded = combine(combine(lanes[0], lanes[1]), combine(lanes[2], lanes[3]))
            found = sum_type(combine(found, sum_type(folded)))
            at = stop
        return found

    return reduced


def along_element(kind: Element, start: Any, prepared: Any, combine: Any) -> Any:
    """`along` for the element access `kind` of a dtype."""
    return along(kind.widen, kind.compute_type, kind.sum_type, start, prepared, combine)


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
