"""Runs f32 kernels on f16 and bf16 tensors: inputs are widened before, results are rounded after.

Weights stay as narrow as they are, in the layout that the kernel of f32 takes, and are widened into memory of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import (
    Allocation,
    Apply,
    Buffer,
    Chain,
    Launch,
    Planned,
    Planner,
    Step,
    View,
    without_caching,
)
from ...runtime.simd.memory import DTYPE_CODES, widen

F32 = np.dtype(np.float32)
NARROW = ("float16", "bfloat16")
"""Names of the dtypes that are widened; `elementwise_fusion` has them too, which kernels' digests need not cover."""
LARGE = 1 << 16
"""Elements from which a constant is not kept in f32."""
PIECE = 4096


class Inexact(Exception):
    """A packed layout is not a rearrangement of the weight and cannot be stored in 16 bits."""


@range_kernel
def widened(source: Address, target: Address, count: int, kind: int, part: int, parts: int) -> None:
    """Narrow elements of a kind as f32."""
    first, last = share((count + PIECE - 1) // PIECE, part, parts)
    for piece in range(first, last):
        begin = piece * PIECE
        widen(kind, source + 2 * begin, target + 4 * begin, min(PIECE, count - begin), np.float32(1))


@dataclass(eq=False)
class Wide(Step):
    """A step whose narrow inputs are f32, made by launches before it."""

    before: list[Launch] = field(default_factory=list)
    stored: dict[int, Buffer] = field(default_factory=dict)
    narrow: dict[int, Buffer] = field(default_factory=dict)
    made: dict[int, np.ndarray] = field(default_factory=dict)
    rearranging: bool = True

    def constant(self, index: int) -> np.ndarray | None:
        """Large constants only where their layouts may be kept."""
        if index not in self.narrow:
            return Step.constant(self, index)
        if self.rearranging and index not in self.made:
            self.made[index] = without_caching(self.narrow[index]).astype(np.float32)
        return self.made.get(index)

    def is_constant(self, index: int) -> bool:
        """As `constant` gives them."""
        return self.rearranging if index in self.narrow else Step.is_constant(self, index)

    def stored_input(self, index: int) -> Buffer | None:
        """Narrow inputs as they are."""
        return self.stored.get(index) or Step.stored_input(self, index)

    def packed(self, index: int, layout: Any, pack: Any, further: Sequence[int] = ()) -> Buffer:
        """Another layout, kept narrow. Raises Inexact where it holds other numbers than the weight."""
        kept = self.packed_16bit(index, layout, pack)
        return Step.packed(self, index, layout, pack, further) if kept is None else self.wide(kept)

    def packed_16bit(self, index: int, layout: Any, pack: Any) -> Buffer | None:
        """As `packed`, not widened."""
        if index not in self.narrow:
            return None
        weight = self.narrow[index]
        key = (id(weight.allocation.constant), weight.offset, weight.shape, layout, "narrow")
        if key not in self.cache:
            made = pack(without_caching(weight).astype(np.float32))
            kept = made.astype(weight.dtype)
            if (kept.astype(np.float32) != made).any():
                raise Inexact
            self.cache[key] = (kept, weight.allocation.constant)
        return self.constant_buffer(self.cache[key][0])

    def wide(self, buffer: Buffer) -> Buffer:
        """The numbers of a narrow buffer as f32, in memory of the run."""
        target = self.scratch(4 * buffer.count).view(buffer.shape, dtype=F32)
        self.before.append(_widening(self, buffer, target))
        return target


def _widening(step: Step, source: Buffer, target: Buffer) -> Launch:
    parts = step.parts(-(-source.count // PIECE), source.count / 4)
    return Launch(widened, parts, source=source, target=target, count=source.count, kind=DTYPE_CODES[source.dtype.name])


def _planned(step: Step, planner: Planner, rearranging: bool) -> Planned:
    results = [None if item is None else (F32, item[1]) if item[0].name in NARROW else item for item in step.results]
    own = step.outputs if results == step.results else {}
    inner = Wide(
        step.node,
        list(step.inputs),
        step.attributes,
        results,
        step.cache,
        outputs=own,
        allocations=step.allocations,
        threads=step.threads,
        bailout=step.bailout,
        decodes=step.decodes,
    )
    inner.rearranging = rearranging
    for index, buffer in enumerate(step.inputs):
        if buffer is None or buffer.dtype.name not in NARROW:
            continue
        inner.stored[index] = buffer
        if not step.is_constant(index):
            inner.inputs[index] = inner.wide(buffer)
        elif buffer.count < LARGE:
            inner.inputs[index] = inner.constant_buffer(without_caching(buffer).astype(np.float32))
        else:
            inner.narrow[index] = buffer
            inner.inputs[index] = Buffer(F32, buffer.shape, Allocation(4 * buffer.count))
    found = planner(inner)
    if found is None or isinstance(found, View | Chain):
        return None
    launches: list[Any] = [found] if isinstance(found, Launch) else list(found)
    for index, buffer in inner.narrow.items():
        place = inner.inputs[index]
        used = any(
            isinstance(item, Buffer) and place is not None and item.allocation is place.allocation
            for each in launches
            for item in each.arguments
        )
        if used and place is not None:
            step.allocations.append(place.allocation)
            inner.before.append(_widening(step, buffer, place))
    pairs = [(wide, step.output(index)) for index, wide in inner.outputs.items()]
    after = [
        Chain((Apply("Cast", (wide,), (), F32, target.dtype),), target) for wide, target in pairs if wide is not target
    ]
    return [*inner.before, *launches, *after]


def via_f32(planner: Planner) -> Planner:
    """The planner of f32, for narrow inputs too."""

    def plan(step: Step) -> Planned:
        if not any(buffer is not None and buffer.dtype.name in NARROW for buffer in step.inputs):
            return planner(step)
        if any(item is not None and item[0].name not in (*NARROW, "float32") for item in step.results):
            return None
        before = len(step.allocations)
        try:
            return _planned(step, planner, True)
        except Inexact:
            del step.allocations[before:]
            return _planned(step, planner, False)

    return plan
