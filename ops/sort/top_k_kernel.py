"""Native TopK: a heap of k elements per row."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.process_cache import process_cache
from ...runtime.jit.address import i64, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.element import element
from ...runtime.simd.memory import load_f32
from ...runtime.simd.vector import LANES, lane_bits
from .top_k import top_k

WIDE = 4 * LANES
"""f32 that are compared at a time with the least of the heap."""


@inlined
def _larger(a: Any, b: Any) -> Any:
    return a > b or (a != a and b == b)


@inlined
def _smaller(a: Any, b: Any) -> Any:
    return a < b or (b != b and a == a)


@inlined
def none_above(address: Any, bound: Any) -> Any:
    """Whether none of `WIDE` f32 is larger than `bound`, which is no NaN, or NaN."""
    hidden = load_f32(address) <= bound
    for lane in range(LANES, WIDE, LANES):
        hidden = hidden & (load_f32(address + 4 * lane) <= bound)
    return lane_bits(hidden) == (1 << LANES) - 1


@process_cache
def _kernel(dtype: np.dtype[Any], largest: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    pointer, widen, narrow, compute_pointer = kind.pointer, kind.widen, kind.narrow, kind.compute_pointer
    beats = _larger if largest else _smaller
    skips = largest and dtype == np.float32

    @inlined
    def behind(values: Any, places: Any, one: Any, other: Any) -> Any:
        """Whether entry `one` comes after entry `other`."""
        if beats(values[other], values[one]):
            return True
        return not beats(values[one], values[other]) and places[one] > places[other]

    @inlined
    def sunk(values: Any, places: Any, count: Any, at: Any) -> None:
        """Move an entry down until none below it comes after it."""
        while True:
            last = at
            for child in range(2 * at + 1, min(2 * at + 3, count)):
                if behind(values, places, child, last):
                    last = child
            if last == at:
                return
            values[at], values[last] = values[last], values[at]
            places[at], places[last] = places[last], places[at]
            at = last

    @range_kernel
    def first_of_rows(
        x: Address,
        values_out: Address,
        places_out: Address,
        stacks: int,
        length: int,
        columns: int,
        k: int,
        scratch: Address,
        wants_values: int,
        wants_places: int,
        part: int,
        parts: int,
    ) -> None:
        """The first k of `length` elements of columns of stacks, by a heap in the scratch memory."""
        address = x
        x, y, where = pointer(x), pointer(values_out), i64(places_out)
        values, places = compute_pointer(scratch + part * 16 * k), i64(scratch + part * 16 * k + 8 * k)
        first, last = share(stacks * columns, part, parts)
        for row in range(first, last):
            base = row // columns * length * columns + row % columns
            for j in range(k):
                values[j], places[j] = widen(x[base + j * columns]), j
            for j in range(k // 2):
                sunk(values, places, k, k // 2 - 1 - j)
            j = k
            while j < length:
                if skips and columns == 1:
                    while j + WIDE <= length and none_above(address + 4 * (base + j), values[0]):
                        j += WIDE
                for place in range(j, min(j + WIDE, length)):
                    value = widen(x[base + place * columns])
                    if beats(value, values[0]):
                        values[0], places[0] = value, place
                        sunk(values, places, k, 0)
                j += WIDE
            target = row // columns * k * columns + row % columns
            for j in range(k):
                end = k - 1 - j
                if wants_values != 0:
                    y[target + end * columns] = narrow(values[0])
                if wants_places != 0:
                    where[target + end * columns] = places[0]
                values[0], places[0] = values[end], places[end]
                sunk(values, places, end, 0)

    return first_of_rows


@native(top_k)
def plan_top_k(step: Step) -> Planned:
    """Plan a k that the output shapes state."""
    x = step.inputs[0]
    outputs = [step.output(index) if step.is_used(index) else None for index in range(2)]
    given = [item for item in outputs if item is not None]
    if x is None or not given or element(x.dtype) is None or x.dtype == np.bool_ or not x.shape:
        return None
    axis = step.attributes["axis"] % len(x.shape)
    stacks, length, columns, k = (
        math.prod(x.shape[:axis]),
        x.shape[axis],
        math.prod(x.shape[axis + 1 :]),
        given[0].shape[axis],
    )
    parts = step.parts(stacks * columns, x.count * 2.0)
    return Launch(
        _kernel(x.dtype, bool(step.attributes["largest"])),
        parts,
        x=x,
        values_out=outputs[0] or 0,
        places_out=outputs[1] or 0,
        stacks=stacks,
        length=length,
        columns=columns,
        k=k,
        scratch=step.scratch(parts * 16 * k),
        wants_values=int(outputs[0] is not None),
        wants_places=int(outputs[1] is not None),
    )
