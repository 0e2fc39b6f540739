"""Groups of axes of a product: lengths, and the strides that each operand has along them, as text that finds elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..record import dataclass
from .operand import Writer, merged


@dataclass(frozen=True)
class Axes:
    """A group of axes: lengths, and strides of the operands that have it, None for the one that has not."""

    lengths: Sequence[int]
    a: Sequence[int] | None
    b: Sequence[int] | None
    c: Sequence[int] | None

    @property
    def count(self) -> int:
        """Places of the group."""
        return math.prod(self.lengths)


def offsets(writer: Writer, level: int, stem: str, index: str, group: Axes, wanted: dict[str, str]) -> None:
    """Write lines that turn a running index of a group into the offsets of operands."""
    columns = {name: strides for name, strides in (("a", group.a), ("b", group.b), ("c", group.c)) if strides is not None}
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
