"""Panels of grouped integers, which are MatMulNBits' weight: multiplied as they are stored by VNNI, or decoded to f32.

Activations are rounded to one int8 digit, or to three, which keep f32 precision relative to the largest of 32 elements.
Layout of a panel: ops/quants/grouped.py.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from .....runtime.base.dataclass import dataclass
from .....runtime.base.process_cache import process_cache
from .....runtime.jit.isa import BLOCKS, PROMPTS
from .....runtime.jit.llvm_kernel import EmittedKernel
from .....runtime.simd.dot_product import INTS, dot4_vnni
from .....runtime.simd.llvm_vector import F32, I32, LANES, Code, Vector
from ....quants.grouped import LENGTH, grouping
from ....quants.llvm import Codes, codes
from ..gemv import WeightRows
from ..gemv_int8 import NO_INTS, RUN, _digits, _integer_sum, _part, quantize_run
from ..packed_gemm import panel_gemm, panel_of_part
from ..panel import COLUMNS, VECTORS, Panel, Tile
from ..panel_int8 import QUAD
from ..register_tile import VECTOR

VARIANT = "VNNI"
"""The instruction set that the kernels need."""
MAX_ROWS = 6
"""Rows of activations whose sums are in registers."""
LOW_HALVES = 0x0F0F0F0F
SHIFT = 16
"""Bits after the first of three digits."""


@dataclass(frozen=True)
class DigitTile(Tile):
    """Memory layout of a run of a tile of activations: the digits of each row, most significant first; steps;
    integers that sums of the first digit start from, and those of the others; and the negative sums that minima are
    multiplied with.

    Attributes:
        name: storage type of the weight.
        digits: of an activation.
    """

    name: str
    digits: int
    chunk = 1024

    @property
    def kind(self) -> Codes:
        """The codes of the weight."""
        return codes()[self.name]

    @property
    def run(self) -> int:
        """Elements that share a step: those of a group of the weight, but 32 for three digits and where groups are
        shorter."""
        return RUN if self.digits > 1 else max(RUN, grouping(self.name).group)

    @property
    def parts(self) -> int:
        """Groups of the weight in a run."""
        return max(1, self.run // grouping(self.name).group)

    @property
    def steps(self) -> int:
        """Offset of the steps of the rows."""
        return self.digits * self.run * self.rows

    @property
    def starts(self) -> int:
        """Offset of the integers that sums start from: for the first digit `parts` for each row, then for the rest."""
        return self.steps + 4 * self.rows

    @property
    def sums(self) -> int:
        """Offset of the negative sums, `parts` for each row."""
        return self.starts + 4 * self.rows * self.parts * (1 if self.digits == 1 else 2)

    @property
    def nbytes(self) -> int:
        """Bytes of a run."""
        return self.sums + (0 if self.kind.minima is None else 4 * self.rows * self.parts)

    @property
    def scratch(self) -> int:
        """Scratch bytes of a part without sums."""
        return 0

    def pack(self, code: Code, x: Any, to: Any, row: Any) -> None:
        """Round one run of one row."""
        build = code.builder
        vectors = [code.floats(x, VECTOR * index) for index in range(self.run // LANES)]
        integers, step = quantize_run(code, vectors, 127 if self.digits == 1 else 127 << SHIFT)
        digits = _digits(code, integers, self.digits)
        line = build.add(to, build.mul(row, code.word(self.digits * self.run)))
        for index, digit in enumerate(digits):
            code.store(digit, line, self.run * index)
        words_of = build.add(to, build.shl(row, code.word(2)))
        code.store(step, words_of, self.steps)
        summed = [integers]
        if self.digits > 1:
            first = build.sext(digits[0], integers.type)
            rest = build.sub(integers, build.shl(first, ir.Constant(integers.type, [SHIFT] * self.run)))
            summed = [first, rest]
        for part in range(self.parts):
            for index, values in enumerate(summed):
                total = build.mul(self._sum(code, values, part), ir.Constant(I32, -self.kind.zero))
                code.store(total, words_of, self.starts + 4 * self.rows * (self.parts * index + part))
            if self.kind.minima is not None:
                total = build.fmul(build.sitofp(self._sum(code, integers, part), F32), step)
                code.store(build.fneg(total), words_of, self.sums + 4 * self.rows * part)

    def _sum(self, code: Code, values: Any, part: int) -> Any:
        """The sum of a part of a run."""
        each = self.run // self.parts
        return _integer_sum(code, _part(code, values, each * part, each))


class _Block:
    """The codes and scales of a panel at one element, and at those after it in the same block."""

    def __init__(self, code: Code, stored: WeightRows, panel: Any, element: Any) -> None:
        build, self.code, form = code.builder, code, grouping(stored.name)
        number = build.lshr(element, code.word(LENGTH.bit_length() - 1))
        within = build.and_(element, code.word(LENGTH - 1))
        block = build.add(panel, build.mul(number, code.word(COLUMNS * stored.size)))
        group = build.lshr(within, code.word(form.group.bit_length() - 1))
        self.bits = form.bits
        self.factors = build.add(block, build.mul(group, code.word(4 * COLUMNS)))
        self.minima_at = 4 * COLUMNS * (LENGTH // form.group)
        codes_at = COLUMNS * (stored.size - LENGTH * form.bits // 8)
        place = build.mul(within, code.word(COLUMNS * form.bits // 8))
        self.codes = build.add(build.add(block, code.word(codes_at)), place)

    def words(self, quad: int) -> list[Vector]:
        """Four codes of each row, which 4 bits of a byte hold for both halves of the rows."""
        offset = VECTOR * quad * self.bits // 4
        return [
            Vector(self.code, self.code.load(self.codes, INTS, offset + VECTOR * index))
            for index in range(self.bits // 4)
        ]

    def quads(self, quad: int) -> list[Any]:
        """Four codes of each row as bytes."""
        words = self.words(quad)
        if self.bits == 4:
            words = [words[0] & LOW_HALVES, words[0] >> 4 & LOW_HALVES]
        return [word.value for word in words]

    def scales(self, group: int = 0) -> list[Vector]:
        """The scales of a group."""
        return self._floats(4 * COLUMNS * group)

    def minima(self, group: int = 0) -> list[Vector]:
        """The minima of a group."""
        return self._floats(self.minima_at + 4 * COLUMNS * group)

    def _floats(self, offset: int) -> list[Vector]:
        return [self.code.floats(self.factors, offset + VECTOR * half) for half in range(VECTORS)]


class DigitPanel(Panel):
    """Codes, multiplied as they are stored with digits."""

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Go to an element; nothing is decoded."""
        self.source, self.start = source, start

    def add_run(self, at: Any, run: Any, places: list[tuple[int, int]], totals: list[Any]) -> list[Any]:
        """The sums with a run's products."""
        code, build, tile = self.code, self.code.builder, self.tile
        element = build.add(self.start, build.mul(run, code.word(tile.run)))
        block = _Block(code, self.stored, self.source, element)
        products: list[Vector] = []
        for part in range(tile.parts):
            scales = block.scales(part)
            for index, (value, (_, half)) in enumerate(zip(self._sums(at, block, part, places), places, strict=True)):
                if part:
                    products[index] = code.fma(value, scales[half], products[index])
                else:
                    products.append(value * scales[half])
        steps = [code.splat(code.load(at, F32, tile.steps + 4 * row)) for row, _ in places]
        sums = [
            code.fma(product, step, Vector(code, total))
            for product, step, total in zip(products, steps, totals, strict=True)
        ]
        for part in range(tile.parts if tile.kind.minima is not None else 0):
            minima = block.minima(part)
            for index, (row, half) in enumerate(places):
                total = code.splat(code.load(at, F32, tile.sums + 4 * (tile.rows * part + row)))
                sums[index] = code.fma(minima[half], total, sums[index])
        return [total.value for total in sums]

    def _sums(self, at: Any, block: _Block, part: int, places: list[tuple[int, int]]) -> list[Vector]:
        """The sums of a group in a run, as multiples of steps and scales."""
        code, build, tile = self.code, self.code.builder, self.tile

        def starts(index: int) -> list[Any]:
            offset = tile.starts + 4 * tile.rows * (tile.parts * index + part)
            return [code.splat(code.load(at, I32, offset + 4 * row)).value for row, _ in places]

        def add(digit: int, found: list[Any]) -> list[Any]:
            each = tile.run // QUAD // tile.parts
            for quad in range(each * part, each * (part + 1)):
                columns = block.quads(quad)
                for index, (row, half) in enumerate(places):
                    offset = tile.run * (tile.digits * row + digit) + QUAD * quad
                    elements = code.splat(code.load(at, I32, offset)).value
                    found[index] = dot4_vnni(code, found[index], columns[half], elements)
            return found

        first = [Vector(code, value).as_float() for value in add(0, starts(0))]
        if tile.digits == 1:
            return first
        rest = [build.shl(value, ir.Constant(INTS, [8] * LANES)) for value in add(1, [NO_INTS] * len(places))]
        rest = add(2, [build.add(value, start) for value, start in zip(rest, starts(1), strict=True)])
        weight = code.floats_of([1 << SHIFT] * LANES)
        return [code.fma(one, weight, Vector(code, other).as_float()) for one, other in zip(first, rest, strict=True)]


class GroupFloatPanel(Panel):
    """Codes decoded to f32: [element, COLUMNS]."""

    def decode(self, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any) -> None:
        """Elements from `start`."""
        code, build, form = self.code, self.code.builder, grouping(self.stored.name)
        step, zero = min(form.group, RUN), codes()[self.stored.name].zero
        values = [float(value - zero) for value in range(1 << 4)]
        with code.loop(code.word(0), depth, step) as element:
            block = _Block(code, self.stored, source, build.add(start, element))
            target = build.add(self.elements, build.mul(element, code.word(4 * COLUMNS)))
            scales, minima = block.scales(), block.minima() if form.minima else None
            for quad in range(step // QUAD):
                words = block.words(quad)
                for index in range(QUAD):
                    for half, scale in enumerate(scales):
                        if form.bits == 4:
                            integer = code.table(words[0] >> 8 * index + 4 * half, values)
                        else:
                            integer = (words[half] >> 8 * index & 255).as_float() - float(zero)
                        value = integer * scale
                        value = value if minima is None else value - minima[half]
                        code.store(value.value, target, VECTOR * (VECTORS * (QUAD * quad + index) + half))


def selected() -> bool:
    """Whether weights are packed in panels on this processor."""
    return PROMPTS.selected() == BLOCKS.selected() == VARIANT


def tile_for(name: str, tokens: int, digits: int) -> DigitTile:
    """The tile of so many rows of activations."""
    return DigitTile(-(-tokens // -(-tokens // MAX_ROWS)), name, digits)


@process_cache
def group_gemm(name: str, tile: DigitTile, activation: int | None = None) -> EmittedKernel:
    """As `packed_gemm.packed_gemm`, for a weight in panels; `activation`: of `epilogue.EMITTED`."""
    make_panel = functools.partial(panel_of_part, DigitPanel, tile, WeightRows(name))
    return panel_gemm(f"{name}_panels_{tile.digits}x{tile.rows}_{activation}", make_panel, activation)
