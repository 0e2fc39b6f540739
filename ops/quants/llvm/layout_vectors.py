"""LLVM decoders of block layouts: sixteen elements at a time as f32, for every block type that has a layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir

from ....runtime.simd.llvm_vector import F32, I8, I16, I32, I64, LANES, Vector, vector_type
from ....runtime.tensor.block_codec import codecs
from ..layout.block_layout import SIX_BIT_MINIMA, SIX_BIT_SCALES, Codes, Layout, Scale
from ..layout.value_tables import ue4m3_half
from . import Block, Group, Rows, build_mask


class Reader:
    """The fields of one block; what is loaded once is not loaded again.

    Args:
        size: bytes of a block.
    """

    def __init__(self, block: Block, size: int) -> None:
        self.block, self.code, self.size = block, block.code, size
        self._loaded: dict[tuple[int, int], Vector] = {}

    def bytes(self, at: int, signed: bool = False) -> Vector:
        """Sixteen bytes as i32."""
        key = at, signed
        if key not in self._loaded:
            self._loaded[key] = self.block.bytes(at, signed)
        return self._loaded[key]

    def word(self, at: int, bits: int) -> Vector:
        """An integer in all lanes."""
        key = at, bits
        if key not in self._loaded:
            self._loaded[key] = self.code.splat(self.block.integer(at, bits))
        return self._loaded[key]

    def fields(self, positions: Sequence[int]) -> tuple[Vector, int]:
        """For each lane an i32 that holds a bit of the block, and by how much all lanes must be shifted right so that
        it comes to be the lowest; what is above it is arbitrary."""
        if positions == [positions[0] + 8 * lane for lane in range(LANES)]:
            return self.bytes(positions[0] // 8), positions[0] % 8
        first, last = min(positions) // 8, max(positions) // 8
        count = 1 << (last - first).bit_length()
        first = min(first, self.size - count)
        if count <= 4:
            vector, shifts = self.word(first, 8 * count), [position - 8 * first for position in positions]
        else:
            held = self.code.load(self.block.address, vector_type(I8, count), first)
            order = build_mask([position // 8 - first for position in positions])
            vector = self.code.widened(self.code.builder.shuffle_vector(held, held, order))
            shifts = [position % 8 for position in positions]
        return (vector, shifts[0]) if len({*shifts}) == 1 else (vector >> self.code.ints_of(shifts), 0)

    def mask(self, positions: Sequence[int]) -> Vector:
        """Mask of sixteen lanes, set at `positions`."""
        if positions[0] % 8 == 0 and positions == [*range(positions[0], positions[0] + LANES)]:
            return self.block.bits(positions[0] // 8)
        vector, shift = self.fields(positions)
        zero = ir.Constant(vector_type(I32), [0] * LANES)
        return Vector(self.code, self.code.builder.icmp_unsigned("!=", (vector & (1 << shift)).value, zero))

    def integers(self, widths: Sequence[int], parts: Sequence[Sequence[int]]) -> Vector:
        """Sixteen integers, given by the positions of each of their parts, lowest bits first."""
        made, offset = None, 0
        for width, positions in zip(widths, parts, strict=True):
            vector, shift = self.fields(positions)
            if shift != offset:
                vector = vector >> shift - offset if shift > offset else vector << offset - shift
            vector = vector & ((1 << width) - 1) << offset
            made, offset = vector if made is None else made | vector, offset + width
        assert made is not None
        return made

    def values(self, codes: Codes, start: int) -> Vector:
        """The values of sixteen codes from `start` on, as f32."""
        parts = [[part.position(start + lane) for lane in range(LANES)] for part in codes.parts]
        if codes.signed:
            return self.bytes(parts[0][0] // 8, signed=True).as_float()
        low, table = codes.parts[0], codes.values()
        if low.width == 1:
            no, yes = (self.code.floats_of([value] * LANES) for value in table)
            return self.code.select(self.mask(parts[0]), yes, no)
        if low.width > 4 or any(part.width > 1 for part in codes.parts[1:]) or len(parts) > 2:
            assert not codes.table, "tables are for codes of four bits"
            return self.integers([part.width for part in codes.parts], parts).as_float() - codes.zero
        vector, shift = self.fields(parts[0])
        indices, size = vector >> shift if shift else vector, 1 << low.width
        low_values, high_values = (
            [table[(first + index % size) % len(table)] for index in range(LANES)] for first in (0, size)
        )
        if len(parts) == 1:
            return self.code.table(indices, low_values)
        mask = self.mask(parts[1])
        return self.code.select(mask, self.code.table(indices, high_values), self.code.table(indices, low_values))

    def number(self, scale: Scale, group: int = 0) -> Vector:
        """The number that all factors of a block, or of a group, are multiples of, in all lanes."""
        if scale.form == "e8m0":
            return self.code.splat(half_power(self.block, scale.at))
        if scale.form == "f32":
            return self.code.splat(self.code.load(self.block.address, F32, scale.at + 4 * group))
        return self.block.half(scale.at)

    def lanes(self, *scales: Scale) -> Vector:
        """The factors of the groups of one scale or of two, one after the other, repeated."""
        groups = [(scale, group) for scale in scales for group in range(scale.groups)]
        groups = [groups[lane % len(groups)] for lane in range(LANES)]
        factor = self.number(scales[0])
        if len(scales) > 1:
            mask = ir.Constant(
                vector_type(I32), [LANES * (scale is not scales[0]) + lane for lane, (scale, _) in enumerate(groups)]
            )
            factor = Vector(
                self.code, self.code.builder.shuffle_vector(factor.value, self.number(scales[1]).value, mask)
            )
        found = [scale.codes for scale, _ in groups if scale.codes is not None]
        if found[0].signed:
            return factor * self.bytes(found[0].parts[0].at // 8, signed=True).as_float()
        parts = [
            [codes.parts[index].position(group) for codes, (_, group) in zip(found, groups, strict=True)]
            for index in range(len(found[0].parts))
        ]
        integers = self.integers([part.width for part in found[0].parts], parts).as_float()
        return factor * (integers - found[0].zero if found[0].zero else integers)

    def factors(self, layout: Layout) -> Iterator[tuple[Vector, Vector | None]]:
        """Scale and minimum of each group, in all lanes."""
        scale, minimum = layout.scale, layout.minimum
        if scale.form == "ue4m3":
            yield from ((self._byte_float(scale.at + group), None) for group in range(scale.groups))
        elif scale.codes is None:
            for group in range(scale.groups):
                yield self.number(scale, group), None if minimum is None else self.number(minimum, group) * minimum.sign
        elif minimum is None:
            lanes = self.lanes(scale)
            yield from ((lanes.lane(group), None) for group in range(scale.groups))
        else:
            (scales, minima), first = self.both(scale, minimum), first_minimum(scale)
            yield from ((scales.lane(group), minima.lane(first + group)) for group in range(scale.groups))

    def both(self, scale: Scale, minimum: Scale) -> tuple[Vector, Vector]:
        """Vectors of scales and of minima, the same one where it has lanes for both."""
        if first_minimum(scale):
            six_bits = (scale.codes, minimum.codes) == (SIX_BIT_SCALES, SIX_BIT_MINIMA)
            lanes = self._six_bits() if six_bits else self.lanes(scale, minimum)
            return lanes, lanes
        return self.lanes(scale), self.lanes(minimum)

    def _six_bits(self) -> Vector:
        """Scales and minima of Q4_K and Q5_K, four bytes at a time: as `lanes` has them, in fewer instructions."""
        code, build = self.code, self.code.builder
        words = vector_type(I32, 4)

        def chosen(order: list[int], shifts: list[int], kept: list[int]) -> Any:
            moved = build.lshr(build.shuffle_vector(held, held, build_mask(order)), ir.Constant(words, shifts))
            return build.and_(moved, ir.Constant(words, [0x01010101 * bits for bits in kept]))

        # d and dmin; scales' low bits, minima's low bits, then four bits of each of the last four
        held = code.load(self.block.address, words)
        packed = build.or_(
            chosen([1, 3, 2, 3], [0, 0, 0, 4], [63, 15, 63, 15]), chosen([1, 1, 2, 2], [2] * 4, [0, 48, 0, 48])
        )
        codes = code.widened(build.bitcast(packed, vector_type(I8)))
        both = code.from_half(build.bitcast(build.shuffle_vector(held, held, build_mask([0, 0])), vector_type(I16, 4)))
        factors = Vector(code, build.shuffle_vector(both, both, build_mask([0] * 8 + [1] * 8)))
        return codes.as_float() * factors

    def _byte_float(self, at: int) -> Vector:
        code = self.code
        table = code.constant([float(value) for value in ue4m3_half()], F32)
        entry = code.builder.shl(code.builder.zext(self.block.integer(at, 8), I64), code.word(2))
        return code.splat(code.load(code.builder.add(table, entry), F32))


def first_minimum(scale: Scale) -> int:
    """The lane of the first minimum in a vector of scales and minima, 0 where they have a vector each."""
    return scale.groups if 2 * scale.groups <= LANES else 0


def half_power(block: Block, at: int) -> Any:
    """``2 ** (e - 128)`` of a byte e, as f32; the two lowest results are subnormal."""
    build = block.code.builder
    exponent = block.integer(at, 8)
    tiny = build.icmp_unsigned("<", exponent, ir.Constant(I32, 2))
    normal = build.shl(build.sub(exponent, ir.Constant(I32, 1)), ir.Constant(I32, 23))
    bits = build.select(tiny, build.shl(ir.Constant(I32, 0x200000), build.and_(exponent, ir.Constant(I32, 1))), normal)
    return build.bitcast(bits, F32)


def rows_of(layout: Layout, size: int) -> Rows:
    """The generator of the elements of blocks of `size` bytes."""

    def rows(block: Block) -> Iterator[Group]:
        reader = Reader(block, size)
        for index, (scale, minimum) in enumerate(reader.factors(layout)):
            starts = range(index * layout.group, (index + 1) * layout.group, LANES)
            yield Group([reader.values(layout.codes, start) for start in starts], scale, minimum)

    return rows


ROWS = {dtype.name: rows_of(codec.layout, dtype.size) for dtype, codec in codecs().items() if codec.layout is not None}
