"""Masked byte vectors: loads that widen 8-bit lanes, stores that narrow, and 256-entry table lookup."""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..jit.isa import features
from ..jit.numba_lazy import cgutils, emitted, intrinsic, types
from .vector import LANES, kinds

_BYTES, _WORDS, _BITS = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8, 32, 1))
TABLES, MASKS = "avx512vbmi" in features(), "avx512bw" in features()
"""Whether one instruction looks up bytes, and whether one loads and stores some of them."""
_ALIGN = ir.Constant(ir.IntType(32), 1)


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.bitcast(builder.trunc(lanes, ir.IntType(LANES)), _BITS)


def _some(builder: Any, address: Any, lanes: Any) -> Any:
    if MASKS:
        return _masked(builder, address, lanes)
    with builder.if_else(_all(builder, lanes)) as (then, otherwise):
        with then:
            whole, first = builder.load(builder.inttoptr(address, _BYTES.as_pointer()), align=1), builder.block
        with otherwise:
            some, second = _masked(builder, address, lanes), builder.block
    found = builder.phi(_BYTES)
    found.add_incoming(whole, first)
    found.add_incoming(some, second)
    return found


def _all(builder: Any, lanes: Any) -> Any:
    return builder.icmp_signed("==", builder.trunc(lanes, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), -1))


def _masked(builder: Any, address: Any, lanes: Any) -> Any:
    kind = ir.FunctionType(_BYTES, [_BYTES.as_pointer(), ir.IntType(32), _BITS, _BYTES])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LANES}i8.p0")
    return builder.call(
        function,
        [
            builder.inttoptr(address, _BYTES.as_pointer()),
            _ALIGN,
            _mask(builder, lanes),
            ir.Constant(_BYTES, [0] * LANES),
        ],
    )


@emitted(lambda: kinds.I32(types.int64, types.int64))
def load_u8(build: Any, address: Any, lanes: Any) -> Any:
    """Load the u8 lanes whose bits are set in the low 16 of `lanes`; others are zero and not read."""
    return build.zext(_some(build, address, lanes), _WORDS)


@emitted(lambda: kinds.I32(types.int64, types.int64))
def load_i8(build: Any, address: Any, lanes: Any) -> Any:
    """Like `load_u8` for i8."""
    return build.sext(_some(build, address, lanes), _WORDS)


@intrinsic
def store_bytes(typing: Any, address: Any, vector: Any, lanes: Any) -> Any:
    """Write the lowest bytes of the lanes whose bits are set in the low 16 of `lanes`."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place, narrow = builder.inttoptr(args[0], _BYTES.as_pointer()), builder.trunc(args[1], _BYTES)
        if MASKS:
            _stored(builder, narrow, place, args[2])
            return context.get_dummy_value()
        with builder.if_else(_all(builder, args[2])) as (then, otherwise):
            with then:
                builder.store(narrow, place, align=1)
            with otherwise:
                _stored(builder, narrow, place, args[2])
        return context.get_dummy_value()

    return types.void(types.int64, kinds.I32, types.int64), lower


def _stored(builder: Any, narrow: Any, place: Any, lanes: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_BYTES, _BYTES.as_pointer(), ir.IntType(32), _BITS])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}i8.p0")
    builder.call(function, [narrow, place, _ALIGN, _mask(builder, lanes)])


@emitted(lambda: kinds.I32(types.int64))
def load_i32(build: Any, address: Any) -> Any:
    """Sixteen i32."""
    value = build.load(build.inttoptr(address, _WORDS.as_pointer()))
    value.align = 4
    return value


@emitted(lambda: types.void(types.int64, kinds.I32, types.int64))
def store_i32(build: Any, address: Any, vector: Any, lanes: Any) -> Any:
    """Write the lanes of i32 whose bits are set in the low 16 of `lanes`."""
    kind = ir.FunctionType(ir.VoidType(), [_WORDS, _WORDS.as_pointer(), ir.IntType(32), _BITS])
    function = cgutils.get_or_insert_function(build.module, kind, f"llvm.masked.store.v{LANES}i32.p0")
    build.call(function, [vector, build.inttoptr(address, _WORDS.as_pointer()), _ALIGN, _mask(build, lanes)])


@emitted(lambda: types.void(*[types.int64] * 4))
def lookup_bytes(build: Any, table: Any, source: Any, target: Any, count: Any) -> Any:
    """Up to sixty-four bytes by a table of 256."""
    many, word, flags = ir.VectorType(ir.IntType(8), 64), ir.IntType(64), ir.VectorType(ir.IntType(1), 64)
    at = lambda address: build.inttoptr(address, many.as_pointer())  # noqa: E731
    bits = build.lshr(ir.Constant(word, -1), build.sub(ir.Constant(word, 64), count))
    chosen, zeros = build.bitcast(bits, flags), ir.Constant(many, [0] * 64)
    load = ir.FunctionType(many, [many.as_pointer(), ir.IntType(32), flags, many])
    load = cgutils.get_or_insert_function(build.module, load, "llvm.masked.load.v64i8.p0")
    codes = build.call(load, [at(source), _ALIGN, chosen, zeros])
    parts = [build.load(at(build.add(table, ir.Constant(word, 64 * part))), align=1) for part in range(4)]
    kind = ir.FunctionType(many, [many] * 3)
    permute = cgutils.get_or_insert_function(build.module, kind, "llvm.x86.avx512.vpermi2var.qi.512")
    low, high = (build.call(permute, [parts[2 * half], codes, parts[2 * half + 1]]) for half in range(2))
    found = build.select(build.icmp_signed("<", codes, zeros), high, low)
    store = ir.FunctionType(ir.VoidType(), [many, many.as_pointer(), ir.IntType(32), flags])
    store = cgutils.get_or_insert_function(build.module, store, "llvm.masked.store.v64i8.p0")
    build.call(store, [found, at(target), _ALIGN, chosen])


@emitted(lambda: types.void(*[types.int64] * 3))
def copy_bytes(build: Any, source: Any, target: Any, count: Any) -> Any:
    """Copy some bytes, up to sixty-four at a time; `count` is positive."""
    many, flags, word = ir.VectorType(ir.IntType(8), 64), ir.VectorType(ir.IntType(1), 64), ir.IntType(64)
    load = ir.FunctionType(many, [many.as_pointer(), ir.IntType(32), flags, many])
    load = cgutils.get_or_insert_function(build.module, load, "llvm.masked.load.v64i8.p0")
    store = ir.FunctionType(ir.VoidType(), [many, many.as_pointer(), ir.IntType(32), flags])
    store = cgutils.get_or_insert_function(build.module, store, "llvm.masked.store.v64i8.p0")
    step, zeros = ir.Constant(word, 64), ir.Constant(many, [0] * 64)
    with cgutils.for_range_slice(build, ir.Constant(word, 0), count, step, inc=True) as (index, _):
        left = build.sub(count, index)
        whole = build.icmp_signed(">", left, step)
        gone = build.select(whole, ir.Constant(word, 0), build.sub(step, left))
        chosen = build.bitcast(build.lshr(ir.Constant(word, -1), gone), flags)
        at = [build.inttoptr(build.add(base, index), many.as_pointer()) for base in (source, target)]
        build.call(store, [build.call(load, [at[0], _ALIGN, chosen, zeros]), at[1], _ALIGN, chosen])
