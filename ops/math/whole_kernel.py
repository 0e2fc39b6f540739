"""Products of whole numbers: blocks with activations as numbers of one or three digits of 8 bits, where the processor multiplies bytes.

One digit rounds activations as llama.cpp does. Three have f32's precision next to the largest of 32 neighbours, and still multiply 32 bytes
at a time. A row of n elements has its digits, n bytes of each, the highest first; for each four elements the whole number
``-zero * sum`` that their product with codes starts from; a step for each 32; and sums of values for each 16 or 32, which minima of blocks
are multiplied with.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ...runtime.emit import EmittedKernel, features
from ...runtime.vector import F32, I8, I32, LANES, Code, Vector, vector_type
from ..quants.products import Block, Run, codes
from .rows_kernel import EIGHT, Minima, Stored, spread, sum_of_eight, words

RUN = 32
INTS, BYTES = vector_type(I32, 8), vector_type(I8, RUN)
NOTHING = ir.Constant(EIGHT, [0.0] * 8)


def available(name: str) -> bool:
    """Whether rows of the type are multiplied as whole numbers here."""
    return name in codes() and {"avx512vnni", "avx512vl", "fma", "f16c"} <= features()


def rounded_nbytes(length: int, digits: int) -> int:
    """Bytes of a row of digits."""
    return (digits + 1) * length + length // 8 + length // 4


def _places(code: Code, length: Any, digits: int) -> tuple[Any, Any, Any]:
    """Where in a row the starting numbers, the steps and the sums are."""
    build = code.builder
    starts, steps = build.mul(length, code.word(digits)), build.mul(length, code.word(digits + 1))
    return starts, steps, build.add(steps, build.lshr(length, code.word(3)))


def _dot(code: Code, start: Any, unsigned: Any, signed: Any) -> Any:
    """Eight sums of four products of bytes, added to `start`."""
    one, other = (code.builder.bitcast(value, INTS) for value in (unsigned, signed))
    return code.call("llvm.x86.avx512.vpdpbusd.256", INTS, start, one, other)


class Whole:
    """Products of the whole numbers of blocks with rows of digits; as `rows_kernel.Floats`."""

    digits = 1

    def __init__(self, code: Code, stored: Stored, xs: list[Any], length: Any) -> None:
        self.code, self.stored, self.xs, self.length = code, stored, xs, length
        self.kind = codes()[stored.name]
        self.starts, self.steps, sums = ([code.builder.add(x, place) for x in xs] for place in _places(code, length, self.digits))
        self.chains = 4 if len(xs) == 1 else 2
        self.totals_of = [[code.variable(NOTHING) for _ in range(self.chains)] for _ in xs]
        self.minima = Minima(code, stored, sums)

    def reset(self) -> None:
        """Begin a row."""
        for place in (place for places in self.totals_of for place in places):
            self.code.builder.store(NOTHING, place)
        self.minima.reset()

    def block(self, address: Any, element: Any) -> None:
        """Add the products of a block whose first element is at a place of the rows."""
        code, build = self.code, self.code.builder
        block = Block(code, address)
        for index, run in enumerate(self.kind.runs(block)):
            for t in range(len(self.xs)):
                product = build.sitofp(self._product(run, t, element, RUN * index), EIGHT)
                place = self.totals_of[t][index % self.chains]
                build.store(code.call("llvm.fma.v8f32", EIGHT, product, self._scale(run, t, element, index), build.load(place)), place)
        self.minima.block(block, element)

    def _product(self, run: Run, t: int, element: Any, offset: int) -> Any:
        """Eight sums of four products of a run."""
        code, build = self.code, self.code.builder
        zeros = ir.Constant(INTS, [0] * 8)
        total = code.load(build.add(self.starts[t], element), INTS, offset) if self.kind.zero else zeros
        for digit in reversed(range(self.digits)):
            place = build.add(build.add(self.xs[t], element), build.mul(self.length, code.word(digit)))
            shift = 8 * (self.digits - 1 - digit)
            found = _dot(code, zeros if shift else total, run.codes.value, code.load(place, BYTES, offset))
            total = build.add(total, build.shl(found, ir.Constant(INTS, [shift] * 8))) if shift else found
        return total

    def _scale(self, run: Run, t: int, element: Any, index: int) -> Any:
        """The scale of a run times the step of a row, in eight lanes."""
        code, build = self.code, self.code.builder
        order = ir.Constant(vector_type(I32, 8), [run.first] * 4 + [run.second] * 4)
        scale = build.shuffle_vector(run.scales.value, run.scales.value, order)
        step = code.load(build.add(self.steps[t], build.lshr(element, code.word(3))), F32, 4 * index)
        return build.fmul(scale, eight(code, step))

    def totals(self, address: Any, blocks: Any, length: Any) -> list[Any]:
        """The sums."""
        build = self.code.builder
        found = []
        for places in self.totals_of:
            held = [build.load(place) for place in places]
            while len(held) > 1:
                held = [build.fadd(one, other) for one, other in zip(held[::2], held[1::2], strict=True)]
            found.append(sum_of_eight(self.code, held[0]))
        return self.minima.subtracted(found)


class Digits(Whole):
    """Products with rows of three digits."""

    digits = 3


def eight(code: Code, value: Any) -> Any:
    """A number in eight lanes."""
    build = code.builder
    undefined = ir.Constant(EIGHT, ir.Undefined)
    one = build.insert_element(undefined, value, ir.Constant(I32, 0))
    return build.shuffle_vector(one, undefined, ir.Constant(vector_type(I32, 8), [0] * 8))


@functools.cache
def rounding(name: str, digits: int) -> EmittedKernel:
    """Makes rows of digits for a type of rows of f32: from, to, rows, elements of a row, bytes of a row of digits."""
    zero, group = codes()[name].zero, codes()[name].group
    most = 127 if digits == 1 else 127 << (14 if zero > 63 else 16)  # four products with codes stay below 31 bits

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length, row_bytes = words(code, arguments, 5)
        first, last = spread(code, count, part, parts)
        with code.loop(first, last) as row:
            x = builder.add(source, builder.mul(row, builder.shl(length, code.word(2))))
            to = builder.add(target, builder.mul(row, row_bytes))
            starts, steps, sums = (builder.add(to, place) for place in _places(code, length, digits))
            with code.loop(code.word(0), length, RUN) as element:
                halves = [code.floats(builder.add(x, builder.shl(element, code.word(2))), 64 * half) for half in range(2)]
                numbers, step = _rounded(code, halves, most)
                code.store(step, builder.add(steps, builder.lshr(element, code.word(3))))
                quads = _quads(code, numbers)
                for digit in reversed(range(digits)):
                    lowest = builder.trunc(numbers, BYTES)
                    code.store(lowest, builder.add(builder.add(to, element), builder.mul(length, code.word(digit))))
                    rest = builder.sub(numbers, builder.sext(lowest, numbers.type))
                    numbers = builder.ashr(rest, ir.Constant(numbers.type, [8] * RUN))
                code.store(builder.mul(quads, ir.Constant(INTS, [-zero] * 8)), builder.add(starts, element))
                for index in range(RUN // group):
                    total = _whole_sum(code, quads, list(range(group // 4 * index, group // 4 * (index + 1))))
                    value = builder.fmul(builder.sitofp(total, F32), step)
                    code.store(value, builder.add(sums, builder.lshr(element, code.word(2 if group == 16 else 3))), 4 * index)

    return EmittedKernel(f"rounding_{name}_{digits}", write)


def _quads(code: Code, numbers: Any) -> Any:
    """Sums of four neighbours of 32 whole numbers."""
    build = code.builder
    parts = [build.shuffle_vector(numbers, numbers, ir.Constant(vector_type(I32, 8), [4 * lane + index for lane in range(8)])) for index in range(4)]
    return build.add(build.add(parts[0], parts[1]), build.add(parts[2], parts[3]))


@functools.cache
def rounded_floats() -> EmittedKernel:
    """Gives rows of f32 the values that `rounding` leaves of them, where they become f32 again: from, to, rows, elements of a row."""

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length = words(code, arguments, 4)
        first, last = spread(code, builder.sdiv(builder.mul(count, length), code.word(RUN)), part, parts)
        with code.loop(first, last) as run:
            offset = builder.mul(run, code.word(4 * RUN))
            numbers, step = _rounded(code, [code.floats(builder.add(source, offset), 64 * half) for half in range(2)], 127)
            for half in range(2):
                order = ir.Constant(vector_type(I32), list(range(16 * half, 16 * half + 16)))
                part_of = Vector(code, builder.shuffle_vector(numbers, numbers, order)).as_float()
                code.store((part_of * code.splat(step)).value, builder.add(target, offset), 64 * half)

    return EmittedKernel("rounded_floats", write)


def _rounded(code: Code, halves: list[Vector], most: int) -> tuple[Any, Any]:
    """Two vectors as whole numbers of a common step, i32 [32], and the step: the largest magnitude through `most`, NaN where one is not finite."""
    build = code.builder
    kind = vector_type(F32)
    magnitudes = [code.call("llvm.fabs.v16f32", kind, half.value) for half in halves]
    greatest = build.select(build.fcmp_ordered(">", magnitudes[0], magnitudes[1]), magnitudes[0], magnitudes[1])
    for half in (8, 4, 2, 1):
        order = [*range(half, 2 * half), *[0] * (LANES - half)]
        other = build.shuffle_vector(greatest, greatest, ir.Constant(vector_type(I32), order))
        greatest = build.select(build.fcmp_ordered(">", other, greatest), other, greatest)
    step = build.fdiv(build.extract_element(greatest, ir.Constant(I32, 0)), ir.Constant(F32, float(most)))
    empty = build.fcmp_ordered("==", step, ir.Constant(F32, 0.0))
    inverse = code.splat(build.select(empty, ir.Constant(F32, 0.0), build.fdiv(ir.Constant(F32, 1.0), step)))
    whole = [build.fptosi(code.call("llvm.nearbyint.v16f32", kind, (half * inverse).value), vector_type(I32)) for half in halves]
    nothing = ((halves[0] * 0) + (halves[1] * 0)).sum()
    return build.shuffle_vector(*whole, ir.Constant(vector_type(I32, RUN), list(range(RUN)))), build.fadd(step, nothing)


def _whole_sum(code: Code, values: Any, lanes: list[int]) -> Any:
    build = code.builder
    total = build.extract_element(values, ir.Constant(I32, lanes[0]))
    for lane in lanes[1:]:
        total = build.add(total, build.extract_element(values, ir.Constant(I32, lane)))
    return total


__all__ = ["Digits", "Whole", "available", "rounded_floats", "rounded_nbytes", "rounding"]
