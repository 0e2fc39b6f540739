"""Panels: decoded weight rows that meet tiles of rounded activations.

Rows of the weight are decoded, `COLUMNS` at a time and at most `chunk` elements of each, and transposed, so that a
vector has one 32-bit lane for each of sixteen rows: an f32, two 16-bit elements, or four codes. Activations come in
tiles of a few rows, run by run of `RUN` elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.simd.dot_product import INTS
from ....runtime.simd.llvm_vector import I32, LANES, Code, vector_type
from .gemv import WeightRows
from .gemv_int8 import RUN
from .register_tile import PANEL, VECTOR

COLUMNS = PANEL
"""Rows of a weight, which are columns of the product, that are multiplied at a time."""
VECTORS = COLUMNS // LANES
SQUARE, HALF = 8, 4
"""32-bit lanes of a vector of AVX2, and of half of it."""


@dataclass(frozen=True)
class Tile(ABC):
    """Memory layout of a tile of activations. Each tile has a `chunk`: elements of a weight row that are decoded at a
    time, a multiple of the block length.

    Attributes:
        rows: of activations.
    """

    rows: int

    @property
    def run(self) -> int:
        """Elements that share a quantization step."""
        return RUN

    @property
    def heights(self) -> tuple[int, ...]:
        """Numbers of rows that are multiplied, ascending."""
        return (self.rows // 2, self.rows) if self.rows > 1 else (1,)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of a run of a tile."""

    @property
    @abstractmethod
    def scratch(self) -> int:
        """Scratch bytes of a part without sums."""

    def length_nbytes(self, length: int) -> int:
        """Bytes of a tile of rows of some length."""
        return length // self.run * self.nbytes

    def offset(self, code: Code, length: Any) -> Any:
        """Bytes of a tile of rows of some length, in a kernel."""
        return code.builder.mul(code.builder.sdiv(length, code.word(self.run)), code.word(self.nbytes))

    def pack_row(self, code: Code, x: Any, to: Any, row: Any, length: Any) -> None:
        """Round a row of f32 and put it into a tile."""
        build = code.builder
        with code.loop(code.word(0), build.sdiv(length, code.word(self.run))) as run:
            place = build.add(to, build.mul(run, code.word(self.nbytes)))
            self.pack(code, build.add(x, build.mul(run, code.word(4 * self.run))), place, row)

    def pack(self, code: Code, x: Any, to: Any, row: Any) -> None:
        """Round one run of one row."""
        raise NotImplementedError


class Panel:
    """Decoded weight rows, transposed, and the sums of all tiles [.., rows, COLUMNS].

    Attributes:
        vectors_per_step: vectors of columns that are multiplied at a time.
        itemsize: bytes of a decoded element.
        transposes_squares: whether squares of eight 32-bit lanes are transposed, which fit the registers of AVX2.
    """

    vectors_per_step = VECTORS
    itemsize = 4
    transposes_squares = False

    def __init__(self, code: Code, tile: Any, stored: WeightRows, scratch: Any) -> None:
        self.code, self.tile, self.stored = code, tile, stored
        self.stride = line_stride(tile.chunk * self.itemsize)
        self.lines = scratch
        self.elements = code.builder.add(scratch, code.word(COLUMNS * self.stride))
        self.sums = code.builder.add(scratch, code.word(tile.scratch))

    def release(self) -> None:
        """Release hardware tiles, if any."""

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start` of some rows; those after the last row are what they are."""
        self.decode_part(0, source, row_bytes, height, start, depth)

    def bytes_ahead(self, row_bytes: Any, start: Any, depth: Any) -> Any:
        """Bytes from the elements of a chunk to those that are decoded next: of the same row, or of the next rows."""
        code, build = self.code, self.code.builder
        skipped, taken = self._nbytes(start), self._nbytes(depth)
        rest = build.sub(row_bytes, build.add(skipped, taken))
        following = build.sub(build.mul(row_bytes, code.word(COLUMNS)), skipped)
        return build.select(build.icmp_signed(">", rest, code.word(0)), taken, following)

    def decode_part(self, part: int, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """The same, of a part of each element."""
        self._decode_rows(part, source, row_bytes, height, start, depth)
        self._transpose_lines(part, depth)

    def _nbytes(self, count: Any) -> Any:
        """Bytes of stored elements."""
        build = self.code.builder
        return build.mul(build.sdiv(count, self.code.word(self.stored.length)), self.code.word(self.stored.size))

    def _decode_rows(self, part: int, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """A part of the elements of each row to a line of its own."""
        code, build = self.code, self.code.builder
        skipped = self._nbytes(start)
        with code.loop(code.word(0), height) as row:
            address = build.add(build.add(source, build.mul(row, row_bytes)), skipped)
            self.decode_row(part, address, depth, build.add(self.lines, build.mul(row, code.word(self.stride))), row)

    def _transpose_lines(self, part: int, depth: Any) -> None:
        """The lines, transposed, to a part of the panel."""
        code, build = self.code, self.code.builder
        target = build.add(self.elements, code.word(COLUMNS * self.itemsize * self.tile.chunk * part))
        with code.loop(code.word(0), build.mul(depth, code.word(self.itemsize)), VECTOR) as offset:
            self._transpose(build.add(self.lines, offset), build.add(target, build.mul(offset, code.word(COLUMNS))))

    def decode_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        """A part of the elements of a row to a line."""
        raise NotImplementedError

    def _transpose(self, source: Any, target: Any) -> None:
        """A vector of each row, so that rows are in adjacent registers."""
        if self.transposes_squares:
            for lane in range(0, LANES, SQUARE):
                for first, index, vector in self.squares(self.code.builder.add(source, self.code.word(4 * lane))):
                    self.code.store(vector, target, 4 * (COLUMNS * (lane + index) + first))
            return
        for half in range(VECTORS):
            held = [self.code.load(source, INTS, self.stride * (LANES * half + row)) for row in range(LANES)]
            for index, vector in enumerate(transposed(self.code, held)):
                self.code.store(vector, target, VECTOR * (VECTORS * index + half))

    def squares(self, source: Any) -> Iterator[tuple[int, int, Any]]:
        """Eight lanes of each row from an address, transposed: the first of eight rows, a lane, and that lane of the
        rows."""
        for first in range(0, COLUMNS, SQUARE):
            rows = self.code.builder.add(source, self.code.word(self.stride * first))
            for index, vector in enumerate(transposed_square(self.code, rows, self.stride)):
                yield first, index, vector

    def multiply(self, x: Any, depth: Any, sums: Any, rows: int) -> None:
        """Add the products of `depth` elements with the first rows of a tile to its sums."""
        for first in range(0, VECTORS, self.vectors_per_step):
            last = min(VECTORS, first + self.vectors_per_step)
            places = [(row, half) for row in range(rows) for half in range(first, last)]
            offsets = [4 * (COLUMNS * row + LANES * half) for row, half in places]
            totals = [self.code.floats(sums, offset).value for offset in offsets]
            for total, offset in zip(self.accumulate(x, depth, places, totals), offsets, strict=True):
                self.code.store(total, sums, offset)

    def accumulate(self, x: Any, depth: Any, places: list[tuple[int, int]], totals: list[Any]) -> list[Any]:
        """Sums of rows and vectors with the products of `depth` elements."""
        code, build = self.code, self.code.builder

        def add(run: Any, held: list[Any]) -> list[Any]:
            return self.add_run(build.add(x, build.mul(run, code.word(self.tile.nbytes))), run, places, held)

        return code.repeat(build.sdiv(depth, code.word(self.tile.run)), totals, add)

    def add_run(self, at: Any, run: Any, places: list[tuple[int, int]], totals: list[Any]) -> list[Any]:
        """The sums with a run's products."""
        raise NotImplementedError


def line_stride(nbytes: int) -> int:
    """Bytes from one decoded row to the next: a line of padding, so that rows do not meet in one set of the cache."""
    return nbytes + 64


def transposed(code: Code, lines: list[Any]) -> list[Any]:
    """Lanes and vectors exchanged: of sixteen vectors, or of eight, whose halves are squares of their own."""
    build, width = code.builder, len(lines) // 2
    while width:
        low = [lane + (LANES - width if lane // width % 2 else 0) for lane in range(LANES)]
        high = [lane + (LANES if lane // width % 2 else width) for lane in range(LANES)]
        made: list[Any] = [None] * len(lines)
        for one in (line for line in range(len(lines)) if not line // width % 2):
            for line, order in ((one, low), (one + width, high)):
                made[line] = build.shuffle_vector(lines[one], lines[one + width], ir.Constant(vector_type(I32), order))
        lines, width = made, width // 2
    return lines


def transposed_square(code: Code, source: Any, stride: int) -> list[Any]:
    """Lanes and rows exchanged of eight rows of eight 32-bit lanes, `stride` bytes apart: unpacking keeps to halves of
    vectors, which are loaded from rows four apart."""
    build = code.builder
    both = ir.Constant(vector_type(I32, SQUARE), list(range(SQUARE)))
    orders = [
        ir.Constant(vector_type(I32, SQUARE), order)
        for order in (
            (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15),
            (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15),
        )
    ]  # fmt: skip
    found = []
    for half in range(2):
        rows = [code.load(source, vector_type(I32, HALF), stride * row + 4 * HALF * half) for row in range(SQUARE)]
        joined = [build.shuffle_vector(rows[row], rows[row + HALF], both) for row in range(HALF)]
        pairs = [build.shuffle_vector(*joined[row : row + 2], order) for row in (0, 2) for order in orders[:2]]
        for one, other in ((0, 2), (1, 3)):
            found += [build.shuffle_vector(pairs[one], pairs[other], order) for order in orders[2:]]
    return found
