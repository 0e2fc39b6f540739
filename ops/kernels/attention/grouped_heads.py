"""Grouped-query building blocks: dot products of keys with 1, 2 or 4 queries, and weighted sums of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner
from ....runtime.simd.llvm_vector import F32, I16, LANES, Code, Vector, vector_type
from ....runtime.simd.memory import F16_CODE, F32_CODE
from ...quants.llvm import build_mask

KEYS = 256
"""Keys of a block."""
LINE = 4 * KEYS
"""Bytes from the scores of one query to those of the next."""
ROWS = (4, 2, 1)
VECTORS = 4
"""Vectors of a value that are added up at a time."""
COLUMNS = 4
"""Keys that meet queries at a time."""
LINE_BYTES = 64
"""Bytes of a line of the processor's caches."""
AHEAD = 8 << 10
"""Bytes before which keys and values are asked for."""
ZERO = ir.Constant(vector_type(F32), [0.0] * LANES)


def _numbers(code: Code, kind: int, address: Any, offset: int = 0) -> Vector:
    """Sixteen stored numbers."""
    if kind == F32_CODE:
        return code.floats(address, offset)
    patterns = code.load(address, vector_type(I16), offset)
    return (
        Vector(code, code.from_half(patterns)) if kind == F16_CODE else (code.widened(patterns) << 16).bits_as_float()
    )


def _sums(code: Code, vectors: list[Any]) -> Any:
    """The sums of four, eight or sixteen vectors, in the first lanes of one."""
    build = code.builder
    for width in (8, 4, 2, 1):
        if len(vectors) <= width:
            swapped = build_mask([lane ^ width for lane in range(LANES)])
            vectors = [build.fadd(vector, build.shuffle_vector(vector, vector, swapped)) for vector in vectors]
            continue
        upper = [lane // width % 2 == 1 for lane in range(LANES)]
        own = build_mask([lane + LANES if high else lane for lane, high in enumerate(upper)])
        other = build_mask([lane + LANES - width if high else lane + width for lane, high in enumerate(upper)])
        pairs = zip(vectors[:width], vectors[width:], strict=True)
        vectors = [
            build.fadd(build.shuffle_vector(one, two, own), build.shuffle_vector(one, two, other)) for one, two in pairs
        ]
    return vectors[0]


def _dot_intrinsic(kind: int, rows: int) -> Any:
    chains, size = 4 // rows, 4 if kind == F32_CODE else 2
    turn = max(chains, LINE_BYTES // (size * LANES))

    def dot_keys(
        typing: Any, keys: Any, step: Any, left: Any, queries: Any, row_bytes: Any, whole: Any, scores: Any, ahead: Any
    ) -> Any:
        """Products of some queries with the next four keys of `left`, over `whole` elements, whole vectors; asks for
        what is `ahead` bytes."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            code = Code(builder)
            keys, step, left, queries, row_bytes, whole, scores, ahead = args
            last = builder.sub(left, code.word(1))
            near = [
                builder.select(builder.icmp_signed("<", last, code.word(column)), last, code.word(column))
                for column in range(COLUMNS)
            ]
            lines = [builder.add(keys, builder.mul(number, step)) for number in near]
            wanted = [builder.add(queries, builder.mul(row_bytes, code.word(row))) for row in range(rows)]
            places = [[code.variable(ZERO) for _ in range(rows * COLUMNS)] for _ in range(chains)]
            for place in (place for chain in places for place in chain):
                builder.store(ZERO, place)

            def add(element: Any, chain: list[Any]) -> None:
                query = [code.floats(builder.add(line, builder.shl(element, code.word(2)))) for line in wanted]
                for column, line in enumerate(lines):
                    key = _numbers(code, kind, builder.add(line, builder.mul(element, code.word(size))))
                    for row in range(rows):
                        place = chain[row * COLUMNS + column]
                        builder.store(code.fma(query[row], key, Vector(code, builder.load(place))).value, place)

            turns = builder.mul(builder.sdiv(whole, code.word(turn * LANES)), code.word(turn * LANES))
            with code.loop(code.word(0), turns, turn * LANES) as element:
                for line in lines:
                    at = builder.add(builder.add(line, builder.mul(element, code.word(size))), ahead)
                    for offset in range(0, turn * LANES * size, LINE_BYTES):
                        code.prefetch(at, offset)
                for index in range(turn):
                    add(builder.add(element, code.word(LANES * index)), places[index % chains])
            if turn > 1:
                with code.loop(turns, whole, LANES) as element:
                    add(element, places[0])
            totals = [builder.load(place) for place in places[0]]
            for chain in places[1:]:
                totals = [builder.fadd(total, builder.load(place)) for total, place in zip(totals, chain, strict=True)]
            found = _sums(code, totals)
            for row in range(rows):
                part = builder.shuffle_vector(found, found, build_mask(list(range(COLUMNS * row, COLUMNS * (row + 1)))))
                code.store(part, scores, LINE * row)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), lower

    return intrinsic(dot_keys)


def _sum_intrinsic(kind: int, rows: int, vectors: int) -> Any:
    size = 4 if kind == F32_CODE else 2

    def mixed(
        typing: Any, values: Any, step: Any, count: Any, powers: Any, sums: Any, row_bytes: Any, ahead: Any
    ) -> Any:
        """Add some vectors of `count` values, each times its power, to sums; asks for what is `ahead` bytes."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            code = Code(builder)
            values, step, count, powers, sums, row_bytes, ahead = args
            rows_of = [builder.add(sums, builder.mul(row_bytes, code.word(row))) for row in range(rows)]
            held = [[code.floats(line, 64 * index).value for index in range(vectors)] for line in rows_of]
            places = [[code.variable(value) for value in line] for line in held]
            for loaded, kept in zip(held, places, strict=True):
                for value, place in zip(loaded, kept, strict=True):
                    builder.store(value, place)
            with code.loop(code.word(0), count) as index:
                at = builder.add(values, builder.mul(index, step))
                numbers = [_numbers(code, kind, at, 16 * size * number) for number in range(vectors)]
                for offset in range(0, 16 * size * vectors, LINE_BYTES):
                    code.prefetch(builder.add(at, ahead), offset)
                power_at = builder.add(powers, builder.shl(index, code.word(2)))
                for row, kept in enumerate(places):
                    power = code.splat(code.load(power_at, F32, LINE * row))
                    for number, place in zip(numbers, kept, strict=True):
                        builder.store(code.fma(number, power, Vector(code, builder.load(place))).value, place)
            for line, kept in zip(rows_of, places, strict=True):
                for index, place in enumerate(kept):
                    code.store(builder.load(place), line, 64 * index)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), lower

    return intrinsic(mixed)


def query_key_dots(kind: int) -> Callable[..., None]:
    """The kernel of query-key dot products for keys of a storage type."""
    width = 4 if kind == F32_CODE else 2
    four, two, one = (_dot_intrinsic(kind, rows) for rows in ROWS)

    @inner
    def dots(keys: Any, step: Any, count: Any, queries: Any, rows: Any, size: Any, scores: Any) -> None:
        """Products of `rows` queries, f32 [rows, size], with `count` keys `step` bytes apart, into f32 [rows, KEYS]; of
        whole vectors."""
        whole = size - size % 16
        ahead = max(1, AHEAD // (width * size)) * step
        for j in range(0, count, COLUMNS):
            key, left, row = keys + j * step, count - j, 0
            while row < rows:
                query, line = queries + 4 * size * row, scores + LINE * row + 4 * j
                if rows - row >= 4:
                    four(key, step, left, query, 4 * size, whole, line, ahead)
                    row += 4
                elif rows - row >= 2:
                    two(key, step, left, query, 4 * size, whole, line, ahead)
                    row += 2
                else:
                    one(key, step, left, query, 4 * size, whole, line, ahead)
                    row += 1

    return dots


def weighted_sums(kind: int) -> Callable[..., None]:
    """The kernel of weighted sums for values of a storage type."""
    width = 4 if kind == F32_CODE else 2
    four, two, one = (_sum_intrinsic(kind, rows, VECTORS) for rows in ROWS)
    single = _sum_intrinsic(kind, 1, 1)

    @inner
    def mixed(values: Any, step: Any, count: Any, powers: Any, rows: Any, size: Any, sums: Any) -> None:
        """Add `count` values `step` bytes apart, each times its power of f32 [rows, KEYS], to f32 [rows, size]; of
        whole vectors."""
        whole = size - size % 16
        each = KEYS if whole <= 64 else 16
        ahead = max(1, AHEAD // (width * size)) * step
        for j in range(0, count, each):
            value, some, row = values + j * step, min(each, count - j), 0
            while row < rows:
                line, place, k = powers + LINE * row + 4 * j, sums + 4 * size * row, 0
                taken = 4 if rows - row >= 4 else 2 if rows - row >= 2 else 1
                while k + 64 <= whole:
                    if taken == 4:
                        four(value + width * k, step, some, line, place + 4 * k, 4 * size, ahead)
                    elif taken == 2:
                        two(value + width * k, step, some, line, place + 4 * k, 4 * size, ahead)
                    else:
                        one(value + width * k, step, some, line, place + 4 * k, 4 * size, ahead)
                    k += 64
                while k < whole:
                    for index in range(taken):
                        single(
                            value + width * k,
                            step,
                            some,
                            line + LINE * index,
                            place + 4 * (k + size * index),
                            4 * size,
                            ahead,
                        )
                    k += 16
                row += taken

    return mixed
