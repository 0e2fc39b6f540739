"""16-bit panels: GEMM for f16 and bf16 weights by int16 or bf16 pair dot products.

A vector has two elements of each of sixteen weight rows. Two kinds of numbers are multiplied:

Integers: each run of 32 elements of a weight is a scale, a power of two, times integers of 16 bits. They are exact
for elements above a sixteenth of the run's greatest one; smaller ones are off by at most its 2^-16th. Activations are
rounded to 12 bits, sign included, each run with a step of its own. Sums of a run are exact; of runs with elements that
are not finite they are NaN.

bfloat16: weights are as they are, activations rounded to nearest even; see `simd.dot_product` for the rounding of sums.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.simd.dot_product import INTS, dot2_bf16, dot2_i16_avx2, dot2_i16_avx_vnni, dot2_i16_vnni
from ....runtime.simd.llvm_vector import F32, I16, I32, LANES, Code, Vector, vector_type
from ...quants.llvm import Block, build_mask, codes, runs
from .gemv import WeightRows
from .gemv_int8 import RUN, quantize_run
from .panel import COLUMNS, VECTORS, Panel, Tile, line_stride
from .register_tile import VECTOR

CHUNK = 256
"""Elements of a row that are decoded at a time: half as many as of codes, which are half as wide."""
PAIRS = RUN // 2
QUADS = [first + byte for first in range(0, RUN, 4) for byte in (0, 2, 1, 3)]
"""The elements of a run by pairs of every second byte of quads."""
MAX_ACTIVATION = 2047
"""Maximum of an activation's integer: 32 products of it with 16 bits are below 2^31."""


@dataclass(frozen=True)
class PairTile(Tile):
    """Memory layout of a run of a tile of activations: for each part the numbers of all rows, then their steps where
    they have some.

    Attributes:
        parts: numbers that are added up for an activation, and for a weight.
        max_magnitude: whole number that an activation becomes, None where they are bfloat16.
    """

    parts: int = 1
    max_magnitude: int | None = None
    chunk = CHUNK

    @property
    def steps(self) -> int:
        """Offset of the steps in bytes."""
        return 2 * RUN * self.rows * self.parts

    @property
    def nbytes(self) -> int:
        """Bytes of a run."""
        return self.steps + (0 if self.max_magnitude is None else 4 * self.rows)

    @property
    def scratch(self) -> int:
        """Scratch bytes of a part without sums: decoded rows, transposed rows, scales."""
        return COLUMNS * (line_stride(2 * CHUNK) + 2 * self.parts * CHUNK + 4 * CHUNK // RUN)

    def pack(self, code: Code, x: Any, to: Any, row: Any) -> None:
        """One run of one row."""
        build = code.builder
        place = build.add(to, build.mul(row, code.word(2 * RUN)))
        halves = [code.floats(x, 64 * half) for half in range(2)]
        if self.max_magnitude is not None:
            numbers, step = quantize_run(code, halves, self.max_magnitude)
            code.store(build.trunc(self._ordered(code, numbers), vector_type(I16, RUN)), place)
            code.store(step, build.add(to, build.shl(row, code.word(2))), self.steps)
            return
        for part in range(self.parts):
            rounded = [_round_to_bf16(code, half) for half in halves]
            for half, pattern in enumerate(rounded):
                code.store(
                    build.trunc(pattern.value, vector_type(I16)), place, 2 * (RUN * self.rows * part + LANES * half)
                )
            halves = [
                _residual(code, half, (pattern << 16).bits_as_float())
                for half, pattern in zip(halves, rounded, strict=True)
            ]

    def _ordered(self, code: Code, numbers: Any) -> Any:
        """The integers of a run in the order of the panel's elements."""
        return numbers


class PairPanel(Panel):
    """Weight rows as 16-bit elements, transposed: for each part [run, pair, COLUMNS, 2].

    Attributes:
        dot: adds two products in each lane.
    """

    itemsize = 2
    dot = staticmethod(dot2_i16_vnni)

    def __init__(self, code: Code, tile: PairTile, stored: WeightRows, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.scales = code.builder.add(self.elements, code.word(2 * COLUMNS * tile.parts * CHUNK))

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start` of some rows; those after the last row are what they are."""
        for part in range(self.tile.parts):
            self.decode_part(part, source, row_bytes, height, start, depth)

    def decode_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        """A part of the elements of a row to a line."""
        code, build = self.code, self.code.builder
        with code.loop(code.word(0), build.sdiv(depth, code.word(RUN))) as run:
            offset = build.mul(run, code.word(2 * RUN))
            place = build.add(address, offset)
            code.prefetch(place, 2 * CHUNK)
            self._read_run(part, place, build.add(line, offset), run, row)

    @abstractmethod
    def _read_run(self, part: int, address: Any, to: Any, run: Any, row: Any) -> None:
        """A run of a row."""

    def _values(self, address: Any) -> list[Vector]:
        """Its elements as f32."""
        return [
            next(self.stored.groups(self.code, self.code.builder.add(address, self.code.word(at)))).numbers[0]
            for at in (0, 2 * LANES)
        ]

    def _products(self, at: Any, run: Any, places: list[tuple[int, int]], found: list[Any]) -> list[Any]:
        """Some sums with the products of the pairs of a run."""
        build = self.code.builder
        line = build.add(self.elements, build.mul(run, self.code.word(2 * COLUMNS * RUN)))
        return self._add_pairs(line, at, PAIRS, places, found)

    def _add_pairs(self, line: Any, at: Any, count: int, places: list[tuple[int, int]], found: list[Any]) -> list[Any]:
        """The same of `count` pairs, from the addresses of their columns and of the first row's elements."""
        code = self.code
        for pair in range(count):
            columns = {
                half: code.load(line, INTS, VECTOR * (VECTORS * pair + half))
                for half in dict.fromkeys(half for _, half in places)
            }
            elements = {
                row: code.splat(code.load(at, I32, 2 * RUN * row + 4 * pair)).value
                for row in dict.fromkeys(row for row, _ in places)
            }
            found = [
                self.dot(code, total, columns[half], elements[row])
                for total, (row, half) in zip(found, places, strict=True)
            ]
        return found


class Int16Pairs(PairPanel):
    """Integers with scales [run, COLUMNS]."""

    def _read_run(self, part: int, address: Any, to: Any, run: Any, row: Any) -> None:
        code, build = self.code, self.code.builder
        numbers, scale = _to_fixed_point(code, self._values(address))
        code.store(build.trunc(numbers, vector_type(I16, RUN)), to)
        self._store_scale(scale, run, row)

    def _store_scale(self, scale: Any, run: Any, row: Any) -> None:
        """The scale of a run of a row."""
        code, build = self.code, self.code.builder
        code.store(
            scale,
            build.add(self.scales, build.add(build.mul(run, code.word(4 * COLUMNS)), build.shl(row, code.word(2)))),
        )

    def add_run(self, at: Any, run: Any, places: list[tuple[int, int]], totals: list[Any]) -> list[Any]:
        """The sums with a run\'s products."""
        code, build = self.code, self.code.builder
        nothing = [ir.Constant(INTS, None) for _ in places]
        found = self._products(at, run, places, nothing)
        base = build.add(self.scales, build.mul(run, code.word(4 * COLUMNS)))
        scales = {half: code.floats(base, 4 * LANES * half) for half in dict.fromkeys(half for _, half in places)}
        steps = [code.splat(code.load(at, F32, self.tile.steps + 4 * row)) for row, _ in places]
        products = [
            Vector(code, whole).as_float() * scales[half] for whole, (_, half) in zip(found, places, strict=True)
        ]
        return [
            code.fma(product, step, Vector(code, total)).value
            for product, step, total in zip(products, steps, totals, strict=True)
        ]


class Bf16Pairs(PairPanel):
    """The weight's own bfloat16; of f16, where a tile has two parts, the upper eight bits of each number, and the rest
    of it."""

    dot = staticmethod(dot2_bf16)

    def _read_run(self, part: int, address: Any, to: Any, run: Any, row: Any) -> None:
        code, build = self.code, self.code.builder
        if self.tile.parts == 1:
            code.store(code.load(address, vector_type(I32)), to)
            return
        for half, value in enumerate(self._values(address)):
            upper = Vector(code, build.bitcast(value.value, INTS)) & -65536
            kept = (
                Vector(code, build.bitcast(_residual(code, value, upper.bits_as_float()).value, INTS))
                if part
                else upper
            )
            code.store(build.trunc((kept >> 16).value, vector_type(I16)), to, 2 * LANES * half)

    def add_run(self, at: Any, run: Any, places: list[tuple[int, int]], totals: list[Any]) -> list[Any]:
        """The sums with a run\'s products."""
        return self._products(at, run, places, totals)


class AvxVnniPairs(Int16Pairs):
    """As `Int16Pairs`, by AVX-VNNI."""

    vectors_per_step = 1
    dot = staticmethod(dot2_i16_avx_vnni)


class Avx2Pairs(Int16Pairs):
    """As `Int16Pairs`, by AVX2."""

    vectors_per_step = 1
    dot = staticmethod(dot2_i16_avx2)

    def _products(self, at: Any, run: Any, places: list[tuple[int, int]], found: list[Any]) -> list[Any]:
        """In a loop: LLVM adds the products of an unrolled run row by row, and spills its columns."""
        code, build = self.code, self.code.builder
        line = build.add(self.elements, build.mul(run, code.word(2 * COLUMNS * RUN)))

        def add(pair: Any, totals: list[Any]) -> list[Any]:
            following = build.add(pair, code.word(1))
            columns = build.add(line, build.mul(following, code.word(VECTOR * VECTORS)))
            return self._add_pairs(columns, build.add(at, build.shl(following, code.word(2))), 1, places, totals)

        first = self._add_pairs(line, at, 1, places, found)
        return code.repeat(code.opaque(code.word(PAIRS - 1)), first, add)


class CodePairTile(PairTile):
    """Activations of `Avx2CodePairs`: the pairs of each four are of the outer and inner bytes that one word holds."""

    def _ordered(self, code: Code, numbers: Any) -> Any:
        return code.builder.shuffle_vector(numbers, numbers, build_mask(QUADS))


class Avx2CodePairs(Avx2Pairs):
    """Codes of 8 bits as 16-bit integers: bytes are transposed in quads, of which every second byte becomes a pair."""

    def __init__(self, code: Code, tile: PairTile, stored: WeightRows, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.stride = line_stride(CHUNK)

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start` of some rows; the bytes that will be wanted next are asked of the memory."""
        self.ahead = self.bytes_ahead(row_bytes, start, depth)
        super().decode(source, row_bytes, height, start, depth)

    def _transpose_lines(self, part: int, depth: Any) -> None:
        """The lines, in quads of bytes, to the panel."""
        code, build = self.code, self.code.builder
        eight = ir.Constant(vector_type(I16, LANES), [8] * LANES)
        with code.loop(code.word(0), depth, RUN) as offset:
            target = build.add(self.elements, build.mul(offset, code.word(2 * COLUMNS)))
            for first, quad, vector in self.squares(build.add(self.lines, offset)):
                words = build.bitcast(vector, eight.type)
                for index, moved in enumerate((build.shl(words, eight), words)):
                    code.store(build.ashr(moved, eight), target, 4 * (COLUMNS * (2 * quad + index) + first))

    def decode_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        """The codes of a row to a line."""
        code, build, kind = self.code, self.code.builder, codes()[self.stored.name]

        def each(block: Any, element: Any) -> None:
            first = build.sdiv(element, code.word(RUN))
            for offset in range(0, self.stored.size, 64):
                code.prefetch(build.add(block, self.ahead), offset)
            for index, run in enumerate(runs(kind, Block(code, block))):
                numbers = build.sub(run.codes.value, ir.Constant(run.codes.value.type, [kind.zero] * RUN))
                code.store(numbers, build.add(line, element), RUN * index)
                self._store_scale(
                    build.extract_element(run.scales, ir.Constant(I32, run.first)),
                    build.add(first, code.word(index)),
                    row,
                )

        self.stored.blocks(code, address, build.sdiv(depth, code.word(self.stored.length)), each)


def _round_to_bf16(code: Code, value: Vector) -> Vector:
    """f32 as the bits of bfloat16, rounded to nearest even; NaN becomes the quiet one."""
    build = code.builder
    bits = Vector(code, build.bitcast(value.value, INTS))
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    ordered = Vector(code, build.fcmp_ordered("ord", value.value, value.value))
    return code.select(ordered, rounded, code.ints_of([0x7FC0] * LANES))


def _residual(code: Code, value: Vector, rounded: Vector) -> Vector:
    """The rounding error of a number against its nearest 16-bit value; zero where that is infinite, so that sums stay
    infinite."""
    rest = value - rounded
    return code.select(
        Vector(code, code.builder.fcmp_ordered("ord", rest.value, rest.value)), rest, code.floats_of([0.0] * LANES)
    )


def _to_fixed_point(code: Code, halves: list[Vector]) -> tuple[Any, Any]:
    """Two vectors as integers below 2^15, i32 [32], times a power of two, NaN where one is not finite."""
    build = code.builder
    kind = vector_type(F32)
    patterns = [build.bitcast(code.call("llvm.fabs.v16f32", kind, half.value), INTS) for half in halves]
    max_magnitude = code.call("llvm.vector.reduce.smax.v16i32", I32, code.call("llvm.smax.v16i32", INTS, *patterns))
    exponent = code.call("llvm.smax.i32", I32, build.lshr(max_magnitude, ir.Constant(I32, 23)), ir.Constant(I32, 15))
    scale, inverse = (
        build.bitcast(build.shl(power, ir.Constant(I32, 23)), F32)
        for power in (build.sub(exponent, ir.Constant(I32, 14)), build.sub(ir.Constant(I32, 254 + 14), exponent))
    )
    whole = [
        build.fptosi(code.call("llvm.nearbyint.v16f32", kind, (half * code.splat(inverse)).value), INTS)
        for half in halves
    ]
    finite = build.bitcast(max_magnitude, F32)
    order = ir.Constant(vector_type(I32, RUN), list(range(RUN)))
    return build.shuffle_vector(*whole, order), build.fadd(scale, build.fsub(finite, finite))
