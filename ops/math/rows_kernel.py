"""Kernels that multiply few activations with rows of any stored type, made of the generators in ops/quants/products.

The numbers of a block are made in registers and multiplied there, so that a weight is read once and nothing is stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from ...runtime.dtype import DTYPES, BlockType
from ...runtime.emit import EmittedKernel
from ...runtime.paths import features
from ...runtime.vector import F32, I16, I32, I64, LANES, Code, Vector, vector_type
from ..quants.products import Block, Group, build_mask, codes, rows

ZERO = ir.Constant(vector_type(F32), [0.0] * LANES)
UNROLLED = 128
"""Elements of a row between two turns of a loop, where a block is shorter."""
STREAMS = 4
"""Products of rows of a weight with rows of activations that are computed at a time, at most."""


class Stored:
    """Rows of a stored type.

    Attributes:
        length, size: elements and bytes of a block; sixteen elements for plain numbers, whose rows may end with fewer.
    """

    def __init__(self, name: str) -> None:
        dtype = DTYPES[name]
        self.name = name
        self.rows, self.codes = rows().get(name), codes().get(name)
        self.plain = not isinstance(dtype, BlockType)
        self.length = LANES if self.plain else dtype.block
        self.size = LANES * dtype.bits // 8 if self.plain else dtype.block_nbytes

    def groups(self, code: Code, address: Any) -> Iterator[Group]:
        """The numbers of the block at an address."""
        return rows()[self.name](Block(code, address))

    def number(self, code: Code, address: Any, index: Any) -> Any:
        """One plain number."""
        build = code.builder
        place = build.add(address, build.mul(index, code.word(self.size // LANES)))
        if self.name == "f32":
            return code.load(place, F32)
        bits = code.load(place, I16)
        if self.name == "f16":
            return code.from_half(bits)
        return build.bitcast(build.shl(build.zext(bits, I32), ir.Constant(I32, 16)), F32)

    def blocks(self, code: Code, address: Any, count: Any, each: Callable[[Any, Any], None], streams: int = 1) -> None:
        """Instructions for each of `count` blocks from an address: `each` gets its address and the place of its first element in the row."""
        build = code.builder
        unroll = max(1, UNROLLED // self.length // streams)
        whole = build.mul(build.sdiv(count, code.word(unroll)), code.word(unroll))
        for start, stop, step in ((code.word(0), whole, unroll), (whole, count, 1))[: 1 if unroll == 1 else 2]:
            with code.loop(start, stop, step) as block:
                for index in range(step):
                    now = build.add(block, code.word(index))
                    each(build.add(address, build.mul(now, code.word(self.size))), build.mul(now, code.word(self.length)))


def words(code: Code, arguments: Any, count: int) -> list[Any]:
    """The first words of an argument block."""
    build = code.builder
    return [build.load(build.gep(arguments, [code.word(index)])) for index in range(count)]


def spread(code: Code, count: Any, part: Any, parts: Any) -> tuple[Any, Any]:
    """The range of `count` rows that a part computes."""
    build = code.builder
    following = build.add(part, code.word(1))
    return build.sdiv(build.mul(count, part), parts), build.sdiv(build.mul(count, following), parts)


def smaller(code: Code, one: Any, other: Any) -> Any:
    """The smaller of two numbers."""
    return code.builder.select(code.builder.icmp_signed("<", one, other), one, other)


class Minima:
    """The minima of blocks times sums of activations, which are subtracted from products.

    Args:
        sums: addresses of the sums of rows, f32, one for each `sums_group` elements.
        streams: rows of the weight that are multiplied at a time.
    """

    def __init__(self, code: Code, stored: Stored, sums: list[Any], streams: int) -> None:
        self.code, self.sums = code, sums
        self.kind = codes().get(stored.name)
        self.lanes = stored.length // self.kind.group if self.kind is not None and self.kind.minima is not None else 0
        self.nothing = ir.Constant(vector_type(F32, self.lanes), [0.0] * self.lanes) if self.lanes else None
        self.places = [[code.variable(self.nothing) for _ in sums] for _ in range(streams)] if self.lanes else []

    def reset(self) -> None:
        """Begin rows."""
        for place in (place for places in self.places for place in places):
            self.code.builder.store(self.nothing, place)

    def block(self, stream: int, block: Block, element: Any) -> None:
        """Add those of a block of a row."""
        if not self.lanes or self.kind is None or self.kind.minima is None:
            return
        code, build = self.code, self.code.builder
        minima = self.kind.minima([block])
        for sums, place in zip(self.sums, self.places[stream], strict=True):
            at = build.add(sums, build.lshr(element, code.word(2 if self.kind.group == 16 else 3)))
            build.store(times(code, minima, code.load(at, minima.type), build.load(place)), place)

    def subtracted(self, stream: int, totals: list[Any]) -> list[Any]:
        """Products of a row without them."""
        build = self.code.builder
        if not self.lanes:
            return totals
        taken = [sum_of(self.code, build.load(place)) for place in self.places[stream]]
        return [build.fsub(total, each) for total, each in zip(totals, taken, strict=True)]


def times(code: Code, one: Any, other: Any, known: Any) -> Any:
    """``one * other + known``, rounded once where the processor can."""
    if "fma" not in features():
        return code.builder.fadd(code.builder.fmul(one, other), known)
    return code.call(f"llvm.fma.v{one.type.count}f32", one.type, one, other, known)


def sum_of(code: Code, value: Any) -> Any:
    """The lanes of a vector added up, in a fixed order."""
    build = code.builder
    while value.type.count > 1:
        half = value.type.count // 2
        low, high = (build.shuffle_vector(value, value, build_mask(list(range(start, start + half)))) for start in (0, half))
        value = build.fadd(low, high)
    return build.extract_element(value, ir.Constant(I32, 0))


def sums_group(name: str) -> int:
    """How many neighbours of a row are added up for a type whose blocks have minima, 0 for others."""
    kind = codes().get(name)
    return kind.group if kind is not None and kind.minima is not None else 0


@functools.cache
def summed(group: int) -> EmittedKernel:
    """Copies rows of f32 and puts the sums of each `group` neighbours behind them: from, to, rows, elements of a row."""

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length = words(code, arguments, 4)
        row_bytes = builder.shl(length, code.word(2))
        wide = builder.add(row_bytes, builder.sdiv(row_bytes, code.word(group)))
        with code.loop(*spread(code, count, part, parts)) as row:
            x, to = builder.add(source, builder.mul(row, row_bytes)), builder.add(target, builder.mul(row, wide))
            with code.loop(code.word(0), length, group) as element:
                offset = builder.shl(element, code.word(2))
                held = [code.floats(builder.add(x, offset), 64 * index) for index in range(group // LANES)]
                for index, numbers in enumerate(held):
                    code.store(numbers.value, builder.add(to, offset), 64 * index)
                code.store(_added(held).sum(), builder.add(builder.add(to, row_bytes), builder.sdiv(offset, code.word(group))))

    return EmittedKernel(f"summed_{group}", write)


class Floats:
    """Products of the numbers of blocks with rows of f32, behind which their sums are where blocks have minima.

    Args:
        xs: addresses of the rows.
        streams: rows of the weight that are multiplied at a time.
    """

    def __init__(self, code: Code, stored: Stored, xs: list[Any], length: Any, streams: int) -> None:
        self.code, self.stored, self.xs, self.length = code, stored, xs, length
        sums = [code.builder.add(x, code.builder.shl(length, code.word(2))) for x in xs]
        self.minima = Minima(code, stored, sums, streams)
        self.chains = max(1, 4 // (streams * len(xs)))
        self.sums = [[[code.variable(ZERO) for _ in range(self.chains)] for _ in xs] for _ in range(streams)]

    def rows(self, addresses: list[Any]) -> list[list[Any]]:
        """The products of rows of blocks at some addresses, of each with every row of activations."""
        build = self.code.builder
        for place in (place for stream in self.sums for group in stream for place in group):
            build.store(ZERO, place)
        self.minima.reset()
        blocks = build.sdiv(self.length, self.code.word(self.stored.length))

        def each(offset: Any, element: Any) -> None:
            for stream, address in enumerate(addresses):
                self._block(stream, build.add(address, offset), element)

        self.stored.blocks(self.code, self.code.word(0), blocks, each, len(addresses))
        return [self._totals(stream, address, blocks) for stream, address in enumerate(addresses)]

    def _block(self, stream: int, address: Any, element: Any) -> None:
        """Add the products of a block whose first element is at a place of the rows."""
        code, build = self.code, self.code.builder
        offset = build.shl(element, code.word(2))
        rows_of = [build.add(x, offset) for x in self.xs]
        at = 0
        for index, group in enumerate(self.stored.groups(code, address)):
            for x, places in zip(rows_of, self.sums[stream], strict=True):
                place = places[index % self.chains]
                known = Vector(code, build.load(place))
                build.store(self._times(group, x, 64 * at, known).value, place)
            at += len(group.numbers)
        self.minima.block(stream, Block(code, address), element)

    def _times(self, group: Group, x: Any, at: int, known: Vector) -> Vector:
        """What is known, and the products of a group with sixteen elements of x at a time."""
        code = self.code
        if group.scale is None or (group.minimum is not None and not self.minima.lanes):
            for index, numbers in enumerate(group.values()):
                known = code.fma(numbers, code.floats(x, at + 64 * index), known)
            return known
        total = group.numbers[0] * code.floats(x, at)
        for index, numbers in enumerate(group.numbers[1:], 1):
            total = code.fma(numbers, code.floats(x, at + 64 * index), total)
        return code.fma(total, group.scale, known)

    def _totals(self, stream: int, address: Any, blocks: Any) -> list[Any]:
        """The sums of a row, products behind the last whole block included."""
        code, build = self.code, self.code.builder
        found = [code.variable(_added([Vector(code, build.load(place)) for place in places]).sum()) for places in self.sums[stream]]
        if self.stored.plain:
            with code.loop(build.mul(blocks, code.word(LANES)), self.length) as element:
                number = self.stored.number(code, address, element)
                for x, total in zip(self.xs, found, strict=True):
                    value = code.load(build.add(x, build.shl(element, code.word(2))), F32)
                    build.store(build.fadd(build.load(total), build.fmul(number, value)), total)
        return self.minima.subtracted(stream, [build.load(total) for total in found])


def _added(vectors: list[Vector]) -> Vector:
    while len(vectors) > 1:
        vectors = [one + other for one, other in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


Products = Callable[[Code, Stored, list[Any], Any, int], Any]
"""Makes what `Floats` is: how blocks are multiplied with rows of activations at some addresses, which have so many elements."""


@functools.cache
def few(name: str, batch: int, *, experts: bool = False, products: Products = Floats) -> EmittedKernel:
    """``y[t, row] = x[t] . W[row] + bias[row]`` for `batch` rows of activations.

    Arguments: W, x, y, bias (0 for none), rows, bytes of a row, elements of a row, bytes from one row of x to the next, and of y.
    With `experts`, x is the address of jobs, y of their number, and bias and the last two are not used; a job is the address of a weight and those
    of `batch` rows of x and of as many rows of y.
    """
    stored = Stored(name)

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        weight, x, y, bias, count, row_bytes, length, x_step, y_step = words(code, arguments, 9)

        def dots(weight: Any, xs: list[Any], ys: list[Any], bias: Any, first: Any, last: Any) -> None:
            streams = max(1, STREAMS // len(xs))
            _dots(code, products(code, stored, xs, length, streams), streams, weight, ys, bias, first, last, row_bytes)

        if not experts:
            first, last = spread(code, count, part, parts)
            xs, ys = ([builder.add(start, builder.mul(step, code.word(t))) for t in range(batch)] for start, step in ((x, x_step), (y, y_step)))
            dots(weight, xs, ys, bias, first, last)
            return
        first, last = spread(code, builder.mul(code.load(y, I64), count), part, parts)
        end = builder.sdiv(builder.sub(builder.add(last, count), code.word(1)), count)
        with code.loop(builder.sdiv(first, count), end) as job:
            place = builder.add(x, builder.mul(job, code.word(8 * (1 + 2 * batch))))
            held = [code.load(place, I64, 8 * index) for index in range(1 + 2 * batch)]
            start = builder.sub(first, builder.mul(job, count))
            start = builder.select(builder.icmp_signed("<", start, code.word(0)), code.word(0), start)
            stop = smaller(code, builder.sub(last, builder.mul(job, count)), count)
            dots(held[0], held[1 : 1 + batch], held[1 + batch :], None, start, stop)

    kind = products.__name__.lower()
    return EmittedKernel(f"{name}_{kind}_{batch}{'_experts' if experts else ''}", write)


def _dots(code: Code, products: Any, streams: int, weight: Any, ys: list[Any], bias: Any, first: Any, last: Any, row_bytes: Any) -> None:
    """Rows from `first` to `last` of a weight times the rows of activations that `products` has.

    Rows of different regions are read at the same time, as processors do not fetch ahead beyond a page. Where regions are of different
    sizes the last row is computed again.
    """
    build = code.builder
    each = build.sdiv(build.add(build.sub(last, first), code.word(streams - 1)), code.word(streams))
    final = build.sub(last, code.word(1))
    with code.loop(first, build.add(first, each)) as row:
        numbers = [smaller(code, build.add(row, build.mul(each, code.word(stream))), final) for stream in range(streams)]
        made = products.rows([build.add(weight, build.mul(number, row_bytes)) for number in numbers])
        for number, totals in zip(numbers, made, strict=True):
            for y, value in zip(ys, totals, strict=True):
                biased = value if bias is None else build.fadd(value, bias_of(code, bias, number))
                code.store(biased, build.add(y, build.shl(number, code.word(2))))


def bias_of(code: Code, bias: Any, row: Any) -> Any:
    """The bias of a row, 0 where there is none."""
    build = code.builder
    found = code.variable(ir.Constant(F32, 0.0))
    with build.if_then(build.icmp_unsigned("!=", bias, code.word(0))):
        build.store(code.load(build.add(bias, build.shl(row, code.word(2))), F32), found)
    return build.load(found)


def cleared(code: Code, address: Any, nbytes: Any) -> None:
    """Zeros over whole lines of 64 bytes."""
    with code.loop(code.word(0), nbytes, 64) as offset:
        code.store(ZERO, code.builder.add(address, offset))
