"""Products of whole numbers: blocks with activations that are rounded to 8 bits, as far as the processor multiplies bytes.

A rounded row of n elements has n bytes q; for each four of them the whole number ``-zero * sum(q)`` that their product with codes starts
from; a step for each 32; and sums of rounded values for each 16 or 32, which minima of blocks are multiplied with.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ...runtime.emit import EmittedKernel, features
from ...runtime.vector import F32, I8, I32, LANES, Code, Vector, vector_type
from ..quants.products import Block, codes
from .rows_kernel import EIGHT, Minima, Stored, spread, sum_of_eight, words

RUN = 32
INTS, BYTES = vector_type(I32, 8), vector_type(I8, RUN)
NOTHING = ir.Constant(EIGHT, [0.0] * 8)


def available(name: str) -> bool:
    """Whether rows of the type are multiplied as whole numbers here."""
    return name in codes() and {"avx512vnni", "avx512vl", "fma", "f16c"} <= features()


def rounded_nbytes(length: int) -> int:
    """Bytes of a rounded row."""
    return 2 * length + length // 8 + length // 4


def _places(code: Code, length: Any) -> tuple[Any, Any, Any]:
    """Where in a rounded row the starting numbers, the steps and the sums are."""
    build = code.builder
    steps = build.shl(length, code.word(1))
    return length, steps, build.add(steps, build.lshr(length, code.word(3)))


def _dot(code: Code, start: Any, unsigned: Any, signed: Any) -> Any:
    """Eight sums of four products of bytes, added to `start`."""
    one, other = (code.builder.bitcast(value, INTS) for value in (unsigned, signed))
    return code.call("llvm.x86.avx512.vpdpbusd.256", INTS, start, one, other)


def _fma(code: Code, a: Any, b: Any, c: Any) -> Any:
    return code.call("llvm.fma.v8f32", EIGHT, a, b, c)


def _all(code: Code, value: Any) -> Any:
    """A number in eight lanes."""
    held = code.splat(value).value
    return code.builder.shuffle_vector(held, held, ir.Constant(vector_type(I32, 8), [0] * 8))


class Whole:
    """Products of the whole numbers of blocks with rounded rows; as `rows_kernel.Floats`."""

    def __init__(self, code: Code, stored: Stored, xs: list[Any], length: Any) -> None:
        self.code, self.stored, self.xs = code, stored, xs
        self.kind = codes()[stored.name]
        self.starts, self.steps, self.sums = ([code.builder.add(x, place) for x in xs] for place in _places(code, length))
        self.chains = 2
        self.totals_of = [[code.variable(NOTHING) for _ in range(self.chains)] for _ in xs]
        self.minima = Minima(code, stored, self.sums)

    def reset(self) -> None:
        """Begin a row."""
        build = self.code.builder
        for places in self.totals_of:
            for place in places:
                build.store(NOTHING, place)
        self.minima.reset()

    def block(self, address: Any, element: Any) -> None:
        """Add the products of a block whose first element is at a place of the rows."""
        code, build = self.code, self.code.builder
        block = Block(code, address)
        for index, run in enumerate(self.kind.runs(block)):
            for t, x in enumerate(self.xs):
                numbers = code.load(build.add(x, element), BYTES, RUN * index)
                start = code.load(build.add(self.starts[t], element), INTS, RUN * index) if self.kind.zero else ir.Constant(INTS, [0] * 8)
                product = build.sitofp(_dot(code, start, run.codes.value, numbers), EIGHT)
                step = _all(code, code.load(build.add(self.steps[t], build.lshr(element, code.word(3))), F32, 4 * index))
                place = self.totals_of[t][index % self.chains]
                build.store(_fma(code, product, build.fmul(run.scale, step), build.load(place)), place)
        self.minima.block(block, element)

    def totals(self, address: Any, blocks: Any, length: Any) -> list[Any]:
        """The sums."""
        build = self.code.builder
        totals = [sum_of_eight(self.code, build.fadd(*map(build.load, places))) for places in self.totals_of]
        return self.minima.subtracted(totals)


@functools.cache
def rounding(zero: int, group: int) -> EmittedKernel:
    """Rounds rows of f32 for types with that zero and that group of minima: from, to, rows, elements of a row, bytes of a rounded row."""

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length, row_bytes = words(code, arguments, 5)
        first, last = spread(code, count, part, parts)
        with code.loop(first, last) as row:
            x = builder.add(source, builder.mul(row, builder.shl(length, code.word(2))))
            to = builder.add(target, builder.mul(row, row_bytes))
            starts, steps, sums = (builder.add(to, place) for place in _places(code, length))
            with code.loop(code.word(0), length, RUN) as element:
                halves = [code.floats(builder.add(x, builder.shl(element, code.word(2))), 64 * half) for half in range(2)]
                numbers, step = _rounded(code, halves)
                code.store(step, builder.add(steps, builder.lshr(element, code.word(3))))
                packed = builder.trunc(numbers, BYTES)
                code.store(packed, builder.add(to, element))
                zeros, unit = ir.Constant(INTS, [0] * 8), ir.Constant(BYTES, [1] * RUN)
                quads = _dot(code, zeros, unit, packed)
                code.store(builder.mul(quads, ir.Constant(INTS, [-zero] * 8)), builder.add(starts, element))
                for index in range(RUN // group):
                    total = _whole_sum(code, quads, list(range(group // 4 * index, group // 4 * (index + 1))))
                    value = builder.fmul(builder.sitofp(total, F32), step)
                    code.store(value, builder.add(sums, builder.lshr(element, code.word(2 if group == 16 else 3))), 4 * index)

    return EmittedKernel(f"rounding_{zero}_{group}", write)


@functools.cache
def rounded_floats() -> EmittedKernel:
    """Gives rows of f32 the values that `rounding` leaves of them, where they become f32 again: from, to, rows, elements of a row."""

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length = words(code, arguments, 4)
        first, last = spread(code, builder.sdiv(builder.mul(count, length), code.word(RUN)), part, parts)
        with code.loop(first, last) as run:
            offset = builder.mul(run, code.word(4 * RUN))
            numbers, step = _rounded(code, [code.floats(builder.add(source, offset), 64 * half) for half in range(2)])
            for half in range(2):
                order = ir.Constant(vector_type(I32), list(range(16 * half, 16 * half + 16)))
                part_of = Vector(code, builder.shuffle_vector(numbers, numbers, order)).as_float()
                code.store((part_of * code.splat(step)).value, builder.add(target, offset), 64 * half)

    return EmittedKernel("rounded_floats", write)


def _rounded(code: Code, halves: list[Vector]) -> tuple[Any, Any]:
    """Two vectors as whole numbers of a common step, i32 [32], and the step: the largest magnitude through 127."""
    build = code.builder
    kind = vector_type(F32)
    magnitudes = [code.call("llvm.fabs.v16f32", kind, half.value) for half in halves]
    greatest = build.select(build.fcmp_ordered(">", magnitudes[0], magnitudes[1]), magnitudes[0], magnitudes[1])
    for half in (8, 4, 2, 1):
        order = [*range(half, 2 * half), *[0] * (LANES - half)]
        other = build.shuffle_vector(greatest, greatest, ir.Constant(vector_type(I32), order))
        greatest = build.select(build.fcmp_ordered(">", other, greatest), other, greatest)
    step = build.fdiv(build.extract_element(greatest, ir.Constant(I32, 0)), ir.Constant(F32, 127.0))
    empty = build.fcmp_ordered("==", step, ir.Constant(F32, 0.0))
    inverse = code.splat(build.select(empty, ir.Constant(F32, 0.0), build.fdiv(ir.Constant(F32, 1.0), step)))
    whole = [build.fptosi(code.call("llvm.nearbyint.v16f32", kind, (half * inverse).value), vector_type(I32)) for half in halves]
    return build.shuffle_vector(*whole, ir.Constant(vector_type(I32, RUN), list(range(RUN)))), step


def _whole_sum(code: Code, values: Any, lanes: list[int]) -> Any:
    build = code.builder
    total = build.extract_element(values, ir.Constant(I32, lanes[0]))
    for lane in lanes[1:]:
        total = build.add(total, build.extract_element(values, ir.Constant(I32, lane)))
    return total


__all__ = ["Whole", "available", "rounded_floats", "rounded_nbytes", "rounding"]
