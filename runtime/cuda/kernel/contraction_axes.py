"""Axis groups of a contraction (batch, rows, columns, depth), with strides per operand, and code for their offsets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...base.dataclass import dataclass
from ...plan.elementwise_fusion import merged
from .operand import Writer


@dataclass(frozen=True)
class Axes:
    """A group of axes: lengths, and the strides of each operand, None for an operand without these axes."""

    lengths: Sequence[int]
    a: Sequence[int] | None
    b: Sequence[int] | None
    c: Sequence[int] | None

    @property
    def count(self) -> int:
        """Number of indices of the group."""
        return math.prod(self.lengths)


@dataclass(frozen=True)
class Contraction:
    """The axes of c = sum over `depth` of a * b: `stack` is the batch, `rows` are in a and c, `columns` in b and c.

    Attributes:
        starts: elements of a, b and c before their first ones.
    """

    stack: Axes
    rows: Axes
    columns: Axes
    depth: Axes
    starts: tuple[int, int, int] = (0, 0, 0)


def offsets(writer: Writer, level: int, stem: str, index: str, group: Axes, wanted: dict[str, str]) -> None:
    """Write code that converts a flat index of a group to offsets of operands."""
    columns = {
        name: strides for name, strides in (("a", group.a), ("b", group.b), ("c", group.c)) if strides is not None
    }
    lengths, found = merged(group.lengths, list(columns.values()))
    strides = dict(zip(columns, found, strict=True))
    rest = index
    for axis in range(len(lengths) - 1, 0, -1):
        length = _once(writer, f"{stem}{axis}_length", lengths[axis])
        writer.add(level, f"{stem}{axis} = {rest} % {length}", f"{stem}_rest = {rest} // {length}")
        rest = f"{stem}_rest"
    if lengths:
        writer.add(level, f"{stem}0 = {rest}")
    for name, target in wanted.items():
        terms = []
        for axis, stride in enumerate(strides[name]):
            if stride == 1:
                terms.append(f"{stem}{axis}")
            elif stride:
                terms.append(f"{stem}{axis} * {_once(writer, f'{name}_{stem}{axis}', stride)}")
        writer.add(level, f"{target} = {' + '.join(terms) or '0'}")


def _once(writer: Writer, name: str, value: int) -> str:
    return name if name in writer.names else writer.parameter(name, value)
