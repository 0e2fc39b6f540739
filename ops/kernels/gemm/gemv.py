"""GEMV for weights of any storage type. Blocks are dequantized in registers, so each weight is read once.

Blocks are decoded by the generators of ops/quants/llvm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from llvmlite import ir

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.isa import features
from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.llvm_vector import F32, I16, I32, I64, LANES, Code, Vector, vector_type
from ....runtime.tensor.dtype import STORAGE_TYPES, BlockType
from ...quants.llvm import Block, Group, build_mask, codes, rows

ZERO = ir.Constant(vector_type(F32), [0.0] * LANES)
UNROLLED = 128
"""Elements of a row per loop iteration; shorter blocks are unrolled."""
STREAMS = 4
"""Maximum number of weight rows, and for block types of products (weight rows times activation rows), at a time."""
PLAIN_PRODUCTS = 16
"""Maximum number of products at a time for f32, f16 and bf16, each of which takes one register."""
TILE = 8
"""Activation rows that meet weight rows at a time in `gemv_tiles`."""
TILED_BLOCK = 1 << 18
"""Bytes of weight rows that stay in the cache of a core while all tiles meet them."""


class WeightRows:
    """Reader of rows of a storage type.

    Attributes:
        length, size: elements and bytes of a block; for f32, f16 and bf16 16 elements, and the last block may be
            shorter.
    """

    def __init__(self, name: str) -> None:
        dtype = STORAGE_TYPES[name]
        self.name = name
        self.rows, self.codes = rows().get(name), codes().get(name)
        self.plain = not isinstance(dtype, BlockType)
        self.length = LANES if self.plain else dtype.block
        self.size = LANES * dtype.bits // 8 if self.plain else dtype.block_nbytes

    def groups(self, code: Code, address: Any) -> Iterator[Group]:
        """The decoded elements of the block at an address."""
        return rows()[self.name](Block(code, address))

    def number(self, code: Code, address: Any, index: Any) -> Any:
        """One element of a float row."""
        build = code.builder
        place = build.add(address, build.mul(index, code.word(self.size // LANES)))
        if self.name == "f32":
            return code.load(place, F32)
        bits = code.load(place, I16)
        if self.name == "f16":
            return code.from_half(bits)
        return build.bitcast(build.shl(build.zext(bits, I32), ir.Constant(I32, 16)), F32)

    def blocks(self, code: Code, address: Any, count: Any, each: Callable[[Any, Any], None], streams: int = 1) -> None:
        """Emit instructions for `count` blocks from an address: `each` gets a block's address and the index of its
        first element in the row."""
        build = code.builder
        unroll = max(1, UNROLLED // self.length // streams)
        whole = build.mul(build.sdiv(count, code.word(unroll)), code.word(unroll))
        for start, stop, step in ((code.word(0), whole, unroll), (whole, count, 1))[: 1 if unroll == 1 else 2]:
            with code.loop(start, stop, step) as block:
                for index in range(step):
                    now = build.add(block, code.word(index))
                    each(
                        build.add(address, build.mul(now, code.word(self.size))), build.mul(now, code.word(self.length))
                    )

    def decode(self, code: Code, address: Any, count: Any, target: Any) -> None:
        """Decode `count` elements, which begin a block, to f32 at an address."""
        build = code.builder
        self.decode_to(code, address, count, lambda element: build.add(target, build.shl(element, code.word(2))))

    def decode_to(self, code: Code, address: Any, count: Any, place: Callable[[Any], Any]) -> None:
        """Decode `count` elements, which begin a block, sixteen at a time to the position of the first of them."""
        build = code.builder

        def each(block: Any, element: Any) -> None:
            for index, numbers in enumerate(value for group in self.groups(code, block) for value in group.values()):
                code.store(numbers.value, place(build.add(element, code.word(LANES * index))))

        blocks = build.sdiv(count, code.word(self.length))
        self.blocks(code, address, blocks, each)
        if self.plain:
            with code.loop(build.mul(blocks, code.word(LANES)), count) as element:
                code.store(self.number(code, address, element), place(element))


def part_range(code: Code, count: Any, part: Any, parts: Any) -> tuple[Any, Any]:
    """First and end of the rows, of `count`, that a part computes."""
    build = code.builder
    following = build.add(part, code.word(1))
    return build.sdiv(build.mul(count, part), parts), build.sdiv(build.mul(count, following), parts)


def minimum(code: Code, a: Any, b: Any) -> Any:
    """The smaller of two signed integers."""
    return code.builder.select(code.builder.icmp_signed("<", a, b), a, b)


class Minima:
    """The minima of blocks times sums of activations, which are subtracted from products.

    Args:
        sums: addresses of the sums of rows, f32, one for each `minima_group` elements.
        streams: rows of the weight that are multiplied at a time.
    """

    def __init__(self, code: Code, stored: WeightRows, sums: list[Any], streams: int) -> None:
        self.code, self.sums = code, sums
        self.kind = codes().get(stored.name)
        self.lanes = stored.length // self.kind.group if self.kind is not None and self.kind.minima is not None else 0
        self.nothing = ir.Constant(vector_type(F32, self.lanes), [0.0] * self.lanes) if self.lanes else None
        self.places = [[code.variable(self.nothing) for _ in sums] for _ in range(streams)] if self.lanes else []

    def reset(self) -> None:
        """Zero the sums of new rows."""
        for place in (place for places in self.places for place in places):
            self.code.builder.store(self.nothing, place)

    def block(self, stream: int, block: Block, element: Any) -> None:
        """Add the minima of one block of a row."""
        if not self.lanes or self.kind is None or self.kind.minima is None:
            return
        code, build = self.code, self.code.builder
        minima = self.kind.minima([block])
        for sums, place in zip(self.sums, self.places[stream], strict=True):
            at = build.add(sums, build.lshr(element, code.word(2 if self.kind.group == 16 else 3)))
            build.store(multiply_add(code, minima, code.load(at, minima.type), build.load(place)), place)

    def subtract(self, stream: int, totals: list[Any]) -> list[Any]:
        """Products of a row minus the minima."""
        build = self.code.builder
        if not self.lanes:
            return totals
        minima_sums = [horizontal_sum(self.code, build.load(place)) for place in self.places[stream]]
        return [build.fsub(total, each) for total, each in zip(totals, minima_sums, strict=True)]


def multiply_add(code: Code, a: Any, b: Any, known: Any) -> Any:
    """``one * other + known``, rounded once where the processor can."""
    if "fma" not in features():
        return code.builder.fadd(code.builder.fmul(a, b), known)
    return code.call(f"llvm.fma.v{a.type.count}f32", a.type, a, b, known)


def horizontal_sum(code: Code, value: Any) -> Any:
    """Sum of the lanes of a vector, in a fixed order."""
    build = code.builder
    while value.type.count > 1:
        half = value.type.count // 2
        low, high = (
            build.shuffle_vector(value, value, build_mask(list(range(start, start + half)))) for start in (0, half)
        )
        value = build.fadd(low, high)
    return build.extract_element(value, ir.Constant(I32, 0))


def minima_group(name: str) -> int:
    """Elements that share a minimum, 0 for types without minima."""
    kind = codes().get(name)
    return kind.group if kind is not None and kind.minima is not None else 0


@process_cache
def append_group_sums(group: int) -> EmittedKernel:
    """Copies `count` rows of `length` f32 elements and appends the sum of each `group` elements to each row."""

    def write(builder: Any, part: Any, parts: Any, *, source: Any, target: Any, count: Any, length: Any) -> None:
        code = Code(builder)
        row_bytes = builder.shl(length, code.word(2))
        wide = builder.add(row_bytes, builder.sdiv(row_bytes, code.word(group)))
        with code.loop(*part_range(code, count, part, parts)) as row:
            x, to = builder.add(source, builder.mul(row, row_bytes)), builder.add(target, builder.mul(row, wide))
            with code.loop(code.word(0), length, group) as element:
                offset = builder.shl(element, code.word(2))
                held = [code.floats(builder.add(x, offset), 64 * index) for index in range(group // LANES)]
                for index, numbers in enumerate(held):
                    code.store(numbers.value, builder.add(to, offset), 64 * index)
                code.store(
                    _sum_vectors(held).sum(),
                    builder.add(builder.add(to, row_bytes), builder.sdiv(offset, code.word(group))),
                )

    return EmittedKernel(f"summed_{group}", write)


class FloatProducts:
    """Products of dequantized blocks with rows of f32, which have group sums appended if the blocks have minima.

    Args:
        xs: addresses of the rows.
        streams: rows of the weight that are multiplied at a time.

    Attributes:
        digits: int8 digits of the activations, 0 for f32.
    """

    digits = 0

    def __init__(self, code: Code, stored: WeightRows, xs: list[Any], length: Any, streams: int) -> None:
        self.code, self.stored, self.xs, self.length, self.streams = code, stored, xs, length, streams
        sums = [code.builder.add(x, code.builder.shl(length, code.word(2))) for x in xs]
        self.minima = Minima(code, stored, sums, streams)
        self.chains = max(1, 4 // (streams * len(xs)))
        self.sums = [[[code.variable(ZERO) for _ in range(self.chains)] for _ in xs] for _ in range(streams)]

    def rows(self, addresses: list[Any]) -> list[list[Any]]:
        """Products of the weight rows at `addresses` with every row of activations: [weight row][activation row]."""
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
        """Add the products of a block whose first element has index `element`."""
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
        """Accumulate the products of a group with 16 elements of x at a time."""
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
        """The sums of a row, including the elements after the last full block."""
        code, build = self.code, self.code.builder
        found = [
            code.variable(_sum_vectors([Vector(code, build.load(place)) for place in places]).sum())
            for places in self.sums[stream]
        ]
        if self.stored.plain:
            with code.loop(build.mul(blocks, code.word(LANES)), self.length) as element:
                number = self.stored.number(code, address, element)
                for x, total in zip(self.xs, found, strict=True):
                    value = code.load(build.add(x, build.shl(element, code.word(2))), F32)
                    build.store(build.fadd(build.load(total), build.fmul(number, value)), total)
        return self.minima.subtract(stream, [build.load(total) for total in found])


def _sum_vectors(vectors: list[Vector]) -> Vector:
    while len(vectors) > 1:
        vectors = [a + b for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


Products: TypeAlias = Any
"""`FloatProducts` or a class like it: made of code, weight rows, addresses of x, length, streams."""


class GemvArguments(NamedTuple):
    """Arguments of `gemv`.

    Attributes:
        bias: 0 for none.
        count: rows of the weight.
        length: elements of a row.
        x_step, y_step: bytes between rows.
        tokens: rows of activations; at least `TILE` for `gemv_tiles`.
    """

    weight: Any
    x: Any
    y: Any
    bias: Any
    count: Any
    row_bytes: Any
    length: Any
    x_step: Any
    y_step: Any
    tokens: Any


class GemvJobs(NamedTuple):
    """Arguments of `gemv` with experts: `number` is the address of the number of jobs. A job holds the addresses of a
    weight, of rows of x and of rows of y."""

    jobs: Any
    number: Any
    x: Any
    y: Any
    count: Any
    row_bytes: Any
    length: Any


def streams_for(stored: WeightRows, batch: int) -> int:
    """Rows of a weight that are multiplied with `batch` rows of activations at a time."""
    most = PLAIN_PRODUCTS if stored.plain else STREAMS
    return min(STREAMS, max(1, most // batch))


@process_cache
def gemv(name: str, batch: int, *, experts: bool = False, products: Products = FloatProducts) -> EmittedKernel:
    """``y[t, row] = x[t] . W[row] + bias[row]`` for `batch` rows of activations."""
    stored = WeightRows(name)
    streams = streams_for(stored, batch)

    def write(builder: Any, part: Any, parts: Any, given: GemvArguments) -> None:
        code = Code(builder)
        first, last = part_range(code, given.count, part, parts)
        xs, ys = (
            [builder.add(start, builder.mul(step, code.word(t))) for t in range(batch)]
            for start, step in ((given.x, given.x_step), (given.y, given.y_step))
        )
        made = products(code, stored, xs, given.length, streams)
        _dots(code, made, (given.weight, given.row_bytes, given.bias), ys, first, last)

    def write_jobs(builder: Any, part: Any, parts: Any, given: GemvJobs) -> None:
        code, count = Code(builder), given.count
        first, last = part_range(code, builder.mul(code.load(given.number, I64), count), part, parts)
        end = builder.sdiv(builder.sub(builder.add(last, count), code.word(1)), count)
        with code.loop(builder.sdiv(first, count), end) as job:
            place = builder.add(given.jobs, builder.mul(job, code.word(8 * (1 + 2 * batch))))
            held = [code.load(place, I64, 8 * index) for index in range(1 + 2 * batch)]
            start = builder.sub(first, builder.mul(job, count))
            start = builder.select(builder.icmp_signed("<", start, code.word(0)), code.word(0), start)
            stop = minimum(code, builder.sub(last, builder.mul(job, count)), count)
            made = products(code, stored, held[1 : 1 + batch], given.length, streams)
            _dots(code, made, (held[0], given.row_bytes, None), held[1 + batch :], start, stop)

    kind = products.__name__.lower()
    if experts:
        return EmittedKernel(f"{name}_{kind}_{batch}_experts", write_jobs, GemvJobs)
    return EmittedKernel(f"{name}_{kind}_{batch}", write, GemvArguments)


@process_cache
def gemv_tiles(name: str) -> EmittedKernel:
    """As `gemv` for many rows of activations. Weights are read once; the last rows may be computed twice."""
    stored = WeightRows(name)

    def write(builder: Any, part: Any, parts: Any, given: GemvArguments) -> None:
        code = Code(builder)
        first, last = part_range(code, given.count, part, parts)
        fitting = builder.sdiv(code.word(TILED_BLOCK), given.row_bytes)
        fitting = builder.select(builder.icmp_signed("<", fitting, code.word(STREAMS)), code.word(STREAMS), fitting)
        blocks = builder.sdiv(builder.sub(builder.add(builder.sub(last, first), fitting), code.word(1)), fitting)
        tiles = builder.sdiv(builder.add(given.tokens, code.word(TILE - 1)), code.word(TILE))
        with code.loop(code.word(0), blocks) as block:
            start = builder.add(first, builder.mul(block, fitting))
            stop = minimum(code, builder.add(start, fitting), last)
            with code.loop(code.word(0), tiles) as tile:
                final = builder.sub(given.tokens, code.word(TILE))
                token = minimum(code, builder.mul(tile, code.word(TILE)), final)
                numbers = [builder.add(token, code.word(index)) for index in range(TILE)]
                xs, ys = (
                    [builder.add(address, builder.mul(step, number)) for number in numbers]
                    for address, step in ((given.x, given.x_step), (given.y, given.y_step))
                )
                products = FloatProducts(code, stored, xs, given.length, streams_for(stored, TILE))
                _dots(code, products, (given.weight, given.row_bytes, given.bias), ys, start, stop)

    return EmittedKernel(f"{name}_tiles", write, GemvArguments)


def _dots(code: Code, products: Any, weight_of: tuple[Any, Any, Any], ys: list[Any], first: Any, last: Any) -> None:
    """Multiply the weight rows [first, last) with the activations of `products`; `weight_of` is the address of the
    weight, bytes of a row, and the bias.

    Rows of several regions are read in parallel, because hardware prefetch stops at page ends. If the regions differ in
    size, the last row is computed twice.
    """
    (weight, row_bytes, bias), streams = weight_of, products.streams
    build = code.builder
    each = build.sdiv(build.add(build.sub(last, first), code.word(streams - 1)), code.word(streams))
    final = build.sub(last, code.word(1))
    with code.loop(first, build.add(first, each)) as row:
        numbers = [
            minimum(code, build.add(row, build.mul(each, code.word(stream))), final) for stream in range(streams)
        ]
        made = products.rows([build.add(weight, build.mul(number, row_bytes)) for number in numbers])
        for number, totals in zip(numbers, made, strict=True):
            for y, value in zip(ys, totals, strict=True):
                biased = value if bias is None else build.fadd(value, load_bias(code, bias, number))
                code.store(biased, build.add(y, build.shl(number, code.word(2))))


def load_bias(code: Code, bias: Any, row: Any) -> Any:
    """The bias of a row, 0 if the address is 0."""
    build = code.builder
    found = code.variable(ir.Constant(F32, 0.0))
    with build.if_then(build.icmp_unsigned("!=", bias, code.word(0))):
        build.store(code.load(build.add(bias, build.shl(row, code.word(2))), F32), found)
    return build.load(found)


def zero_lines(code: Code, address: Any, nbytes: Any) -> None:
    """Zero full lines of 64 bytes."""
    with code.loop(code.word(0), nbytes, 64) as offset:
        code.store(ZERO, code.builder.add(address, offset))
