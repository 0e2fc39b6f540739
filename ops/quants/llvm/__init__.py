"""LLVM decoders of block types: how a kernel computes sixteen elements from the bytes of a block.

A module defines ``ROWS``: by type name, a generator that takes a `Block` and yields its elements in order, in groups,
bit-identical to the type's codec. It runs while a kernel is emitted; GEMV and row-decoding kernels are made of it.
``CODES`` has, for some types, the integer codes for products with 8-bit activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import FILES, process_cache
from ....runtime.plugin import discovery
from ....runtime.simd.llvm_vector import I8, I16, I32, LANES, Bytes, Code, Vector, vector_type


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

    def packed(self, at: int, count: int = 64) -> Bytes:
        """Some bytes."""
        return Bytes(self.code, self.code.load(self.address, vector_type(I8, count), at))

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


def f16_at(blocks: list[Block], at: int = 0) -> Any:
    """The f16 at byte `at` of each block, as a vector of f32."""
    code = blocks[0].code
    patterns = ir.Constant(vector_type(I16, len(blocks)), ir.Undefined)
    for index, block in enumerate(blocks):
        patterns = code.builder.insert_element(patterns, code.load(block.address, I16, at), ir.Constant(I32, index))
    return code.from_half(patterns)


def first_of(vector: Vector, count: int, start: int = 0) -> Any:
    """A range of lanes of a vector."""
    return vector.code.builder.shuffle_vector(vector.value, vector.value, build_mask(list(range(start, start + count))))


def joined(*parts: Bytes) -> Bytes:
    """Concatenated byte vectors; their number is a power of two."""
    code, held = parts[0].code, [part.value for part in parts]
    while len(held) > 1:
        order = build_mask(list(range(2 * held[0].type.count)))
        held = [
            code.builder.shuffle_vector(one, other, order) for one, other in zip(held[::2], held[1::2], strict=True)
        ]
    return Bytes(code, held[0])


def build_mask(order: list[int]) -> Any:
    """The mask constant of a shuffle."""
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
        """The dequantized elements."""
        for number in self.numbers:
            scaled = number if self.scale is None else number * self.scale
            yield scaled if self.minimum is None else scaled - self.minimum


Rows = Callable[[Block], Iterator[Group]]


@dataclass
class Numbers:
    """The integers of some blocks, side by side.

    Attributes:
        codes: for each sum of `Codes.order`, its vectors of 64; the number is ``scale * (code - zero) - minimum``.
        scales: f32, one for each `Codes.group` neighbours, in their order.
    """

    codes: list[list[Bytes]]
    scales: Any


@dataclass(frozen=True)
class Codes:
    """A type's blocks as integers and scales, for integer products.

    Attributes:
        numbers: what some blocks are made of; of fewer than `blocks` there are fewer or shorter vectors.
        order: which numbers the vectors hold. For each sum of products the vectors that are added up; a vector is equal
            pieces of neighbours, named by their first ones. In a sum four lanes of bytes that meet have the same scale.
        top: the largest code.
        zero: what is subtracted from every code.
        minima: f32 that are subtracted, one for each `group` neighbours of some blocks.
        group: neighbours that share a scale.
        blocks: how many blocks are taken at a time.
    """

    numbers: Callable[[list[Block]], Numbers]
    order: tuple[tuple[tuple[int, ...], ...], ...]
    top: int
    zero: int = 0
    minima: Callable[[list[Block]], Any] | None = None
    group: int = 32
    blocks: int = 1


@dataclass
class Run:
    """Integer codes of 32 neighbours in a block.

    Attributes:
        codes: as `Numbers` has them.
        scales: of the block; the first 16 neighbours have the one of lane `first`, the others of `second`.
    """

    codes: Bytes
    scales: Any
    first: int
    second: int


def runs(kind: Codes, block: Block) -> Iterator[Run]:
    """The numbers of one block, 32 at a time in their order."""
    made = kind.numbers([block])
    pieces: dict[int, Bytes] = {}
    for codes, vectors in zip(made.codes, kind.order, strict=False):
        for held, vector in zip(codes, vectors, strict=True):
            each = 64 // len(vector)
            for index in range(held.count // each):
                order = build_mask(list(range(each * index, each * (index + 1))))
                pieces[vector[index]] = Bytes(
                    block.code, block.code.builder.shuffle_vector(held.value, held.value, order)
                )
    for start in range(0, sum(piece.count for piece in pieces.values()), 32):
        first = pieces[start]
        yield Run(
            first if first.count == 32 else joined(first, pieces[start + 16]),
            made.scales,
            start // kind.group,
            (start + 16) // kind.group,
        )


@process_cache(kept=FILES)
def rows() -> dict[str, Rows]:
    """The generator of every type that has one."""
    return {name: made for module in discovery.below(__name__, "ROWS").all() for name, made in module.items()}


@process_cache(kept=FILES)
def codes() -> dict[str, Codes]:
    """The integers of every type that has them."""
    return {name: made for module in discovery.below(__name__, "CODES").all() for name, made in module.items()}
