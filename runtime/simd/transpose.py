"""In-register transpose of 16 x 16 f32 tiles."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ..jit.numba_lazy import cgutils, intrinsic, types
from .memory import SLOW_MASKS
from .vector import LANES

_VECTOR, _WORD = ir.VectorType(ir.FloatType(), LANES), ir.IntType(64)
_ROUNDS = LANES.bit_length() - 1


def _at(builder: Any, address: Any, step: Any, row: int) -> Any:
    place = builder.add(address, builder.mul(step, ir.Constant(_WORD, row)))
    return builder.inttoptr(place, _VECTOR.as_pointer())


def _mask(builder: Any, rows: Any, row: int, lanes: Any) -> Any:
    some = builder.select(builder.icmp_signed(">", rows, ir.Constant(_WORD, row)), lanes, ir.Constant(_WORD, 0))
    return builder.bitcast(builder.trunc(some, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))


def _loaded(builder: Any, place: Any) -> Any:
    value = builder.load(place)
    value.align = 4
    return value


def _read_some(builder: Any, place: Any, mask: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [place.type, ir.IntType(32), mask.type, _VECTOR])
    load = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
    return builder.call(load, [place, ir.Constant(ir.IntType(32), 4), mask, ir.Constant(_VECTOR, [0.0] * LANES)])


def _write_some(builder: Any, value: Any, place: Any, mask: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_VECTOR, place.type, ir.IntType(32), mask.type])
    store = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
    builder.call(store, [value, place, ir.Constant(ir.IntType(32), 4), mask])


def _transpose_tile(builder: Any, rows: list[Any]) -> list[Any]:
    """Each round interleaves rows of the first and second half; after four rounds they are columns."""
    half = LANES // 2
    words = ir.VectorType(ir.IntType(32), LANES)
    low, high = ([start + lane // 2 + lane % 2 * LANES for lane in range(LANES)] for start in (0, half))
    for _ in range(_ROUNDS):
        dealt = []
        for first, second in zip(rows[:half], rows[half:], strict=True):
            dealt += [builder.shuffle_vector(first, second, ir.Constant(words, places)) for places in (low, high)]
        rows = dealt
    return rows


def _block(text: str, part_of_source: bool) -> Callable[..., Any]:
    def transposed(
        typing: Any, source: Any, source_step: Any, target: Any, target_step: Any, rows: Any, lanes: Any
    ) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            source, source_step, target, target_step, rows, lanes = args
            places = [_at(builder, source, source_step, row) for row in range(LANES)]
            if part_of_source:
                found = [
                    _read_some(builder, place, _mask(builder, rows, row, lanes)) for row, place in enumerate(places)
                ]
            else:
                found = [_loaded(builder, place) for place in places]
            columns = _transpose_tile(builder, found)

            def write(masked: bool) -> None:
                for row, value in enumerate(columns):
                    place = _at(builder, target, target_step, row)
                    if masked:
                        _write_some(builder, value, place, _mask(builder, rows, row, lanes))
                    else:
                        builder.store(value, place, align=4)

            if part_of_source or not SLOW_MASKS:
                write(masked=not part_of_source)
            else:
                every = builder.icmp_signed(">=", rows, ir.Constant(_WORD, LANES))
                full = builder.icmp_unsigned("==", builder.trunc(lanes, ir.IntType(LANES)), ir.IntType(LANES)(-1))
                with builder.if_else(builder.and_(every, full)) as (whole, partial):
                    with whole:
                        write(masked=False)
                    with partial:
                        write(masked=True)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), lower

    transposed.__doc__ = text
    made: Callable[..., Any] = intrinsic(transposed)
    return made


load_columns = _block(
    "Transpose the masked lanes of `rows` source rows into a full 16 x 16 block; the rest is zero.", True
)
store_columns = _block("Transpose a full 16 x 16 block into `rows` target rows; only masked lanes are written.", False)
