"""Products with quantized rows: for each type, how the sixteen numbers of a vector are made of the bytes of a block.

A module defines ``ROWS``: by the name of a type, a generator that gets a `Block` and gives its numbers in order, in groups, bit for bit those of
the type's codec. It runs while a kernel is made; kernels that multiply and decode rows are made of it. ``CODES`` has, for types
that have them, the whole numbers that the values are multiples of, which are multiplied with activations of 8 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ....runtime import registry
from ....runtime.vector import I8, I16, I32, LANES, Bytes, Code, Vector, vector_type


class Block:
    """The bytes of one block, at an address that a kernel computes."""

    def __init__(self, code: Code, address: Any) -> None:
        self.code = code
        self.address = address

    def bytes(self, at: int, signed: bool = False) -> Vector:
        """Sixteen bytes as i32."""
        return self.code.widened(self.code.load(self.address, vector_type(I8), at), signed)

    def some_bytes(self, at: int, count: int) -> Vector:
        """Fewer than sixteen bytes as i32, again and again."""
        build = self.code.builder
        held = self.code.load(self.address, vector_type(I8, count), at)
        order = [lane % count for lane in range(LANES)]
        return self.code.widened(build.shuffle_vector(held, held, build_mask(order)))

    def packed(self, at: int) -> Bytes:
        """32 bytes."""
        return Bytes(self.code, self.code.load(self.address, vector_type(I8, 32), at))

    def nibbles(self, at: int) -> Bytes:
        """The low halves of sixteen bytes, then their high halves."""
        build = self.code.builder
        held = self.code.load(self.address, vector_type(I8), at)
        high = build.lshr(held, ir.Constant(held.type, [4] * LANES))
        low = build.and_(held, ir.Constant(held.type, [15] * LANES))
        return Bytes(self.code, build.shuffle_vector(low, high, build_mask(list(range(32)))))

    def half(self, at: int) -> Vector:
        """A half-precision number in all lanes."""
        return self.code.splat(self.code.from_half(self.code.load(self.address, I16, at)))

    def integer(self, at: int, bits: int) -> Any:
        """An unsigned integer of 8, 16 or 32 bits as i32."""
        kind = {8: I8, 16: I16, 32: I32}[bits]
        value = self.code.load(self.address, kind, at)
        return value if bits == 32 else self.code.builder.zext(value, I32)

    def bits(self, at: int) -> Vector:
        """Sixteen bits as a mask, lowest first."""
        return self.code.mask(self.code.load(self.address, I16, at))


def build_mask(order: list[int]) -> Any:
    """The constant of a shuffle."""
    return ir.Constant(vector_type(I32, len(order)), order)


@dataclass
class Group:
    """Neighbours that share a scale: ``number * scale - minimum``.

    Attributes:
        numbers: sixteen at a time.
        scale, minimum: the same number in all lanes, None for 1 and 0.
    """

    numbers: list[Vector]
    scale: Vector | None = None
    minimum: Vector | None = None

    def values(self) -> Iterator[Vector]:
        """The numbers that are meant."""
        for number in self.numbers:
            scaled = number if self.scale is None else number * self.scale
            yield scaled if self.minimum is None else scaled - self.minimum


Rows = Callable[[Block], Iterator[Group]]


@dataclass
class Run:
    """Whole numbers of 32 neighbours in a block.

    Attributes:
        codes: what is multiplied, unsigned; the number is ``scale * (code - zero) - minimum``.
        scales: f32 lanes; the first 16 neighbours have the scale of lane `first`, the others of `second`. Runs of a block share them.
    """

    codes: Bytes
    scales: Vector
    first: int = 0
    second: int = 0


@dataclass
class Codes:
    """How a type's blocks are products of whole numbers.

    Attributes:
        runs: a block's numbers, 32 at a time.
        zero: what is subtracted from every code.
        minima: f32 that are subtracted, sixteen lanes, one for each of `group` neighbours, and so many of the lanes as there are such groups.
        scaled: neighbours that share a scale, 16 or 32.
    """

    runs: Callable[[Block], Iterator[Run]]
    zero: int = 0
    minima: Callable[[Block], Vector] | None = None
    group: int = 32
    scaled: int = 32


@functools.cache
def rows() -> dict[str, Rows]:
    """The generator of every type that has one."""
    return {name: made for module in registry.all_of("ops.quants.products", "ROWS") for name, made in module.items()}


@functools.cache
def codes() -> dict[str, Codes]:
    """The whole numbers of every type that has them."""
    return {name: made for module in registry.all_of("ops.quants.products", "CODES") for name, made in module.items()}
