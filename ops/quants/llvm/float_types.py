"""Plain float types as blocks of sixteen: f32, f16 and bf16."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.simd.llvm_vector import I16, Vector, vector_type
from . import Block, Group


def f32(block: Block) -> Iterator[Group]:
    """f32, unchanged."""
    yield Group([block.code.floats(block.address)])


def f16(block: Block) -> Iterator[Group]:
    """f16, widened."""
    yield Group([Vector(block.code, block.code.from_half(block.code.load(block.address, vector_type(I16))))])


def bf16(block: Block) -> Iterator[Group]:
    """bf16: the upper 16 bits of f32."""
    yield Group([(block.code.widened(block.code.load(block.address, vector_type(I16))) << 16).bits_as_float()])


ROWS = {"f32": f32, "f16": f16, "bf16": bf16}
