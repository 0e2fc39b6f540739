"""Packed GEMM: activations in tiles times weights of every storage type, which are decoded to panels.

The driver of all tiles and panels (`panel`): units of weight rows, chunks of their elements, blocks of tiles, and what
is left over of each. A piece of the weight is decoded once and meets all tiles of a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from llvmlite import ir

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.llvm_vector import F32, I32, I64, Code, Vector
from .dispatch import gemm_variant
from .epilogue import EMITTED
from .gemv import WeightRows, load_bias, minimum, part_range, zero_lines
from .panel import COLUMNS, VECTORS
from .register_tile import VECTOR

ROW_BLOCK = 768
"""Rows of activations that decoded rows meet; every number of rows of a tile divides it."""


def tile_layout(name: str, variant: str) -> Any:
    """The tile that products with a type are made of."""
    return gemm_variant(name, variant).tile(name)


def tiles_nbytes(name: str, variant: str, tokens: int, length: int) -> int:
    """Bytes of rows of activations in tiles."""
    tile = tile_layout(name, variant)
    return int(-(-tokens // tile.rows) * tile.length_nbytes(length))


def scratch_nbytes(name: str, variant: str, tokens: int) -> int:
    """Bytes that a part works in."""
    return part_nbytes(tile_layout(name, variant), tokens)


def part_nbytes(tile: Any, tokens: int) -> int:
    """Bytes that a part works in, by the tile of the product."""
    return int(tile.scratch + min(ROW_BLOCK // tile.rows, -(-tokens // tile.rows)) * tile.rows * COLUMNS * 4)


@process_cache
def pack_tiles(name: str, tile: Any) -> EmittedKernel:
    """Rounds `count` rows of f32 and puts them into tiles of a layout for a storage type. Rows after the last one are
    zeros."""

    def write(builder: Any, part: Any, parts: Any, *, source: Any, target: Any, count: Any, length: Any) -> None:
        code = Code(builder)
        nbytes = tile.offset(code, length)
        tiles = builder.sdiv(builder.add(count, code.word(tile.rows - 1)), code.word(tile.rows))
        with code.loop(*part_range(code, tiles, part, parts)) as number:
            to = builder.add(target, builder.mul(number, nbytes))
            first = builder.mul(number, code.word(tile.rows))
            height = minimum(code, code.word(tile.rows), builder.sub(count, first))
            with builder.if_then(builder.icmp_signed("<", height, code.word(tile.rows))):
                zero_words(code, to, nbytes)
            with code.loop(code.word(0), height) as row:
                x = builder.add(source, builder.mul(builder.add(first, row), builder.shl(length, code.word(2))))
                tile.pack_row(code, x, to, row, length)

    return EmittedKernel(f"{name}_tiling_{tile.rows}", write)


def zero_words(code: Code, address: Any, nbytes: Any) -> None:
    """Zeros over whole words."""
    lines = code.builder.and_(nbytes, code.word(-VECTOR))
    zero_lines(code, address, lines)
    with code.loop(lines, nbytes, 4) as offset:
        code.store(ir.Constant(I32, 0), code.builder.add(address, offset))


class GemmArguments(NamedTuple):
    """Arguments of `packed_gemm`.

    Attributes:
        tiles: rows of activations as `pack_tiles` makes them.
        bias: 0 for none.
        added, added_row: f32 that is added to y, 0 for none, and bytes from row to row of it.
        count, row_bytes, length: rows of the weight, bytes and elements of one.
        tokens: rows of activations.
        scratch: `scratch_nbytes` for each part.
    """

    weight: Any
    tiles: Any
    y: Any
    bias: Any
    added: Any
    added_row: Any
    count: Any
    row_bytes: Any
    length: Any
    tokens: Any
    scratch: Any


@process_cache
def packed_gemm(name: str, variant: str, activation: int | None = None) -> EmittedKernel:
    """``y[t, row] = activation(x[t] . W[row] + bias[row] + added[t, row])`` for x in tiles; `activation`: of
    `epilogue.EMITTED`."""
    return panel_gemm(f"{name}_dots_{variant}_{activation}", panel_maker(name, variant), activation)


def panel_gemm(label: str, make_panel: Callable[..., Any], activation: int | None) -> EmittedKernel:
    """The kernel of a `panel_maker`."""

    def write(builder: Any, part: Any, parts: Any, given: GemmArguments) -> None:
        code = Code(builder)
        panel = make_panel(code, part, given.scratch, given.tokens)
        for row, rows_of in weight_units(code, given.weight, given.count, given.row_bytes, part, parts):

            def line(token: Any, row: Any = row) -> Any:
                place = builder.add(builder.mul(token, given.count), row)
                return builder.add(given.y, builder.shl(place, code.word(2)))

            for first, last in multiply_tiles(code, panel, rows_of, given.tiles, given.tokens, given.length, line):
                epilogue = EmittedEpilogue(code, given.bias, row, activation, (given.added, given.added_row))
                write_sums(code, panel.sums, line, first, last, rows_of[2], epilogue)

        panel.release()

    return EmittedKernel(label, write, GemmArguments)


def panel_maker(name: str, variant: str) -> Callable[[Code, Any, Any, Any], Any]:
    """Makes the panel of a part from code, the number of the part, scratch memory and rows of activations."""
    return functools.partial(
        panel_of_part, gemm_variant(name, variant).panel, tile_layout(name, variant), WeightRows(name)
    )


def panel_of_part(make: Any, tile: Any, stored: WeightRows, code: Code, part: Any, scratch: Any, tokens: Any) -> Any:
    """A panel that works in the scratch memory of a part."""
    own = code.builder.add(scratch, code.builder.mul(part, scratch_size(code, tile, tokens)))
    return make(code, tile, stored, own)


def weight_units(
    code: Code, weight: Any, count: Any, row_bytes: Any, part: Any, parts: Any
) -> Iterator[tuple[Any, tuple[Any, Any, Any]]]:
    """Instructions for each `COLUMNS` rows of a weight that a part multiplies: the first row; address, bytes of a row,
    and number of rows."""
    build = code.builder
    units = build.sdiv(build.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS))
    with code.loop(*part_range(code, units, part, parts)) as unit:
        row = build.mul(unit, code.word(COLUMNS))
        height = minimum(code, code.word(COLUMNS), build.sub(count, row))
        yield row, (build.add(weight, build.mul(row, row_bytes)), row_bytes, height)


def scratch_size(code: Code, tile: Any, tokens: Any) -> Any:
    """`scratch_nbytes` for a number of rows that is known at run time."""
    build = code.builder
    tile_count = build.sdiv(build.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
    most = build.mul(minimum(code, tile_count, code.word(ROW_BLOCK // tile.rows)), code.word(tile.rows * COLUMNS * 4))
    return build.add(code.word(tile.scratch), most)


def multiply_tiles(
    code: Code,
    panel: Any,
    rows_of: tuple[Any, Any, Any],
    tiles: Any,
    tokens: Any,
    length: Any,
    line_of: Callable[[Any], Any],
) -> Iterator[tuple[Any, Any]]:
    """Multiply some rows of a weight with rows of activations; gives the first row and the end of those whose sums are
    complete, once.

    Args:
        rows_of: address of the weight's rows, bytes of one, and how many there are, up to `COLUMNS`.
        line_of: where the sums of a row of activations will go; that memory is asked for while its last ones are made.
    """
    build, tile = code.builder, panel.tile
    last_row = build.sub(tokens, code.word(1))
    source, row_bytes, height = rows_of
    tile_count = build.sdiv(build.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
    line = code.word(tile.rows * COLUMNS * 4)
    tile_bytes = tile.offset(code, length)
    with code.loop(code.word(0), tile_count, ROW_BLOCK // tile.rows) as begin:
        end = minimum(code, build.add(begin, code.word(ROW_BLOCK // tile.rows)), tile_count)
        zero_lines(code, panel.sums, build.mul(build.sub(end, begin), line))
        with code.loop(code.word(0), length, tile.chunk) as start:
            depth = minimum(code, code.word(tile.chunk), build.sub(length, start))
            panel.decode(source, row_bytes, height, start, depth)
            ends, skipped = build.icmp_signed("==", build.add(start, depth), length), tile.offset(code, start)
            with code.loop(begin, end) as number:
                x = build.add(tiles, build.add(build.mul(number, tile_bytes), skipped))
                sums = build.add(panel.sums, build.mul(build.sub(number, begin), line))
                left = build.sub(tokens, build.mul(number, code.word(tile.rows)))
                with build.if_then(ends), code.loop(code.word(0), code.word(tile.rows)) as index:
                    place = line_of(minimum(code, build.add(build.mul(number, code.word(tile.rows)), index), last_row))
                    for offset in range(0, 4 * COLUMNS + 1, 64):
                        code.prefetch(place, offset, writing=True)
                multiply = functools.partial(panel.multiply, x, depth, sums)
                _least(code, tile.heights, left, multiply)
        yield build.mul(begin, code.word(tile.rows)), minimum(code, tokens, build.mul(end, code.word(tile.rows)))


def _least(code: Code, sizes: tuple[int, ...], count: Any, write: Callable[[int], None]) -> None:
    """Instructions for the least of some ascending sizes that covers a count."""
    size, *others = sizes
    if not others:
        write(size)
        return
    with code.builder.if_else(code.builder.icmp_signed("<=", count, code.word(size))) as (few, many):
        with few:
            write(size)
        with many:
            _least(code, tuple(others), count, write)


class EmittedEpilogue:
    """The epilogue of some columns: bias, residual and activation.

    Args:
        bias: address of the bias of all columns, 0 for none.
        row: the first column, a row of the weight.
        activation: of `EMITTED`, None for none.
        added: address of f32 that are added, 0 for none, and bytes from row to row of them; None if nothing ever is.
    """

    def __init__(
        self, code: Code, bias: Any, row: Any, activation: int | None = None, added: tuple[Any, Any] | None = None
    ) -> None:
        self.code, self._bias, self._row, self._activation, self._added = code, bias, row, activation, added
        self._shifts = code.builder.ptrtoint(
            code.variable(ir.Constant(ir.ArrayType(F32, COLUMNS), [0.0] * COLUMNS)), I64
        )

    def prepare(self, height: Any) -> None:
        """Load the bias of `height` columns."""
        code, build = self.code, self.code.builder
        with code.loop(code.word(0), height) as index:
            bias = load_bias(code, self._bias, build.add(self._row, index))
            code.store(bias, build.add(self._shifts, build.shl(index, code.word(2))))

    def prepare_vector(self) -> None:
        """Load the bias of sixteen columns."""
        code, build = self.code, self.code.builder
        with build.if_then(build.icmp_unsigned("!=", self._bias, code.word(0))):
            bias = code.floats(build.add(self._bias, build.shl(self._row, code.word(2))))
            code.store(bias.value, self._shifts)

    def _place(self, token: Any, offset: Any) -> Any:
        """Address of the residual."""
        assert self._added is not None
        build, (address, step) = self.code.builder, self._added
        row = build.add(address, build.mul(token, step))
        return build.add(row, build.add(build.shl(self._row, self.code.word(2)), offset))

    def vector(self, total: Vector, token: Any, offset: Any) -> Vector:
        """The result of sixteen sums, `offset` bytes after the first column."""
        code, build = self.code, self.code.builder
        value = total + code.floats(build.add(self._shifts, offset))
        if self._added is not None:
            address, _ = self._added
            held = code.variable(value.value)
            with build.if_then(build.icmp_signed("!=", address, code.word(0))):
                build.store((value + code.floats(self._place(token, offset))).value, held)
            value = Vector(code, build.load(held))
        return value if self._activation is None else EMITTED[self._activation](code, value)

    def element(self, total: Any, token: Any, offset: Any) -> Any:
        """As `vector`, of one sum."""
        code, build = self.code, self.code.builder
        value = build.fadd(total, code.load(build.add(self._shifts, offset), F32))
        if self._added is not None:
            address, _ = self._added
            held = code.variable(value)
            with build.if_then(build.icmp_signed("!=", address, code.word(0))):
                build.store(build.fadd(value, code.load(self._place(token, offset), F32)), held)
            value = build.load(held)
        if self._activation is None:
            return value
        made = EMITTED[self._activation](code, code.splat(value))
        return build.extract_element(made.value, ir.Constant(I32, 0))


def write_sums(
    code: Code, sums: Any, line_of: Callable[[Any], Any], first: Any, last: Any, height: Any, epilogue: EmittedEpilogue
) -> None:
    """The sums [rows, COLUMNS] of rows of activations from `first`, with the epilogue, into rows of y, whose
    addresses a function gives."""
    build = code.builder
    epilogue.prepare(height)
    with code.loop(first, last) as token:
        line = line_of(token)
        source = build.add(sums, build.mul(build.sub(token, first), code.word(4 * COLUMNS)))
        with build.if_else(build.icmp_signed("==", height, code.word(COLUMNS))) as (all_, some):
            with all_:
                for at in range(0, VECTORS * VECTOR, VECTOR):
                    code.store(epilogue.vector(code.floats(source, at), token, code.word(at)).value, line, at)
            with some, code.loop(code.word(0), height) as index:
                offset = build.shl(index, code.word(2))
                value = epilogue.element(code.load(build.add(source, offset), F32), token, offset)
                code.store(value, build.add(line, offset))
