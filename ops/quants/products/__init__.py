"""Products with quantized rows: for each type, how the sixteen numbers of a vector are made of the bytes of a block.

A module defines ``ROWS``: by the name of a type, a generator that gets a `Block` and gives its numbers in order, sixteen at a time, bit for
bit those of the type's codec. It runs while a kernel is made; kernels that multiply, decode or gather rows are all made of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from ....runtime import registry
from ....runtime.vector import I8, I16, I32, LANES, Code, Vector, vector_type


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
    from llvmlite import ir

    return ir.Constant(vector_type(I32), order)


Rows = Callable[[Block], Iterator[Vector]]


@functools.cache
def rows() -> dict[str, Rows]:
    """The generator of every type that has one."""
    return {name: made for module in registry.all_of("ops.quants.products", "ROWS") for name, made in module.items()}
