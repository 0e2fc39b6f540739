"""LLVM decoders of block layouts: codes as bytes, 64 at a time, for products with activations of 8 bits."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ....runtime.base.process_cache import process_cache
from ....runtime.simd.llvm_vector import F32, I16, I32, LANES, Bytes, vector_type
from ....runtime.tensor.block_codec import codecs
from ..layout.block_layout import Layout, Scale
from . import Block, Codes, Numbers, build_mask, f16_at, first_of, joined
from .layout_vectors import Reader, first_minimum, half_power

VECTOR = 64
RUN = 32
"""Neighbours of an activation that share a scale where they are rounded."""
BLOCKS = 4
"""Blocks of types with fewer than 64 bytes of codes that are multiplied together."""
Element = tuple[int, int]
"""A block, by its number, and an element of it."""
Piece = tuple[int, int, int]
"""A block, a bit of it where a piece of neighbouring bytes begins, and how many bytes."""


@process_cache
def vectors(layout: Layout) -> list[list[list[Element]]]:
    """For each sum of products its vectors of 64 codes: those that lie in 64 neighbouring bytes at the same bits.

    Vectors are summed together where their lanes have the same scales.
    """
    parts, length = layout.codes.parts, layout.length
    spans = [len({part.position(index) // 8 for index in range(length)}) for part in parts]
    lead = next((part for part, span in [*zip(parts, spans, strict=True)][::-1] if span >= VECTOR), parts[0])
    span = min(VECTOR, spans[parts.index(lead)])
    places: dict[tuple[int, int], list[int]] = {}
    for index in range(length):
        byte, shift = divmod(lead.position(index), 8)
        places.setdefault(((byte - lead.at // 8) // span, shift), []).append(index)
    lanes = [sorted(indices, key=lead.position) for indices in places.values()]
    each, count = VECTOR // span, BLOCKS if span < VECTOR else 1
    made = [
        [(block, index) for block in range(first, first + each) for index in indices]
        for first in range(0, count, each)
        for indices in lanes
    ]
    sums: dict[tuple[Element, ...], list[list[Element]]] = {}
    for vector in made:
        sums.setdefault(tuple((block, index // _group(layout)) for block, index in vector), []).append(vector)
    return sorted(sums.values())


def _group(layout: Layout) -> int:
    """Neighbours whose products are added up as integers."""
    return min(RUN, layout.group)


def order(layout: Layout) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The vectors as `Codes.order` has them: by the first elements of equal pieces of neighbours."""

    def starts(vector: list[Element]) -> tuple[int, ...]:
        firsts = [
            lane
            for lane, (block, index) in enumerate(vector)
            if not lane % RUN or vector[lane - 1] != (block, index - 1)
        ]
        return tuple(vector[lane][0] * layout.length + vector[lane][1] for lane in _equal(firsts, VECTOR))

    return tuple(tuple(starts(vector) for vector in vectors) for vectors in vectors(layout))


class Reader64:
    """Codes of some blocks; what is loaded once is not loaded again."""

    def __init__(self, blocks: list[Block], layout: Layout) -> None:
        self.blocks, self.layout = blocks, layout
        self._loaded: dict[tuple[Piece, ...], Bytes] = {}

    def codes(self, vector: list[Element]) -> Bytes:
        """The codes of a vector, or values that are not negative; fewer where there are fewer blocks."""
        codes, present = self.layout.codes, [element for element in vector if element[0] < len(self.blocks)]
        made, offset = None, 0
        for part in codes.parts:
            positions = [(block, part.position(index)) for block, index in present]
            if part.width == 8:
                held = self._bytes(positions)[0]
            elif part.width == 1 and positions[1][1] == positions[0][1] + 1:
                held = self._single_bits(positions, made, 1 << offset)
            else:
                held = self._bits(positions, part.width, offset)
            made, offset = held if made is None else made | held, offset + part.width
        assert made is not None
        if codes.signed:
            return made ^ 128
        return made.table([value + zero(self.layout) for value in codes.table]) if codes.table else made

    def _bytes(self, positions: list[Element]) -> tuple[Bytes, list[int]]:
        """The bytes of bits, and the shifts of equal pieces of them."""
        firsts = [
            lane
            for lane, (block, position) in enumerate(positions)
            if not lane or positions[lane - 1] != (block, position - 8)
        ]
        lanes = _equal(firsts, len(positions))
        pieces = tuple((positions[lane][0], positions[lane][1] // 8, lanes.step) for lane in lanes)
        if pieces not in self._loaded:
            self._loaded[pieces] = joined(*(self.blocks[block].packed(at, count) for block, at, count in pieces))
        return self._loaded[pieces], [positions[lane][1] % 8 for lane in lanes]

    def _bits(self, positions: list[Element], width: int, offset: int) -> Bytes:
        held, shifts = self._bytes(positions)
        mask = (1 << width) - 1 << offset
        if len({*shifts}) > 1:
            return held.moved([shift - offset for shift in shifts]) & mask
        (shift,) = {*shifts}
        if shift == offset:
            return held & mask
        return held >> shift if not offset and shift + width == 8 else held.moved([shift - offset]) & mask

    def _single_bits(self, positions: list[Element], like: Bytes | None, value: int) -> Bytes:
        """`value` where a bit is set, whose sixteens are neighbours."""
        assert like is not None
        code = self.blocks[0].code
        build, starts = code.builder, positions[::LANES]
        kind = ir.IntType(len(positions))
        mask = ir.Constant(kind, 0)
        for index, (block, position) in enumerate(starts):
            word = build.zext(code.load(self.blocks[block].address, I16, position // 8), kind)
            mask = build.or_(mask, build.shl(word, ir.Constant(kind, LANES * index)))
        return ((like ^ like) | value).where(mask)


def _equal(firsts: list[int], count: int) -> range:
    """The first lanes of pieces of equal length, of which pieces that begin at `firsts` are made."""
    return range(0, count, min(after - before for before, after in zip(firsts, [*firsts[1:], count], strict=True)))


def zero(layout: Layout) -> int:
    """The offset that is subtracted from unsigned codes."""
    if layout.codes.signed:
        return 128
    return -min(layout.codes.table) if layout.codes.table else layout.codes.zero


def codes_of(layout: Layout, size: int) -> Codes:
    """Blocks of `size` bytes as integers and scales, for integer products."""
    sums, minimum = vectors(layout), layout.minimum
    single = layout.scale.codes is not None

    def numbers(blocks: list[Block]) -> Numbers:
        reader = Reader64(blocks, layout)
        present = [[vector for vector in vectors if vector[0][0] < len(blocks)] for vectors in sums]
        scales = lanes(blocks)[0] if single else _numbers(blocks, layout.scale, layout.length // _group(layout))
        return Numbers([[reader.codes(vector) for vector in vectors] for vectors in present if vectors], scales)

    def lanes(blocks: list[Block]) -> list[Any]:
        """Scales of the groups of a block, and minima."""
        reader, groups = Reader(blocks[0], size), layout.scale.groups
        if minimum is None:
            held = [(reader.lanes(layout.scale), 0)]
        else:
            held = [*zip(reader.both(layout.scale, minimum), (0, first_minimum(layout.scale)), strict=True)]
        return [vector.value if groups == LANES else first_of(vector, groups, first) for vector, first in held]

    def minima(blocks: list[Block]) -> Any:
        if single:
            return lanes(blocks)[1]
        assert minimum is not None
        found = _numbers(blocks, minimum, layout.length // _group(layout))
        return blocks[0].code.builder.fneg(found) if minimum.sign < 0 else found

    return Codes(
        numbers,
        order(layout),
        max(layout.codes.values()) + zero(layout),
        zero(layout),
        None if minimum is None else minima,
        _group(layout),
        1 + max(block for vectors in sums for vector in vectors for block, _ in vector),
    )


def _numbers(blocks: list[Block], scale: Scale, groups: int) -> Any:
    """The number of each block, or of each of the groups of a single one, as a vector of f32."""
    if scale.form == "f16":
        return f16_at(blocks, scale.at)
    code = blocks[0].code
    if scale.form == "f32":
        (block,) = blocks
        held = code.load(block.address, vector_type(F32, scale.count), scale.at)
        lanes = [group * scale.count // groups for group in range(groups)]
        return code.builder.shuffle_vector(held, held, build_mask(lanes))
    found = ir.Constant(vector_type(F32, len(blocks)), ir.Undefined)
    for index, block in enumerate(blocks):
        found = code.builder.insert_element(found, half_power(block, scale.at), ir.Constant(I32, index))
    return found


CODES = {
    dtype.name: codes_of(codec.layout, dtype.size)
    for dtype, codec in codecs().items()
    if codec.layout is not None and codec.layout.products and codec.layout.scale.form != "ue4m3"
}
