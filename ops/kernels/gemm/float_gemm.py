"""F32 GEMM for weights of any storage type: `COLUMNS` rows at a time are decoded to a panel of f32, whose tiles meet
activations in place."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import process_cache
from ....runtime.jit.address import f32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import RangeKernel, range_kernel
from ....runtime.simd.dot_product import INTS
from ....runtime.simd.llvm_vector import Code, Vector
from .epilogue import EpilogueArguments, apply_epilogue_rows
from .gemv import WeightRows
from .gemv_int8 import RUN
from .microkernel_f32 import ROWS, column_of_tiles
from .panel import COLUMNS, VECTORS, Panel, line_stride
from .panel_int8 import QUAD, Int8Panel, Int8Tile
from .register_tile import VECTOR, tiles_by_rows

CHUNK = 128
"""Elements of a row that are decoded at a time where blocks are not longer: codes and lines stay in L1."""
SPARE = 4 * COLUMNS * ROWS
"""Bytes of a tile whose columns are not all stored."""
START = SPARE + 4 * COLUMNS
"""Offset of a row of zeros in the scratch of a part, after what columns start from."""
LINES = START + VECTOR
"""Offset of the decoded lines."""


@dataclass(frozen=True)
class Chunk:
    """Elements of weight rows that are decoded together."""

    chunk: int

    @property
    def scratch(self) -> int:
        """Bytes of decoded lines."""
        return COLUMNS * line_stride(4 * self.chunk)


class FloatPanel(Panel):
    """Weight rows of any storage type as f32: [element, COLUMNS]."""

    def decode_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        """The elements of a row to a line."""
        self.stored.decode(self.code, address, depth, line)


class CodePanel(FloatPanel):
    """Weight rows as f32, made of codes that are transposed as bytes: in a quarter of the instructions for floats."""

    def __init__(self, code: Code, tile: Chunk, stored: WeightRows, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        assert stored.codes is not None
        self.codes = Int8Panel(code, Int8Tile(1, stored.codes, tile.chunk), stored, scratch)

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start` of some rows; those after the last row are what they are."""
        code, build = self.code, self.code.builder
        self.codes.decode(source, row_bytes, height, start, depth)
        with code.loop(code.word(0), build.sdiv(depth, code.word(RUN))) as run:
            line = build.add(self.codes.elements, build.mul(run, code.word(COLUMNS * RUN)))
            target = build.add(self.elements, build.mul(run, code.word(4 * COLUMNS * RUN)))
            for part in range(self.codes.tile.parts):
                self._decode_part(line, target, run, part)

    def _decode_part(self, line: Any, target: Any, run: Any, part: int) -> None:
        """Elements of a run that share a scale."""
        code, tile = self.code, self.codes.tile
        scales = self.codes.columns(self.codes.scales, run, tile.parts, part)
        shifts = [scale * float(-tile.kind.zero) for scale in scales]
        if tile.minima:
            minima = self.codes.columns(self.codes.minima, run, tile.minima, part)
            shifts = [shift - minimum for shift, minimum in zip(shifts, minima, strict=True)]
        each = RUN // QUAD // tile.parts
        for quad in range(each * part, each * (part + 1)):
            for half, (scale, shift) in enumerate(zip(scales, shifts, strict=True)):
                word = Vector(code, code.load(line, INTS, VECTOR * (VECTORS * quad + half)))
                for index in range(QUAD):
                    integers = (word >> 8 * index if index else word) & 255
                    value = code.fma(integers.as_float(), scale, shift)
                    code.store(value.value, target, VECTOR * (VECTORS * (QUAD * quad + index) + half))


class Decoding(NamedTuple):
    """Arguments of `panel_decoder`: some rows, elements of them, memory for lines, and the position in the panel."""

    source: Any
    row_bytes: Any
    height: Any
    start: Any
    depth: Any
    lines: Any
    target: Any


def chunk_of(stored: WeightRows) -> Chunk:
    """Elements of a row that are decoded at a time: whole blocks, and whole vectors of codes."""
    return Chunk(max(stored.length, CHUNK))


def panel_decoder(stored: WeightRows, panel_class: type[Panel]) -> Any:
    """Decodes a chunk of some rows."""
    tile = chunk_of(stored)

    def write(code: Code, _: int, given: Decoding) -> None:
        panel = panel_class(code, tile, stored, given.lines)
        panel.elements = given.target
        panel.decode(given.source, given.row_bytes, given.height, given.start, given.depth)

    return tiles_by_rows((1,), Decoding, write)


def scratch_nbytes(name: str, length: int) -> int:
    """Scratch bytes of a part, for rows of some length."""
    tile = chunk_of(WeightRows(name))
    return LINES + tile.scratch + 4 * COLUMNS * (-(-length // tile.chunk) * tile.chunk)


@process_cache
def float_gemm(name: str, panel_class: type[Panel] | None = None) -> RangeKernel:
    """The kernel of a storage type; `panel_class`: of weights that are not stored as rows of blocks."""
    stored = WeightRows(name)
    decode = panel_decoder(stored, panel_class or (FloatPanel if stored.codes is None else CodePanel))
    chunk, lines_nbytes = chunk_of(stored).chunk, chunk_of(stored).scratch

    @range_kernel
    def multiply_decoded(
        weight: Address,
        x: Address,
        y: Address,
        bias: Address,
        count: int,
        row_bytes: int,
        length: int,
        tokens: int,
        scratch: Address,
        nbytes: int,
        epilogue: EpilogueArguments,
        part: int,
        parts: int,
    ) -> None:
        """``y[t, row] = epilogue(x[t] . W[row] + bias[row])``; `bias` is 0 for none, a part has `nbytes` of scratch."""
        own = scratch + part * nbytes
        lines, panel = own + LINES, own + LINES + lines_nbytes
        starts, zero = f32(own + SPARE), f32(own + START)
        zero[0] = np.float32(0)
        low, high = np.float32(epilogue.low), np.float32(epilogue.high)
        first, last = share((count + COLUMNS - 1) // COLUMNS, part, parts)
        for unit in range(first, last):
            row = unit * COLUMNS
            height = min(COLUMNS, count - row)
            for column in range(COLUMNS):
                starts[column] = f32(bias)[row + column] if bias != 0 and column < height else np.float32(0)
            for start in range(0, length, chunk):
                depth, target = min(chunk, length - start), panel + 4 * COLUMNS * start
                decode(1, weight + row * row_bytes, row_bytes, height, start, depth, lines, target)
            column_of_tiles(
                x,
                4 * length,
                4,
                panel,
                length,
                y + 4 * row,
                4 * count,
                0,
                tokens,
                height,
                own + START,
                0,
                own + SPARE,
                low,
                high,
                own,
            )
            apply_epilogue_rows(epilogue, y + 4 * row, 4 * count, tokens, height, 4 * row, epilogue.added_row)

    return multiply_decoded
