"""Plain numbers: f32, f16 and bf16, sixteen to a block."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.simd.llvm_vector import I16, Vector, vector_type
from . import Block, Group


def f32(block: Block) -> Iterator[Group]:
    """As they are."""
    yield Group([block.code.floats(block.address)])


def f16(block: Block) -> Iterator[Group]:
    """Widened."""
    yield Group([Vector(block.code, block.code.from_half(block.code.load(block.address, vector_type(I16))))])


def bf16(block: Block) -> Iterator[Group]:
    """The upper halves of f32."""
    yield Group([(block.code.widened(block.code.load(block.address, vector_type(I16))) << 16).bits_as_float()])


ROWS = {"f32": f32, "f16": f16, "bf16": bf16}
