"""LLVM decoder of TQ1_0: base-3 digits -1, 0, 1 times a scale. Layout: ops/quants/ternary.py."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.simd.llvm_vector import Vector
from . import Block, Group

POWERS = (1, 3, 9, 27, 81)


def tq1_0(block: Block) -> Iterator[Group]:
    """``(digit - 1) * d``, digits of fractions in base 3."""

    def digits(packed: Vector, powers: Vector | int) -> Vector:
        return ((((packed * powers) & 255) * 3 >> 8) - 1).as_float()

    numbers = [digits(block.bytes(at), power) for power in POWERS for at in (0, 16)]
    numbers += [digits(block.bytes(32), power) for power in POWERS]
    numbers.append(digits(block.some_bytes(48, 4), block.code.ints_of([POWERS[lane // 4] for lane in range(16)])))
    yield Group(numbers, block.half(52))


ROWS = {"tq1_0": tq1_0}
