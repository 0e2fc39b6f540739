"""GEMV by dot4: quantized blocks times activations of one or three int8 digits (VNNI).

One digit rounds activations to int8 as llama.cpp does. Three digits keep f32 precision relative to the largest of 32
elements. Activations are stored as records, one per step of blocks: digits, most significant first, 64 bytes for each
vector of codes; for each sum of products its initial values ``-zero * sum``; for each scale of the blocks the
quantization step of its activations; for each minimum the sum of its activations. Records are padded with zeros.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.base.process_cache import process_cache
from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.dot_product import PAIR_LIMIT, dot4_avx_vnni, dot4_vnni
from ....runtime.simd.llvm_vector import F32, I8, I32, LANES, Code, Vector, vector_type
from ...quants.llvm import Block, Codes, Numbers, build_mask, codes
from .gemv import WeightRows, horizontal_sum, minimum, multiply_add, part_range

RUN = 32
"""Elements that share one quantization step."""
VECTOR = 64
INTS, BYTES = vector_type(I32), vector_type(I8, VECTOR)
NO_INTS, NO_FLOATS = ir.Constant(INTS, [0] * LANES), ir.Constant(vector_type(F32), [0.0] * LANES)


@dataclass(frozen=True)
class Record:
    """Layout of the activation records of a weight type, in bytes.

    Attributes:
        elements: elements per record.
        groups: weight scales per record.
        lanes: the group of each sum that has an initial value; None for sums of 16 lanes.
        starts, steps, sums: offsets of the initial values, quantization steps and element sums.
        nbytes: size of a record, a multiple of 64.
    """

    kind: Codes
    digits: int
    elements: int
    groups: int
    lanes: tuple[int, ...] | None
    starts: int
    steps: int
    sums: int
    nbytes: int


@process_cache
def record_layout(name: str, digits: int, lanes: tuple[int, ...] | None = None) -> Record:
    """The record layout of a weight type."""
    kind = codes()[name]
    elements = kind.blocks * WeightRows(name).length
    groups, starts = elements // kind.group, digits * elements
    steps = starts + (VECTOR * len(kind.order) if lanes is None and kind.zero else 4 * len(lanes or ()))
    sums = steps + 4 * groups
    end = sums + (4 * groups if kind.minima is not None else 0)
    return Record(kind, digits, elements, groups, lanes, starts, steps, sums, -(-end // VECTOR) * VECTOR)


def rounded_nbytes(name: str, length: int, products: type[Int8Products]) -> int:
    """Bytes of a row of digits."""
    layout = products.layout(name)
    return -(-length // layout.elements) * layout.nbytes


def lane_groups(kind: Codes, index: int) -> list[int]:
    """The group of the four codes that each lane of a sum multiplies."""
    vector, *_ = kind.order[index]
    each = VECTOR // len(vector)
    return [(vector[4 * lane // each] + 4 * lane % each) // kind.group for lane in range(LANES)]


def max_pairs(name: str) -> int:
    """Number of sums of two products of a code and 127 that stay below 2^15; none of codes of 8 bits."""
    return PAIR_LIMIT // (2 * 127 * codes()[name].top)


class Int8Products:
    """Integer products of block codes with rows of one digit; same interface as `gemv.FloatProducts`."""

    digits = 1
    width = LANES
    """Lanes of a sum."""
    dot = staticmethod(dot4_vnni)

    @classmethod
    def layout(cls, name: str) -> Record:
        """The records of a weight type."""
        return record_layout(name, cls.digits)

    def __init__(self, code: Code, stored: WeightRows, xs: list[Any], length: Any, streams: int) -> None:
        self.code, self.stored, self.xs, self.length, self.streams = code, stored, xs, length, streams
        self.record_layout = self.layout(stored.name)
        self.kind = self.record_layout.kind
        self.chains = min(2 if streams * len(xs) == 1 else 1, len(self.kind.order))
        self.zeros = ir.Constant(vector_type(F32, self.width), None)
        self.sums = [[[code.variable(self.zeros) for _ in range(self.chains)] for _ in xs] for _ in range(streams)]
        self.none = ir.Constant(vector_type(F32, self.record_layout.groups), [0.0] * self.record_layout.groups)
        self.minima = [
            [code.variable(self.none) for _ in xs] if self.kind.minima is not None else [] for _ in range(streams)
        ]

    def rows(self, addresses: list[Any]) -> list[list[Any]]:
        """Products of the weight rows at `addresses` with every row of activations."""
        code, build = self.code, self.code.builder
        for place in (place for stream in self.sums for places in stream for place in places):
            build.store(self.zeros, place)
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
                places = [minimum(code, build.add(done, code.word(index)), last) for index in range(count)]
                self._step(addresses, [build.mul(place, code.word(size)) for place in places], whole)
        return [self._totals(stream) for stream in range(len(addresses))]

    def _step(self, addresses: list[Any], offsets: list[Any], step: Any) -> None:
        """Add the products of the blocks at `offsets` of each row with one record."""
        code, build, layout = self.code, self.code.builder, self.record_layout
        records = [build.add(x, build.mul(step, code.word(layout.nbytes))) for x in self.xs]
        for stream, address in enumerate(addresses):
            blocks = [Block(code, build.add(address, offset)) for offset in offsets]
            numbers = self.kind.numbers(blocks)
            minima = self.kind.minima(blocks) if self.kind.minima is not None else None
            for t, place in enumerate(map(self._record, records)):
                scales = build.fmul(numbers.scales, code.load(place, numbers.scales.type, layout.steps))
                self._add(numbers, scales, place, self.sums[stream][t])
                if minima is not None:
                    self._subtract(minima, code.load(place, minima.type, layout.sums), stream, t)

    def _record(self, address: Any) -> Any:
        """The address of a record that the blocks of one row of the weight meet."""
        return address

    def _add(self, numbers: Numbers, scales: Any, place: Any, totals: list[Any]) -> None:
        """Add the scaled products of blocks and the record at `place`."""
        code, build = self.code, self.code.builder
        for index in range(len(self.kind.order)):
            product = build.sitofp(self._product(numbers, index, place), vector_type(F32))
            total = totals[index % self.chains]
            build.store(multiply_add(code, product, self._spread(scales, index), build.load(total)), total)

    def _subtract(self, minima: Any, sums: Any, stream: int, t: int) -> None:
        """Subtract minima times sums of activations."""
        total, build = self.minima[stream][t], self.code.builder
        build.store(multiply_add(self.code, minima, sums, build.load(total)), total)

    def _product(self, numbers: Numbers, index: int, place: Any) -> Any:
        """One sum of products of a record: 16 int32 lanes."""
        code, build, layout = self.code, self.code.builder, self.record_layout
        first = sum(len(vectors) for vectors in self.kind.order[:index])
        total = code.load(place, INTS, layout.starts + VECTOR * index) if self.kind.zero else NO_INTS
        for digit in reversed(range(self.digits)):
            shift = 8 * (self.digits - 1 - digit)
            found = self._add_dots(
                NO_INTS if shift else total,
                [
                    (vector.value, code.load(place, BYTES, digit * layout.elements + VECTOR * number))
                    for number, vector in enumerate(numbers.codes[index], first)
                ],
            )
            total = build.add(total, build.shl(found, ir.Constant(INTS, [shift] * LANES))) if shift else found
        return total

    def _add_dots(self, total: Any, vectors: list[tuple[Any, Any]]) -> Any:
        """Add the products of codes and digits to 16 int32 lanes."""
        for unsigned, signed in vectors:
            total = self.dot(
                self.code, total, *(self.code.builder.bitcast(value, INTS) for value in (unsigned, signed))
            )
        return total

    def _spread(self, scales: Any, index: int) -> Any:
        """The scale of each lane of a sum."""
        return self.code.builder.shuffle_vector(scales, scales, build_mask(lane_groups(self.kind, index)))

    def _totals(self, stream: int) -> list[Any]:
        build = self.code.builder
        found = []
        for places in self.sums[stream]:
            total = build.load(places[0])
            for place in places[1:]:
                total = build.fadd(total, build.load(place))
            found.append(horizontal_sum(self.code, total))
        if not self.minima[stream]:
            return found
        return [
            build.fsub(total, horizontal_sum(self.code, build.load(place)))
            for total, place in zip(found, self.minima[stream], strict=True)
        ]


class ThreeDigitProducts(Int8Products):
    """Integer products with rows of three digits."""

    digits = 3


class AvxVnniInt8Products(Int8Products):
    """The same with vectors of 32 bytes."""

    dot = staticmethod(dot4_avx_vnni)


def _max_magnitude(layout: Record) -> int:
    """Largest magnitude of quantized activations for which int32 sums of products do not overflow."""
    if layout.digits == 1:
        return 127
    products = 4 * max(map(len, layout.kind.order))
    return max(127 << bits for bits in range(8, 17) if (127 << bits) * products * layout.kind.top < 1 << 31)


@process_cache
def quantize_rows(name: str, products: type[Int8Products]) -> EmittedKernel:
    """Quantizes `count` f32 rows of `length` elements to records of `row_bytes` bytes a row."""
    layout = products.layout(name)
    max_magnitude = _max_magnitude(layout)

    def write(
        builder: Any, part: Any, parts: Any, *, source: Any, target: Any, count: Any, length: Any, row_bytes: Any
    ) -> None:
        code = Code(builder)
        steps = builder.sdiv(builder.add(length, code.word(layout.elements - 1)), code.word(layout.elements))
        first, last = part_range(code, builder.mul(count, steps), part, parts)
        with code.loop(first, last) as number:
            row, step = builder.sdiv(number, steps), builder.srem(number, steps)
            x = builder.add(source, builder.mul(row, builder.shl(length, code.word(2))))
            place = builder.add(
                builder.add(target, builder.mul(row, row_bytes)), builder.mul(step, code.word(layout.nbytes))
            )
            start = builder.mul(step, code.word(layout.elements))
            _fill(
                code,
                layout,
                [
                    _run(code, x, builder.add(start, code.word(run)), length, max_magnitude)
                    for run in range(0, layout.elements, RUN)
                ],
                place,
            )

    kind = "" if layout.lanes is None else "_folded"
    return EmittedKernel(f"rounding_{name}_{layout.digits}{kind}", write)


def _run(code: Code, x: Any, element: Any, length: Any, max_magnitude: int) -> tuple[Any, Any]:
    """A quantized run of a row, zeros after the end of the row."""
    build = code.builder
    inside = build.icmp_signed("<", element, length)
    at = build.add(x, build.shl(minimum(code, element, build.sub(length, code.word(RUN))), code.word(2)))
    numbers, step = quantize_run(code, [code.floats(at, 64 * half) for half in range(2)], max_magnitude)
    return build.select(inside, numbers, ir.Constant(numbers.type, [0] * RUN)), step


def _fill(code: Code, layout: Record, runs: list[tuple[Any, Any]], place: Any) -> None:
    """Write a record of quantized runs."""
    build, kind = code.builder, layout.kind
    digits = [_digits(code, numbers, layout.digits) for numbers, _ in runs]
    quads = [_quads(code, numbers) for numbers, _ in runs]
    at = 0
    for index, vectors in enumerate(kind.order):
        starts: dict[int, Any] = {}
        for vector in vectors:
            each = VECTOR // len(vector)
            for position, first in enumerate(vector):
                run, offset = divmod(first, RUN)
                for digit, held in enumerate(digits[run]):
                    code.store(_part(code, held, offset, each), place, digit * layout.elements + at + each * position)
                four = _part(code, quads[run], offset // 4, each // 4)
                starts[position] = four if position not in starts else build.add(starts[position], four)
            at += VECTOR
        if kind.zero and layout.lanes is None:
            for position, four in starts.items():
                lanes = four.type.count
                taken = build.mul(four, ir.Constant(four.type, [-kind.zero] * lanes))
                code.store(taken, place, layout.starts + VECTOR * index + 4 * position * lanes)
    for group in range(layout.groups):
        run, offset = divmod(group * kind.group, RUN)
        code.store(runs[run][1], place, layout.steps + 4 * group)
        lanes = [lane for lane, own in enumerate(layout.lanes or ()) if own == group]
        if kind.minima is None and not lanes:
            continue
        total = _integer_sum(code, _part(code, quads[run], offset // 4, kind.group // 4))
        if kind.minima is not None:
            code.store(build.fmul(build.sitofp(total, F32), runs[run][1]), place, layout.sums + 4 * group)
        for lane in lanes:
            start = build.mul(total, ir.Constant(I32, -kind.zero)) if lane == lanes[0] else ir.Constant(I32, 0)
            code.store(start, place, layout.starts + 4 * lane)


def _digits(code: Code, numbers: Any, count: int) -> list[Any]:
    """Integers as int8 digits, most significant first."""
    build = code.builder
    found: list[Any] = []
    for _ in range(count):
        lowest = build.trunc(numbers, vector_type(I8, numbers.type.count))
        found.insert(0, lowest)
        rest = build.sub(numbers, build.sext(lowest, numbers.type))
        numbers = build.ashr(rest, ir.Constant(numbers.type, [8] * numbers.type.count))
    return found


def _part(code: Code, value: Any, start: int, count: int) -> Any:
    return code.builder.shuffle_vector(value, value, build_mask(list(range(start, start + count))))


def _quads(code: Code, numbers: Any) -> Any:
    """Sums of each four neighbours of 32 integers."""
    build = code.builder
    parts = [
        build.shuffle_vector(numbers, numbers, build_mask([4 * lane + index for lane in range(8)]))
        for index in range(4)
    ]
    return build.add(build.add(parts[0], parts[1]), build.add(parts[2], parts[3]))


@process_cache
def round_trip_rows() -> EmittedKernel:
    """Quantizes `count` f32 rows of `length` elements to int8 runs and dequantizes them again."""

    def write(builder: Any, part: Any, parts: Any, *, source: Any, target: Any, count: Any, length: Any) -> None:
        code = Code(builder)
        first, last = part_range(code, builder.sdiv(builder.mul(count, length), code.word(RUN)), part, parts)
        with code.loop(first, last) as run:
            offset = builder.mul(run, code.word(4 * RUN))
            numbers, step = quantize_run(
                code, [code.floats(builder.add(source, offset), 64 * half) for half in range(2)], 127
            )
            for half in range(2):
                order = ir.Constant(vector_type(I32), list(range(16 * half, 16 * half + 16)))
                part_of = Vector(code, builder.shuffle_vector(numbers, numbers, order)).as_float()
                code.store((part_of * code.splat(step)).value, builder.add(target, offset), 64 * half)

    return EmittedKernel("rounded_floats", write)


def quantize_run(code: Code, vectors: list[Vector], max_magnitude: int) -> tuple[Any, Any]:
    """Vectors, a power of two of them, quantized to i32 with a common step, and the step: largest magnitude /
    `max_magnitude`, NaN if an element is not finite."""
    build = code.builder
    kind = vector_type(F32)
    patterns = [build.bitcast(code.call("llvm.fabs.v16f32", kind, vector.value), INTS) for vector in vectors]
    # compared as integers, NaN is above infinity
    pattern = functools.reduce(lambda one, other: code.call("llvm.smax.v16i32", INTS, one, other), patterns)
    greatest = build.bitcast(code.call("llvm.vector.reduce.smax.v16i32", I32, pattern), F32)
    step = build.fdiv(greatest, ir.Constant(F32, float(max_magnitude)))
    empty = build.fcmp_ordered("==", step, ir.Constant(F32, 0.0))
    inverse = code.splat(build.select(empty, ir.Constant(F32, 0.0), build.fdiv(ir.Constant(F32, 1.0), step)))
    whole = [build.fptosi(code.call("llvm.nearbyint.v16f32", kind, (each * inverse).value), INTS) for each in vectors]
    while len(whole) > 1:
        order = build_mask(list(range(2 * whole[0].type.count)))
        whole = [build.shuffle_vector(one, other, order) for one, other in zip(whole[::2], whole[1::2], strict=True)]
    return whole[0], build.fadd(step, build.fsub(greatest, greatest))


def _integer_sum(code: Code, values: Any) -> Any:
    return code.call(f"llvm.vector.reduce.add.v{values.type.count}i32", I32, values)
