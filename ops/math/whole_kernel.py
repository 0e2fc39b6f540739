"""Products of whole numbers: blocks with activations as numbers of one or three digits of 8 bits, where the processor multiplies bytes.

One digit rounds activations as llama.cpp does. Three have f32's precision next to the largest of 32 neighbours, and still multiply 64 bytes
at a time. The elements that the blocks of a step meet are a record: their digits, 64 bytes for each vector of codes, the highest first; for each
sum of products the sixteen whole numbers ``-zero * sum`` that it starts from; for each scale of the blocks the step of its elements; and for each
minimum the sum of their values. Records behind the end of a row are filled up with zeros.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ...runtime.emit import EmittedKernel
from ...runtime.paths import BLOCKS
from ...runtime.record import dataclass
from ...runtime.vector import F32, I8, I32, LANES, Code, Vector, vector_type
from ..quants.products import Block, Codes, Numbers, build_mask, codes
from .rows_kernel import Stored, smaller, spread, sum_of, times, words

RUN = 32
"""Neighbours that are rounded with one step."""
VECTOR = 64
INTS, BYTES = vector_type(I32), vector_type(I8, VECTOR)
NO_INTS, NO_FLOATS = ir.Constant(INTS, [0] * LANES), ir.Constant(vector_type(F32), [0.0] * LANES)


def available(name: str) -> bool:
    """Whether rows of the type are multiplied as whole numbers here."""
    return name in codes() and BLOCKS.taken() == "VNNI"


@dataclass(frozen=True)
class Record:
    """Where things are in the records of a type, in bytes.

    Attributes:
        elements: of a record.
        groups: scales that they meet.
        starts, steps, sums: offsets.
        nbytes: of a record, whole lines.
    """

    kind: Codes
    digits: int
    elements: int
    groups: int
    starts: int
    steps: int
    sums: int
    nbytes: int


@functools.cache
def record(name: str, digits: int) -> Record:
    """The records of a type."""
    kind = codes()[name]
    elements = kind.blocks * Stored(name).length
    groups, starts = elements // kind.group, digits * elements
    steps = starts + (VECTOR * len(kind.order) if kind.zero else 0)
    sums = steps + 4 * groups
    end = sums + (4 * groups if kind.minima is not None else 0)
    return Record(kind, digits, elements, groups, starts, steps, sums, -(-end // VECTOR) * VECTOR)


def rounded_nbytes(name: str, length: int, digits: int) -> int:
    """Bytes of a row of digits."""
    made = record(name, digits)
    return -(-length // made.elements) * made.nbytes


def _dot(code: Code, start: Any, unsigned: Any, signed: Any) -> Any:
    """Sixteen sums of four products of bytes, added to `start`."""
    one, other = (code.builder.bitcast(value, INTS) for value in (unsigned, signed))
    return code.call("llvm.x86.avx512.vpdpbusd.512", INTS, start, one, other)


class Whole:
    """Products of the whole numbers of blocks with rows of digits; as `rows_kernel.Floats`."""

    digits = 1

    def __init__(self, code: Code, stored: Stored, xs: list[Any], length: Any, streams: int) -> None:
        self.code, self.stored, self.xs, self.length = code, stored, xs, length
        self.record = record(stored.name, self.digits)
        self.kind = self.record.kind
        self.chains = min(2 if streams * len(xs) == 1 else 1, len(self.kind.order))
        self.sums = [[[code.variable(NO_FLOATS) for _ in range(self.chains)] for _ in xs] for _ in range(streams)]
        self.none = ir.Constant(vector_type(F32, self.record.groups), [0.0] * self.record.groups)
        self.minima = [[code.variable(self.none) for _ in xs] if self.kind.minima is not None else [] for _ in range(streams)]

    def rows(self, addresses: list[Any]) -> list[list[Any]]:
        """The products of rows of blocks at some addresses, of each with every row of activations."""
        code, build = self.code, self.code.builder
        for place in (place for stream in self.sums for places in stream for place in places):
            build.store(NO_FLOATS, place)
        for place in (place for places in self.minima for place in places):
            build.store(self.none, place)
        count, size = self.kind.blocks, self.stored.size
        blocks = build.sdiv(self.length, code.word(self.stored.length))
        whole = build.sdiv(blocks, code.word(count))
        with code.loop(code.word(0), whole) as step:
            first = build.mul(step, code.word(count * size))
            self._step(addresses, [build.add(first, code.word(index * size)) for index in range(count)], step)
        if count > 1:
            done, last = build.mul(whole, code.word(count)), build.sub(blocks, code.word(1))
            with build.if_then(build.icmp_signed("<", done, blocks)):
                places = [smaller(code, build.add(done, code.word(index)), last) for index in range(count)]
                self._step(addresses, [build.mul(place, code.word(size)) for place in places], whole)
        return [self._totals(stream) for stream in range(len(addresses))]

    def _step(self, addresses: list[Any], offsets: list[Any], step: Any) -> None:
        """Add the products of the blocks at some offsets of each row with a record."""
        code, build, made = self.code, self.code.builder, self.record
        places = [build.add(x, build.mul(step, code.word(made.nbytes))) for x in self.xs]
        for stream, address in enumerate(addresses):
            blocks = [Block(code, build.add(address, offset)) for offset in offsets]
            numbers = self.kind.numbers(blocks)
            minima = self.kind.minima(blocks) if self.kind.minima is not None else None
            for t, place in enumerate(places):
                scales = build.fmul(numbers.scales, code.load(place, numbers.scales.type, made.steps))
                for index in range(len(self.kind.order)):
                    product = build.sitofp(self._product(numbers, index, place), vector_type(F32))
                    total = self.sums[stream][t][index % self.chains]
                    build.store(times(code, product, self._spread(scales, index), build.load(total)), total)
                if minima is not None:
                    total = self.minima[stream][t]
                    build.store(times(code, minima, code.load(place, minima.type, made.sums), build.load(total)), total)

    def _product(self, numbers: Numbers, index: int, place: Any) -> Any:
        """One of the sums of products of a record: sixteen whole numbers."""
        code, build, made = self.code, self.code.builder, self.record
        first = sum(len(vectors) for vectors in self.kind.order[:index])
        total = code.load(place, INTS, made.starts + VECTOR * index) if self.kind.zero else NO_INTS
        for digit in reversed(range(self.digits)):
            shift = 8 * (self.digits - 1 - digit)
            found = NO_INTS if shift else total
            for number, vector in enumerate(numbers.codes[index], first):
                found = _dot(code, found, vector.value, code.load(place, BYTES, digit * made.elements + VECTOR * number))
            total = build.add(total, build.shl(found, ir.Constant(INTS, [shift] * LANES))) if shift else found
        return total

    def _spread(self, scales: Any, index: int) -> Any:
        """The scale of each lane of a sum."""
        (vector, *_), group = self.kind.order[index], self.kind.group
        each = VECTOR // len(vector)
        lanes = [(vector[4 * lane // each] + 4 * lane % each) // group for lane in range(LANES)]
        return self.code.builder.shuffle_vector(scales, scales, build_mask(lanes))

    def _totals(self, stream: int) -> list[Any]:
        build = self.code.builder
        found = []
        for places in self.sums[stream]:
            total = build.load(places[0])
            for place in places[1:]:
                total = build.fadd(total, build.load(place))
            found.append(sum_of(self.code, total))
        if not self.minima[stream]:
            return found
        return [build.fsub(total, sum_of(self.code, build.load(place))) for total, place in zip(found, self.minima[stream], strict=True)]


class Digits(Whole):
    """Products with rows of three digits."""

    digits = 3


def _greatest(made: Record) -> int:
    """The largest magnitude of rounded numbers: products with codes that are added up stay below 31 bits."""
    if made.digits == 1:
        return 127
    products = 4 * max(map(len, made.kind.order))
    return max(127 << bits for bits in range(8, 17) if (127 << bits) * products * made.kind.top < 1 << 31)


@functools.cache
def rounding(name: str, digits: int) -> EmittedKernel:
    """Makes rows of digits for a type of rows of f32: from, to, rows, elements of a row, bytes of a row of digits."""
    made = record(name, digits)
    most = _greatest(made)

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length, row_bytes = words(code, arguments, 5)
        steps = builder.sdiv(builder.add(length, code.word(made.elements - 1)), code.word(made.elements))
        first, last = spread(code, builder.mul(count, steps), part, parts)
        with code.loop(first, last) as number:
            row, step = builder.sdiv(number, steps), builder.srem(number, steps)
            x = builder.add(source, builder.mul(row, builder.shl(length, code.word(2))))
            place = builder.add(builder.add(target, builder.mul(row, row_bytes)), builder.mul(step, code.word(made.nbytes)))
            start = builder.mul(step, code.word(made.elements))
            _fill(code, made, [_run(code, x, builder.add(start, code.word(run)), length, most) for run in range(0, made.elements, RUN)], place)

    return EmittedKernel(f"rounding_{name}_{digits}", write)


def _run(code: Code, x: Any, element: Any, length: Any, most: int) -> tuple[Any, Any]:
    """A run of a row as `rounded` has it; zeros behind its end."""
    build = code.builder
    inside = build.icmp_signed("<", element, length)
    at = build.add(x, build.shl(smaller(code, element, build.sub(length, code.word(RUN))), code.word(2)))
    numbers, step = rounded(code, [code.floats(at, 64 * half) for half in range(2)], most)
    return build.select(inside, numbers, ir.Constant(numbers.type, [0] * RUN)), step


def _fill(code: Code, made: Record, runs: list[tuple[Any, Any]], place: Any) -> None:
    """Write a record of some runs."""
    build, kind = code.builder, made.kind
    digits = [_digits(code, numbers, made.digits) for numbers, _ in runs]
    quads = [_quads(code, numbers) for numbers, _ in runs]
    at = 0
    for index, vectors in enumerate(kind.order):
        starts: dict[int, Any] = {}
        for vector in vectors:
            each = VECTOR // len(vector)
            for position, first in enumerate(vector):
                run, offset = divmod(first, RUN)
                for digit, held in enumerate(digits[run]):
                    code.store(_part(code, held, offset, each), place, digit * made.elements + at + each * position)
                four = _part(code, quads[run], offset // 4, each // 4)
                starts[position] = four if position not in starts else build.add(starts[position], four)
            at += VECTOR
        if kind.zero:
            for position, four in starts.items():
                lanes = four.type.count
                taken = build.mul(four, ir.Constant(four.type, [-kind.zero] * lanes))
                code.store(taken, place, made.starts + VECTOR * index + 4 * position * lanes)
    for group in range(made.groups):
        run, offset = divmod(group * kind.group, RUN)
        code.store(runs[run][1], place, made.steps + 4 * group)
        if kind.minima is not None:
            total = _whole_sum(code, _part(code, quads[run], offset // 4, kind.group // 4))
            code.store(build.fmul(build.sitofp(total, F32), runs[run][1]), place, made.sums + 4 * group)


def _digits(code: Code, numbers: Any, count: int) -> list[Any]:
    """Whole numbers as bytes, the highest first."""
    build = code.builder
    found: list[Any] = []
    for _ in range(count):
        lowest = build.trunc(numbers, vector_type(I8, RUN))
        found.insert(0, lowest)
        numbers = build.ashr(build.sub(numbers, build.sext(lowest, numbers.type)), ir.Constant(numbers.type, [8] * RUN))
    return found


def _part(code: Code, value: Any, start: int, count: int) -> Any:
    return code.builder.shuffle_vector(value, value, build_mask(list(range(start, start + count))))


def _quads(code: Code, numbers: Any) -> Any:
    """Sums of four neighbours of 32 whole numbers."""
    build = code.builder
    parts = [build.shuffle_vector(numbers, numbers, build_mask([4 * lane + index for lane in range(8)])) for index in range(4)]
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
            numbers, step = rounded(code, [code.floats(builder.add(source, offset), 64 * half) for half in range(2)], 127)
            for half in range(2):
                order = ir.Constant(vector_type(I32), list(range(16 * half, 16 * half + 16)))
                part_of = Vector(code, builder.shuffle_vector(numbers, numbers, order)).as_float()
                code.store((part_of * code.splat(step)).value, builder.add(target, offset), 64 * half)

    return EmittedKernel("rounded_floats", write)


def rounded(code: Code, halves: list[Vector], most: int) -> tuple[Any, Any]:
    """Two vectors as whole numbers of a common step, i32 [32], and the step: the largest magnitude through `most`, NaN where one is not finite."""
    build = code.builder
    kind = vector_type(F32)
    patterns = [build.bitcast(code.call("llvm.fabs.v16f32", kind, half.value), INTS) for half in halves]
    pattern = code.call("llvm.smax.v16i32", INTS, *patterns)  # as whole numbers, NaN is above infinity
    greatest = build.bitcast(code.call("llvm.vector.reduce.smax.v16i32", I32, pattern), F32)
    step = build.fdiv(greatest, ir.Constant(F32, float(most)))
    empty = build.fcmp_ordered("==", step, ir.Constant(F32, 0.0))
    inverse = code.splat(build.select(empty, ir.Constant(F32, 0.0), build.fdiv(ir.Constant(F32, 1.0), step)))
    whole = [build.fptosi(code.call("llvm.nearbyint.v16f32", kind, (half * inverse).value), INTS) for half in halves]
    return build.shuffle_vector(*whole, build_mask(list(range(RUN)))), build.fadd(step, build.fsub(greatest, greatest))


def _whole_sum(code: Code, values: Any) -> Any:
    return code.call(f"llvm.vector.reduce.add.v{values.type.count}i32", I32, values)


__all__ = ["Digits", "Whole", "available", "rounded_floats", "rounded_nbytes", "rounding"]
