"""int8 panels: quantized weight rows decoded to codes and multiplied by dot4 (VNNI) with tiles of int8 activations.

Rows of the weight are decoded to their codes, `COLUMNS` at a time and at most `CHUNK` elements of each, and transposed
so that a vector has four elements of sixteen rows. Integer sums are exact; the sum of each run is multiplied with its
scale and step and added in f32.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.simd.dot_product import INTS, dot4_vnni
from ....runtime.simd.llvm_vector import F32, I8, I32, LANES, Bytes, Code, Vector, vector_type
from ...quants.llvm import Block, Codes, runs
from .gemv import WeightRows
from .gemv_int8 import RUN, _integer_sum, _part, _quads, quantize_run

COLUMNS = 32
"""Rows of a weight, which are columns of the product, that are multiplied at a time."""
CHUNK = 512
"""Elements of a row that are decoded at a time; every block length divides it."""
STRIDE = CHUNK + 64
"""Bytes from one row of codes to the next: a line more, so that they do not meet in one set of the cache."""
QUAD = 4


@dataclass(frozen=True)
class Tile:
    """How a run of a tile of activations lies in memory.

    Attributes:
        rows: of activations.
        kind: the codes that they are multiplied with.
    """

    rows: int
    kind: Codes

    @property
    def parts(self) -> int:
        """Scales of a run of the weight."""
        return RUN // self.kind.group

    @property
    def steps(self) -> int:
        """Where the steps are, bytes; before them the codes of each row."""
        return RUN * self.rows

    @property
    def starts(self) -> int:
        """Where the integers are that sums start from, `parts` for each row."""
        return self.steps + 4 * self.rows

    @property
    def sums(self) -> int:
        """Where the negative sums are that minima are multiplied with, `minima` for each row."""
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
        return COLUMNS * (STRIDE + CHUNK + 4 * CHUNK // RUN * (self.parts + self.minima) + 4 * self.rows)

    @property
    def chunk(self) -> int:
        """Elements of a row of the weight that are decoded at a time."""
        return CHUNK

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


class Panel:
    """Weight rows as transposed codes, with their scales and minima [.., COLUMNS], and the sums of all tiles [..,
    rows, COLUMNS].

    Attributes:
        vectors_per_step: vectors of columns that are multiplied at a time.
        quads_per_step: quads that are.
        dot: adds four products in each lane.
    """

    vectors_per_step = COLUMNS // LANES
    quads_per_step = 1
    dot = staticmethod(dot4_vnni)

    def __init__(self, code: Code, tile: Tile, stored: WeightRows, scratch: Any) -> None:
        build = code.builder
        self.code, self.tile, self.stored = code, tile, stored
        self.lines = scratch
        self.codes = build.add(scratch, code.word(COLUMNS * STRIDE))
        self.scales = build.add(self.codes, code.word(COLUMNS * CHUNK))
        self.minima = build.add(self.scales, code.word(COLUMNS * 4 * CHUNK // RUN * tile.parts))
        self.integer_sums = build.add(self.minima, code.word(COLUMNS * 4 * CHUNK // RUN * tile.minima))
        self.sums = build.add(scratch, code.word(tile.scratch))

    def release(self) -> None:
        """No products follow."""

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start` of some rows; those behind the last row are what they are."""
        code, build, length = self.code, self.code.builder, self.stored.length
        skipped = build.mul(build.sdiv(start, code.word(length)), code.word(self.stored.size))
        taken = build.mul(build.sdiv(depth, code.word(length)), code.word(self.stored.size))
        rest = build.sub(row_bytes, build.add(skipped, taken))
        following = build.sub(build.mul(row_bytes, code.word(COLUMNS)), skipped)
        ahead = build.select(build.icmp_signed(">", rest, code.word(0)), taken, following)
        with code.loop(code.word(0), height) as row:
            address = build.add(build.add(source, build.mul(row, row_bytes)), skipped)
            self.stored.blocks(
                code, address, build.sdiv(depth, code.word(length)), functools.partial(self._decode_block, row, ahead)
            )
        with code.loop(code.word(0), build.shl(depth, code.word(5)), COLUMNS * LANES * QUAD) as offset:
            self._transpose(offset)

    def _decode_block(self, row: Any, ahead: Any, address: Any, element: Any) -> None:
        """A block of a row; the bytes that are as far `ahead` are asked of the memory, which will be wanted next."""
        code, build, tile = self.code, self.code.builder, self.tile
        for offset in range(0, self.stored.size, 64):
            code.prefetch(build.add(address, ahead), offset)
        block = Block(code, address)
        to = build.add(build.add(self.lines, build.mul(row, code.word(STRIDE))), element)
        run_number = build.sdiv(element, code.word(RUN))
        column = build.shl(row, code.word(2))

        def store_scale(vector: Any, lane: int, base: Any, each: int, index: int) -> None:
            place = build.add(build.add(base, build.mul(run_number, code.word(4 * COLUMNS * each))), column)
            code.store(build.extract_element(vector, ir.Constant(I32, lane)), place, 4 * COLUMNS * index)

        for index, run in enumerate(runs(tile.kind, block)):
            code.store(self._multiplied_codes(run.codes), to, RUN * index)
            for part, lane in enumerate((run.first, run.second)[: tile.parts]):
                store_scale(run.scales, lane, self.scales, tile.parts, tile.parts * index + part)
        if tile.kind.minima is not None:
            minima = tile.kind.minima([block])
            for index in range(self.stored.length // tile.kind.group):
                store_scale(minima, index, self.minima, tile.minima, index)

    def _multiplied_codes(self, codes: Bytes) -> Any:
        """Codes as they are multiplied."""
        return codes.value

    def _transpose(self, offset: Any) -> None:
        """64 codes of each row, so that rows stand side by side: [element / 4, COLUMNS, 4]; `offset` is that of the
        result."""
        code, build = self.code, self.code.builder
        source = build.add(self.lines, build.sdiv(offset, code.word(COLUMNS)))
        target = build.add(self.codes, offset)
        for half in range(COLUMNS // LANES):
            held = [code.load(source, INTS, STRIDE * (LANES * half + row)) for row in range(LANES)]
            for quad, vector in enumerate(transposed(code, held)):
                code.store(vector, target, COLUMNS * QUAD * quad + LANES * QUAD * half)

    def multiply(self, x: Any, runs: Any, sums: Any, rows: int) -> None:
        """Add the products with the first rows of a tile to its sums."""
        for first in range(0, COLUMNS // LANES, self.vectors_per_step):
            self._multiply(
                x,
                runs,
                sums,
                [(row, half) for row in range(rows) for half in range(first, first + self.vectors_per_step)],
            )

    def _multiply(self, x: Any, runs: Any, sums: Any, places: list[tuple[int, int]]) -> None:
        """The same for some vectors, row by row."""
        code, build, tile = self.code, self.code.builder, self.tile
        held = [code.variable(code.floats(sums, 4 * (COLUMNS * row + LANES * half)).value) for row, half in places]
        for (row, half), place in zip(places, held, strict=True):
            build.store(code.floats(sums, 4 * (COLUMNS * row + LANES * half)).value, place)
        with code.loop(code.word(0), runs) as run:
            at = build.add(x, build.mul(run, code.word(tile.nbytes)))
            totals = [Vector(code, build.load(place)) for place in held]
            products: list[Vector] = []
            for part in range(tile.parts):
                found = [Vector(code, whole).as_float() for whole in self._integer_sums(at, run, part, places)]
                scales = self._columns(self.scales, run, tile.parts, part)
                if part:
                    products = [
                        code.fma(each, scales[half], known)
                        for each, known, (_, half) in zip(found, products, places, strict=True)
                    ]
                else:
                    products = [each * scales[half] for each, (_, half) in zip(found, places, strict=True)]
            steps = [code.splat(code.load(at, F32, tile.steps + 4 * row)) for row, _ in places]
            totals = [code.fma(*each) for each in zip(products, steps, totals, strict=True)]
            for part in range(tile.minima):
                minima = self._columns(self.minima, run, tile.minima, part)
                for index, (row, half) in enumerate(places):
                    total = code.splat(code.load(at, F32, tile.sums + 4 * (tile.rows * part + row)))
                    totals[index] = code.fma(minima[half], total, totals[index])
            for total, place in zip(totals, held, strict=True):
                build.store(total.value, place)
        for (row, half), place in zip(places, held, strict=True):
            code.store(build.load(place), sums, 4 * (COLUMNS * row + LANES * half))

    def _columns(self, base: Any, run: Any, each: int, index: int) -> list[Vector]:
        code, build = self.code, self.code.builder
        place = build.add(base, build.mul(run, code.word(4 * COLUMNS * each)))
        return [code.floats(place, 4 * (COLUMNS * index + LANES * half)) for half in range(COLUMNS // LANES)]

    def _integer_sums(self, at: Any, run: Any, part: int, places: list[tuple[int, int]]) -> list[Any]:
        """The sums of integers of a part of a run."""
        code, build, tile = self.code, self.code.builder, self.tile
        nothing = ir.Constant(INTS, [0] * LANES)
        found = [
            code.splat(code.load(at, I32, tile.starts + 4 * (tile.rows * part + row))).value
            if tile.kind.zero
            else nothing
            for row, _ in places
        ]
        line = build.add(self.codes, build.mul(run, code.word(COLUMNS * RUN)))
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
            half: code.load(line, INTS, COLUMNS * QUAD * quad + LANES * QUAD * half)
            for half in dict.fromkeys(half for _, half in places)
        }
        rows = dict.fromkeys(row for row, _ in places)
        return columns, {row: code.splat(code.load(at, I32, RUN * row + QUAD * quad)).value for row in rows}


def transposed(code: Code, lines: list[Any]) -> list[Any]:
    """Sixteen vectors of sixteen lanes, lanes and vectors exchanged."""
    build = code.builder
    for width in (8, 4, 2, 1):
        low = [lane + (LANES - width if lane // width % 2 else 0) for lane in range(LANES)]
        high = [lane + (LANES if lane // width % 2 else width) for lane in range(LANES)]
        made: list[Any] = [None] * LANES
        for one in (line for line in range(LANES) if not line // width % 2):
            for line, order in ((one, low), (one + width, high)):
                made[line] = build.shuffle_vector(lines[one], lines[one + width], ir.Constant(vector_type(I32), order))
        lines = made
    return lines
