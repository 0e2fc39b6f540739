"""int8 panels: weight rows as codes, multiplied with int8 activations by VNNI, AVX-VNNI or AVX2.

A vector has four codes of each of sixteen rows. VNNI and AVX-VNNI add four products of bytes in one instruction. With
AVX2 two products are a number of 16 bits, of which as many are added up as stay below 2^15; codes of 8 bits do not fit
and are multiplied as 16-bit elements (`panel_16bit`). Integer sums are exact; the sum of each run is multiplied with
its scale and step and added in f32.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.simd.dot_product import INTS, add_pairs, dot2_u8s8, dot4_avx_vnni, dot4_vnni
from ....runtime.simd.llvm_vector import F32, I8, I32, LANES, Code, Vector, vector_type
from ...quants.llvm import Block, Codes, runs
from .gemv import WeightRows
from .gemv_int8 import RUN, _integer_sum, _part, _quads, max_pairs, quantize_run
from .panel import COLUMNS, VECTORS, Panel, Tile, line_stride
from .register_tile import VECTOR

CHUNK = 512
QUAD = 4


@dataclass(frozen=True)
class Int8Tile(Tile):
    """Memory layout of a run of a tile of int8 activations.

    Attributes:
        kind: the codes that they are multiplied with.
    """

    kind: Codes
    chunk: int = CHUNK

    @property
    def parts(self) -> int:
        """Scales of a run of the weight."""
        return RUN // self.kind.group

    @property
    def steps(self) -> int:
        """Offset of the steps in bytes; before them are the codes of each row."""
        return RUN * self.rows

    @property
    def starts(self) -> int:
        """Offset of the integers that sums start from, `parts` for each row."""
        return self.steps + 4 * self.rows

    @property
    def sums(self) -> int:
        """Offset in bytes of the negative sums that minima are multiplied with, `minima` for each row."""
        return self.starts + (4 * self.rows * self.parts if self.kind.zero else 0)

    @property
    def minima(self) -> int:
        """Minima of a run of the weight."""
        return 0 if self.kind.minima is None else RUN // self.kind.group

    @property
    def nbytes(self) -> int:
        """Bytes of a run."""
        return self.sums + 4 * self.rows * self.minima

    @property
    def scratch(self) -> int:
        """Scratch bytes of a part without sums: codes, transposed codes, scales, minima, and the integer sums of a
        run."""
        factors = 4 * self.chunk // RUN * (self.parts + self.minima)
        return COLUMNS * (line_stride(self.chunk) + self.chunk + factors + 4 * self.rows)

    def pack(self, code: Code, x: Any, to: Any, row: Any) -> None:
        """Round one run of one row: its codes and step, and what sums of it start from."""
        build = code.builder
        numbers, step = quantize_run(code, [code.floats(x, 64 * half) for half in range(2)], 127)
        code.store(build.trunc(numbers, vector_type(I8, RUN)), build.add(to, build.mul(row, code.word(RUN))))
        words_of = build.add(to, build.shl(row, code.word(2)))
        code.store(step, words_of, self.steps)
        quads = _quads(code, numbers)

        def total(index: int, count: int) -> Any:
            return _integer_sum(code, _part(code, quads, 8 // count * index, 8 // count))

        if self.kind.zero:
            for index in range(self.parts):
                start = build.mul(total(index, self.parts), ir.Constant(I32, -self.kind.zero))
                code.store(start, words_of, self.starts + 4 * self.rows * index)
        for index in range(self.minima):
            value = build.fneg(build.fmul(build.sitofp(total(index, self.minima), F32), step))
            code.store(value, words_of, self.sums + 4 * self.rows * index)


class Int8Panel(Panel):
    """Weight rows as transposed codes, with their scales and minima [.., COLUMNS].

    Attributes:
        quads_per_step: quads that are multiplied at a time.
        dot: adds four products in each lane.
    """

    itemsize = 1
    quads_per_step = 1
    dot = staticmethod(dot4_vnni)

    def __init__(self, code: Code, tile: Int8Tile, stored: WeightRows, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        build, runs_of_chunk = code.builder, COLUMNS * 4 * tile.chunk // RUN
        self.scales = build.add(self.elements, code.word(COLUMNS * tile.chunk))
        self.minima = build.add(self.scales, code.word(runs_of_chunk * tile.parts))
        self.integer_sums = build.add(self.minima, code.word(runs_of_chunk * tile.minima))
        self.ahead = code.word(0)

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start` of some rows; the bytes that will be wanted next are asked of the memory."""
        self.ahead = self.bytes_ahead(row_bytes, start, depth)
        super().decode(source, row_bytes, height, start, depth)

    def decode_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        """The codes of a row to a line."""
        code, blocks = self.code, self.code.builder.sdiv(depth, self.code.word(self.stored.length))
        self.stored.blocks(code, address, blocks, functools.partial(self._decode_block, row, line))

    def _decode_block(self, row: Any, line: Any, address: Any, element: Any) -> None:
        """A block of a row."""
        code, build, tile = self.code, self.code.builder, self.tile
        for offset in range(0, self.stored.size, 64):
            code.prefetch(build.add(address, self.ahead), offset)
        block = Block(code, address)
        to = build.add(line, element)
        run_number = build.sdiv(element, code.word(RUN))
        column = build.shl(row, code.word(2))

        def store_scale(vector: Any, lane: int, base: Any, each: int, index: int) -> None:
            place = build.add(build.add(base, build.mul(run_number, code.word(4 * COLUMNS * each))), column)
            code.store(build.extract_element(vector, ir.Constant(I32, lane)), place, 4 * COLUMNS * index)

        for index, run in enumerate(runs(tile.kind, block)):
            code.store(run.codes.value, to, RUN * index)
            for part, lane in enumerate((run.first, run.second)[: tile.parts]):
                store_scale(run.scales, lane, self.scales, tile.parts, tile.parts * index + part)
        if tile.kind.minima is not None:
            minima = tile.kind.minima([block])
            for index in range(self.stored.length // tile.kind.group):
                store_scale(minima, index, self.minima, tile.minima, index)

    def add_run(self, at: Any, run: Any, places: list[tuple[int, int]], totals: list[Any]) -> list[Any]:
        """The sums with a run's products."""
        code, tile = self.code, self.tile
        sums = [Vector(code, total) for total in totals]
        products: list[Vector] = []
        for part in range(tile.parts):
            found = [Vector(code, whole).as_float() for whole in self._integer_sums(at, run, part, places)]
            scales = self.columns(self.scales, run, tile.parts, part)
            if part:
                products = [
                    code.fma(each, scales[half], known)
                    for each, known, (_, half) in zip(found, products, places, strict=True)
                ]
            else:
                products = [each * scales[half] for each, (_, half) in zip(found, places, strict=True)]
        steps = [code.splat(code.load(at, F32, tile.steps + 4 * row)) for row, _ in places]
        sums = [code.fma(*each) for each in zip(products, steps, sums, strict=True)]
        for part in range(tile.minima):
            minima = self.columns(self.minima, run, tile.minima, part)
            for index, (row, half) in enumerate(places):
                total = code.splat(code.load(at, F32, tile.sums + 4 * (tile.rows * part + row)))
                sums[index] = code.fma(minima[half], total, sums[index])
        return [total.value for total in sums]

    def columns(self, base: Any, run: Any, each: int, index: int) -> list[Vector]:
        """The scales or minima of a part of a run, of which it has `each`."""
        code, build = self.code, self.code.builder
        place = build.add(base, build.mul(run, code.word(4 * COLUMNS * each)))
        return [code.floats(place, 4 * (COLUMNS * index + LANES * half)) for half in range(VECTORS)]

    def _integer_sums(self, at: Any, run: Any, part: int, places: list[tuple[int, int]]) -> list[Any]:
        """The integer sums of a part of a run."""
        code, build, tile = self.code, self.code.builder, self.tile
        nothing = ir.Constant(INTS, [0] * LANES)
        found = [
            code.splat(code.load(at, I32, tile.starts + 4 * (tile.rows * part + row))).value
            if tile.kind.zero
            else nothing
            for row, _ in places
        ]
        line = build.add(self.elements, build.mul(run, code.word(COLUMNS * RUN)))
        quads = range(RUN // QUAD // tile.parts * part, RUN // QUAD // tile.parts * (part + 1))
        for start in range(quads.start, quads.stop, self.quads_per_step):
            self._add_quads(at, line, range(start, min(quads.stop, start + self.quads_per_step)), places, found)
        return found

    def _add_quads(self, at: Any, line: Any, quads: range, places: list[tuple[int, int]], found: list[Any]) -> None:
        """Add the products of some quads to sums."""
        for quad in quads:
            columns, elements = self._quad(at, line, quad, places)
            for index, (row, half) in enumerate(places):
                found[index] = self.dot(self.code, found[index], columns[half], elements[row])

    def _quad(
        self, at: Any, line: Any, quad: int, places: list[tuple[int, int]]
    ) -> tuple[dict[int, Any], dict[int, Any]]:
        """Four codes of each column, by vector, and of each row in all lanes, by row."""
        code = self.code
        columns = {
            half: code.load(line, INTS, VECTOR * (VECTORS * quad + half))
            for half in dict.fromkeys(half for _, half in places)
        }
        rows = dict.fromkeys(row for row, _ in places)
        return columns, {row: code.splat(code.load(at, I32, RUN * row + QUAD * quad)).value for row in rows}


class AvxVnniPanel(Int8Panel):
    """As `Int8Panel`, by AVX-VNNI."""

    vectors_per_step = 1
    dot = staticmethod(dot4_avx_vnni)


class Avx2Panel(Int8Panel):
    """As `Int8Panel`, by products of bytes of 16 bits."""

    vectors_per_step = 1
    transposes_squares = True

    def __init__(self, code: Code, tile: Int8Tile, stored: WeightRows, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.quads_per_step = min(RUN // QUAD // tile.parts, max_pairs(stored.name))

    def _add_quads(self, at: Any, line: Any, quads: range, places: list[tuple[int, int]], found: list[Any]) -> None:
        """In a loop: LLVM adds the products of unrolled quads row by row, and spills sums."""
        code, build = self.code, self.code.builder
        first = build.add(at, code.word(QUAD * quads.start)), build.add(line, code.word(VECTOR * VECTORS * quads.start))

        def products(rows: Any, columns_of: Any) -> list[Any]:
            columns, elements = self._quad(rows, columns_of, 0, places)
            return [dot2_u8s8(code, columns[half], elements[row]) for row, half in places]

        def add(quad: Any, sums: list[Any]) -> list[Any]:
            following = build.add(quad, code.word(1))
            rows = build.add(first[0], build.mul(following, code.word(QUAD)))
            columns_of = build.add(first[1], build.mul(following, code.word(VECTOR * VECTORS)))
            return [build.add(total, made) for total, made in zip(sums, products(rows, columns_of), strict=True)]

        sums = code.repeat(code.opaque(code.word(len(quads) - 1)), products(*first), add)
        for index, made in enumerate(sums):
            found[index] = add_pairs(code, found[index], made)
