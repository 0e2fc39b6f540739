"""AMX tile operations as instructions, and emulated with vectors on processors without AMX.

A tile is up to 16 rows of up to 64 bytes. `Registers` writes the instructions as assembly. `Emulated` does the same in
memory, so that what kernels do with tiles is tested anywhere.
Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llvmlite import ir

from ..base.dataclass import dataclass
from .llvm_vector import I8, I16, I32, I64, LANES, Code, Vector, vector_type

ROWS, LINE = 16, 64
"""Maximum rows of a tile, and bytes of a row."""
_INTS, _BYTES = vector_type(I32), vector_type(I8, LINE)


@dataclass(frozen=True)
class Shape:
    """Rows of a tile and bytes of each."""

    rows: int
    nbytes: int


class Tiles(Protocol):
    """AMX tile operations; tiles are numbered in the order of their shapes."""

    def configure(self) -> None:
        """Take the shapes; before anything else, on every thread."""

    def zero(self, tile: int) -> None:
        """Set all of a tile to zero."""

    def load(self, tile: int, address: Any, stride: Any) -> None:
        """Rows of a tile from memory, so many bytes apart: a number that is known, or the kernel's."""

    def dot(self, total: int, signed: int, unsigned: int) -> None:
        """Add products of bytes to i32: total[m, n] += signed[m, 4 k + i] unsigned[k, 4 n + i]."""

    def dot_bf16(self, total: int, left: int, right: int) -> None:
        """Add products of bfloat16 to f32: total[m, n] += (sum of left[m, 2 k] right[k, 2 n]) + (sum of left[m, 2 k +
        1] right[k, 2 n + 1]).

        Both sums are made from zero, product by product, each rounded once; numbers below 2^-126 are taken for zeros
        and become zeros.
        """

    def store(self, tile: int, address: Any, stride: int) -> None:
        """Rows of a tile to memory."""

    def release(self) -> None:
        """End the use of tiles."""


class Registers:
    """The instructions."""

    def __init__(self, code: Code, shapes: Sequence[Shape]) -> None:
        self.code = code
        self.shapes = shapes

    def _write(self, text: str, *arguments: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        constraints = ",".join(["r" for _ in arguments] + ["~{memory}"])
        self.code.builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), arguments)

    def configure(self) -> None:
        """A palette, 14 bytes of nothing, bytes of a row for each of 16 tiles in 2 bytes, rows in 1."""
        rest = [0] * (16 - len(self.shapes))
        wide = [byte for nbytes in [*(shape.nbytes for shape in self.shapes), *rest] for byte in (nbytes, 0)]
        table = [1, *[0] * 15, *wide, *(shape.rows for shape in self.shapes), *rest]
        self._write("ldtilecfg ($0)", self.code.constant(table, I8))

    def zero(self, tile: int) -> None:
        self._write(f"tilezero %tmm{tile}")

    def load(self, tile: int, address: Any, stride: Any) -> None:
        self._write(f"tileloadd ($0,$1,1), %tmm{tile}", address, _word(self.code, stride))

    def dot(self, total: int, signed: int, unsigned: int) -> None:
        self._write(f"tdpbsud %tmm{unsigned}, %tmm{signed}, %tmm{total}")

    def dot_bf16(self, total: int, left: int, right: int) -> None:
        self._write(f"tdpbf16ps %tmm{right}, %tmm{left}, %tmm{total}")

    def store(self, tile: int, address: Any, stride: int) -> None:
        self._write(f"tilestored %tmm{tile}, ($0,$1,1)", address, self.code.word(stride))

    def release(self) -> None:
        self._write("tilerelease")


class Emulated:
    """The same in memory."""

    def __init__(self, code: Code, shapes: Sequence[Shape]) -> None:
        self.code = code
        self.shapes = shapes
        nothing = ir.Constant(ir.ArrayType(I8, ROWS * LINE), None)
        self.places = [code.builder.ptrtoint(code.variable(nothing), I64) for _ in shapes]

    def configure(self) -> None:
        for tile in range(len(self.shapes)):
            self.zero(tile)

    def zero(self, tile: int) -> None:
        for row in range(ROWS):
            self.code.store(ir.Constant(_BYTES, None), self.places[tile], LINE * row)

    def _copy(self, tile: int, source: Any, step: Any, target: Any, row_step: Any) -> None:
        """Rows of a tile, so many bytes apart."""
        code, build, shape = self.code, self.code.builder, self.shapes[tile]
        with code.loop(code.word(0), code.word(shape.rows)) as row:
            found = code.load(build.add(source, build.mul(row, step)), vector_type(I8, shape.nbytes))
            code.store(found, build.add(target, build.mul(row, row_step)))

    def load(self, tile: int, address: Any, stride: Any) -> None:
        self._copy(tile, address, _word(self.code, stride), self.places[tile], self.code.word(LINE))

    def dot(self, total: int, signed: int, unsigned: int) -> None:
        code, build = self.code, self.code.builder
        with code.loop(code.word(0), code.word(self.shapes[total].rows)) as row:
            place = build.add(self.places[total], build.mul(row, code.word(LINE)))
            left = build.add(self.places[signed], build.mul(row, code.word(LINE)))
            with code.loop(code.word(0), code.word(self.shapes[signed].nbytes // 4)) as four:
                word = code.splat(code.load(build.add(left, build.mul(four, code.word(4))), I32))
                line = code.load(build.add(self.places[unsigned], build.mul(four, code.word(LINE))), _BYTES)
                products = _dot(code, build.bitcast(word.value, _BYTES), line)
                code.store(build.add(code.load(place, _INTS), products), place)

    def dot_bf16(self, total: int, left: int, right: int) -> None:
        """Numbers below 2^-126 stay what they are."""
        code, build = self.code, self.code.builder
        with code.loop(code.word(0), code.word(self.shapes[total].rows)) as row:
            place = build.add(self.places[total], build.mul(row, code.word(LINE)))
            line = build.add(self.places[left], build.mul(row, code.word(LINE)))
            sums = [code.floats_of([0.0] * LANES)] * 2
            for four in range(self.shapes[left].nbytes // 4):
                pairs = [
                    _pair(code.splat(code.load(line, I32, 4 * four))),
                    _pair(Vector(code, code.load(self.places[right], _INTS, LINE * four))),
                ]
                sums = [code.fma(*each) for each in zip(*pairs, sums, strict=True)]
            code.store((code.floats(place) + (sums[0] + sums[1])).value, place)

    def store(self, tile: int, address: Any, stride: int) -> None:
        self._copy(tile, self.places[tile], self.code.word(LINE), address, self.code.word(stride))

    def release(self) -> None:
        """Nothing is held."""


def _word(code: Code, value: Any) -> Any:
    """A 64-bit number that is known, or the kernel's own."""
    return code.word(value) if isinstance(value, int) else value


def _pair(words: Vector) -> list[Vector]:
    """Sixteen pairs of bfloat16 as f32, the first ones and the second ones."""
    return [(words << 16).bits_as_float(), (words & -65536).bits_as_float()]


def _dot(code: Code, signed: Any, unsigned: Any) -> Any:
    """Sixteen sums of four products of bytes."""
    build, short = code.builder, vector_type(I16, LINE)
    products = build.sext(build.mul(build.sext(signed, short), build.zext(unsigned, short)), vector_type(I32, LINE))
    lanes = [
        build.shuffle_vector(products, products, ir.Constant(_INTS, list(range(index, LINE, 4)))) for index in range(4)
    ]
    return build.add(build.add(lanes[0], lanes[1]), build.add(lanes[2], lanes[3]))


__all__ = ["LANES", "LINE", "ROWS", "Emulated", "Registers", "Shape", "Tiles"]
