"""TQ1_0 and TQ2_0: -1, 0 and 1 times a scale. Layouts: ops/quants/ternary.py."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.vector import Vector
from . import Block, Codes, Group

POWERS = (1, 3, 9, 27, 81)


def tq1_0(block: Block) -> Iterator[Group]:
    """``(digit - 1) * d``, digits of fractions in base 3."""
    def digits(packed: Vector, powers: Vector | int) -> Vector:
        return ((((packed * powers) & 255) * 3 >> 8) - 1).as_float()

    numbers = [digits(block.bytes(at), power) for power in POWERS for at in (0, 16)]
    numbers += [digits(block.bytes(32), power) for power in POWERS]
    numbers.append(digits(block.some_bytes(48, 4), block.code.ints_of([POWERS[lane // 4] for lane in range(16)])))
    yield Group(numbers, block.half(52))


def tq2_0(block: Block) -> Iterator[Group]:
    """``(q - 1) * d``."""
    packed = [[block.bytes(32 * half + 16 * side) for side in range(2)] for half in range(2)]
    numbers = [block.code.table(codes >> 2 * plane, [-1, 0, 1, 2] * 4) for half in packed for plane in range(4) for codes in half]
    yield Group(numbers, block.half(64))


ROWS = {"tq1_0": tq1_0, "tq2_0": tq2_0}
CODES: dict[str, Codes] = {}
