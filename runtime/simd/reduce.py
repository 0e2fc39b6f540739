"""Deterministic reductions: 64 partial results combined pairwise, equal on every CPU and thread count."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

from ..base.process_cache import process_cache
from ..jit.range_kernel import inlined

LANES = 64
BLOCK = 4096
"""Elements after which partial results are added in the wider type."""


@process_cache
def _folds(compute_type: Any, combine: Any) -> tuple[Any, Any]:
    """Functions that reduce 64 partial results to 16, and 16 to one, typed once for all reductions of a kernel."""

    @inlined
    def to_sixteen(lanes: Any) -> None:
        for k in range(32):
            lanes[k] = compute_type(combine(lanes[k], lanes[k + 32]))
        for k in range(16):
            lanes[k] = compute_type(combine(lanes[k], lanes[k + 16]))

    @inlined
    def to_one(lanes: Any) -> Any:
        for k in range(8):
            lanes[k] = compute_type(combine(lanes[k], lanes[k + 8]))
        for k in range(4):
            lanes[k] = compute_type(combine(lanes[k], lanes[k + 4]))
        return combine(combine(lanes[0], lanes[1]), combine(lanes[2], lanes[3]))

    return to_sixteen, to_one


def along(load: Any, compute_type: Any, sum_type: Any, start: Any, combine: Any) -> Any:
    """Makes a reduction of `count` consecutive elements: ``(x, given, count, lanes)``, `lanes` being an array of
    `LANES` elements.

    Args:
        load: ``(x, given, j)``, what is combined of element j; `x` and `given` are passed through.
        compute_type, sum_type: of an `Element`.
        start: the neutral element of `combine`.
    """

    to_sixteen, to_one = _folds(compute_type, combine)

    @inlined
    def reduced(x: Any, given: Any, count: Any, lanes: Any) -> Any:
        found = sum_type(start)
        at = 0
        while at < count:
            stop = min(count, at + BLOCK)
            for k in range(16):
                lanes[k] = compute_type(start)
            if stop - at >= LANES:
                for k in range(16, LANES):
                    lanes[k] = compute_type(start)
                whole = at + (stop - at) // LANES * LANES
                for j in range(at, whole, LANES):
                    for k in range(LANES):
                        lanes[k] = compute_type(combine(lanes[k], load(x, given, j + k)))
                at = whole
                to_sixteen(lanes)
            whole = at + (stop - at) // 16 * 16
            for j in range(at, whole, 16):
                for k in range(16):
                    lanes[k] = compute_type(combine(lanes[k], load(x, given, j + k)))
            for k in range(stop - whole):
                lanes[k] = compute_type(combine(lanes[k], load(x, given, whole + k)))
            found = sum_type(combine(found, sum_type(to_one(lanes))))
            at = stop
        return found

    return reduced


@inlined
def add(a: Any, b: Any) -> Any:
    """Sum."""
    return a + b
