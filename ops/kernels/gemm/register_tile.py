"""Register tiles: sums of a few rows and one panel of columns that stay in registers along the common dimension.

A panel has `PANEL` columns; each step along the common dimension is one line of 32-bit lanes: an f32, or four bytes
(dot4), of each column. The left matrix is read in place, 32 bits for a whole row of the tile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.simd.llvm_vector import F32, LANES, Code, Vector, vector_type

PANEL = 32
VECTOR = 4 * LANES
"""Bytes of a vector."""
ELEMENT, UNROLLED = 4, 4
"""Bytes of an element of the left matrix, and steps of an unrolled loop."""
FLOATS = vector_type(F32)


class Lines(NamedTuple):
    """The rows of the left matrix that a tile reads.

    Attributes:
        addresses: of their first elements.
        step: bytes from element to element.
        start: bytes that are skipped, None for none.
        ahead: bytes after the first row that are asked for ahead of their use, 0 for none.
        pace: how many times faster than the rows that position moves.
        unrolled: whether adjacent elements are read `UNROLLED` at a time.
    """

    addresses: list[Any]
    step: Any
    start: Any = None
    ahead: int = 0
    pace: int = 1
    unrolled: bool = False


class Columns(NamedTuple):
    """The vectors of a panel that a tile reads.

    Attributes:
        address: of the panel.
        ahead: bytes after the panel that are asked for ahead of their use, None for none.
        line: bytes from one line of the panel to the next.
    """

    address: Any
    vectors: range
    ahead: Any = None
    line: int = 4 * PANEL


MultiplyAdd = Callable[[Code, Any, Any, Any], Any]
"""Adds to a sum the products of a row's element, in all lanes, and of the elements of columns."""


def fma(code: Code, total: Any, element: Any, column: Any) -> Any:
    """Products of f32, rounded once where the processor can."""
    return code.fma(*(Vector(code, value) for value in (element, column, total))).value


def accumulate(
    code: Code, depth: Any, sums: list[Any], lines: Lines, columns: Columns, multiply_add: MultiplyAdd = fma
) -> list[Any]:
    """The sums, row by row, after `depth` steps along the common dimension."""
    build, element_type, count = code.builder, sums[0].type.element, len(columns.vectors)
    start = code.word(0) if lines.start is None else lines.start

    def steps(many: int, line_step: Any, held: list[Any]) -> list[Any]:
        """`many` steps from one offset, to which the bytes of those after it are constants."""
        offset, at, *totals = held
        rows = [build.add(line, offset) for line in lines.addresses]
        for index in range(many):
            behind = columns.line * index
            panel = [code.load(at, sums[0].type, behind + VECTOR * half) for half in columns.vectors]
            for half in columns.vectors if columns.ahead is not None else ():
                code.prefetch(build.add(at, columns.ahead), behind + VECTOR * half)
            if lines.ahead:
                gone = build.add(start, build.mul(build.sub(offset, start), code.word(lines.pace)))
                code.prefetch(build.add(lines.addresses[0], gone), lines.ahead)
            elements = [code.splat(code.load(row, element_type, ELEMENT * index)).value for row in rows]
            totals = [
                multiply_add(code, total, elements[place // count], panel[place % count])
                for place, total in enumerate(totals)
            ]
        return [build.add(offset, line_step), build.add(at, code.word(columns.line * many)), *totals]

    held = [start, columns.address, *sums]
    if lines.unrolled:
        dense = build.icmp_signed("==", lines.step, code.word(ELEMENT))
        many = build.select(dense, build.sdiv(depth, code.word(UNROLLED)), code.word(0))
        held = code.repeat(many, held, lambda _, held: steps(UNROLLED, code.word(ELEMENT * UNROLLED), held))
        depth = build.sub(depth, build.mul(many, code.word(UNROLLED)))
    return code.repeat(depth, held, lambda _, held: steps(1, lines.step, held))[2:]


def limit_and_store(code: Code, found: list[Any], vectors: range, target: Sequence[Any], low: Any, high: Any) -> None:
    """Store the vectors of all rows, limited.

    Args:
        target: address, bytes from row to row, and bytes from vector to vector of a row.
    """
    build, (address, row_step, vector_step) = code.builder, target
    least, most = code.splat(low).value, code.splat(high).value
    for index, total in enumerate(found):
        raised = build.select(build.fcmp_ordered("<", total, least), least, total)
        bounded = build.select(build.fcmp_ordered(">", raised, most), most, raised)
        row, half = divmod(index, len(vectors))
        place = build.add(address, build.mul(row_step, code.word(row)))
        code.store(bounded, build.add(place, build.mul(vector_step, code.word(vectors[half]))))


def tiles_by_rows(
    sizes: Sequence[int], arguments: Any, write: Callable[[Code, int, Any], None], last: Sequence[int] = ()
) -> Any:
    """A function of kernels ``(left, *arguments)``: computes the tallest tile that `left` rows hold; gives its rows.

    Args:
        sizes: rows of the tiles.
        last: rows of further tiles, for exactly as many rows left.
        arguments: the class of a NamedTuple, whose fields are addresses, integers and floats.
        write: gets `Code`, the rows of a tile and the arguments, and adds its instructions.
    """
    tallest_first = sorted(set(sizes), reverse=True)
    annotations = [getattr(kind, "__forward_arg__", kind) for kind in arguments.__annotations__.values()]

    def typed(typing: Any, *given: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            left, *others = args
            known = arguments(*others)
            return _choose(Code(builder), last, tallest_first, left, lambda code, rows: write(code, rows, known))

        kinds = [types.float32 if kind == "float" else types.int64 for kind in annotations]
        return types.int64(types.int64, *kinds), lower

    typed.__name__ = f"tile_{arguments.__name__}"
    made = intrinsic(typed)
    names = ("typing", "left", *arguments._fields)
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return made


def _choose(
    code: Code, last: Sequence[int], sizes: Sequence[int], left: Any, write: Callable[[Code, int], None]
) -> Any:
    """Instructions of a tile of `last` for as many rows, or of the first tile that is not taller than what is left; its
    rows."""
    build, (size, *others) = code.builder, [*last, *sizes]
    if not others:
        write(code, size)
        return code.word(size)
    ends = []
    with build.if_else(build.icmp_signed("==" if last else ">=", left, code.word(size))) as (fits, unfit):
        with fits:
            write(code, size)
            ends.append((code.word(size), build.block))
        with unfit:
            smaller = _choose(code, last[1:], sizes if last else others, left, write)
            ends.append((smaller, build.block))
    rows = build.phi(left.type)
    for value, block in ends:
        rows.add_incoming(value, block)
    return rows
