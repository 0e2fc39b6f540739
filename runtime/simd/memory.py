"""Vector loads and stores by address: f16 and bf16 widened, masks, prefetch, lane sums, exp and tanh."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from ..jit.address import f32 as single
from ..jit.address import u16
from ..jit.isa import features
from ..jit.numba_lazy import cgutils, emitted, intrinsic, types
from ..jit.range_kernel import inlined, inner
from .vector import LANES, bits, from_bits, kinds, select

f32 = np.float32
i32 = np.int32
STREAMED, STREAM_ALIGNMENT = 1 << 22, 16
"""Bytes from which results pass by the caches (`stream_f32`), and what their address is a multiple of then."""
F32_CODE, F16_CODE, BF16_CODE = 0, 1, 2
"""Codes of storage dtypes."""
DTYPE_CODES = {"float32": F32_CODE, "float16": F16_CODE, "bfloat16": BF16_CODE}

SLOW_MASKS, _QUARTER = "avx2" in features() and "avx512f" not in features(), LANES // 4
"""Whether stores with a mask are `vmaskmovps`, which takes 12 cycles on AMD's processors up to Zen 4 and so is worth a
branch; lanes of the pieces that need none."""

_FLOATS, _F16S = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.HalfType()))
_WORDS, _SHORTS = (ir.VectorType(ir.IntType(bits), LANES) for bits in (32, 16))


def _function(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _constant(kind: Any, value: Any) -> Any:
    return ir.Constant(kind, [value] * LANES)


def _loaded(builder: Any, address: Any, kind: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def _stored(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


@emitted(lambda: kinds.F32(types.int64))
def load_f32(build: Any, address: Any) -> Any:
    """Sixteen f32."""
    return _loaded(build, address, _FLOATS)


@emitted(lambda: kinds.F32(types.int64))
def load_even(build: Any, address: Any) -> Any:
    """Elements 0, 2, ... 30 of 31 f32."""
    ahead = build.add(address, ir.Constant(ir.IntType(64), 4 * (LANES - 1)))
    low, high = _loaded(build, address, _FLOATS), _loaded(build, ahead, _FLOATS)
    places = [2 * lane if 2 * lane < LANES else 2 * lane + 1 for lane in range(LANES)]
    return build.shuffle_vector(low, high, ir.Constant(_WORDS, places))


def _mask(builder: Any, lanes: Any) -> Any:
    return builder.bitcast(builder.trunc(lanes, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))


@emitted(lambda: kinds.F32(types.int64, types.int64))
def load_masked(build: Any, address: Any, lanes: Any) -> Any:
    """Load the f32 lanes whose bits are set in the low 16 of `lanes`; others are zero and not read."""
    place, align = build.inttoptr(address, _FLOATS.as_pointer()), ir.Constant(ir.IntType(32), 1)
    return _function(
        build, "llvm.masked.load.v16f32.p0", _FLOATS, [place, align, _mask(build, lanes), _constant(_FLOATS, 0.0)]
    )


def _store_some(builder: Any, address: Any, value: Any, mask: Any) -> None:
    place, align = builder.inttoptr(address, value.type.as_pointer()), ir.Constant(ir.IntType(32), 1)
    name = f"llvm.masked.store.v{value.type.count}f32.p0"
    _function(builder, name, ir.VoidType(), [value, place, align, mask])


def _store_pieces(builder: Any, address: Any, value: Any, mask: Any) -> None:
    """Full vectors, and full quarters of others, are stored without a mask."""
    with builder.if_else(builder.icmp_unsigned("==", mask, mask.type(-1))) as (full, partial):
        with full:
            _stored(builder, address, value)
        with partial:
            for start in range(0, LANES, _QUARTER):
                bits = builder.trunc(builder.lshr(mask, mask.type(start)), ir.IntType(_QUARTER))
                places = ir.Constant(ir.VectorType(ir.IntType(32), _QUARTER), list(range(start, start + _QUARTER)))
                piece = builder.shuffle_vector(value, value, places)
                to = builder.add(address, ir.Constant(ir.IntType(64), 4 * start))
                with builder.if_else(builder.icmp_unsigned("==", bits, bits.type(-1))) as (whole, rest):
                    with whole:
                        _stored(builder, to, piece)
                    with rest, builder.if_then(builder.icmp_unsigned("!=", bits, bits.type(0))):
                        some = builder.bitcast(bits, ir.VectorType(ir.IntType(1), _QUARTER))
                        _store_some(builder, to, piece, some)


@emitted(lambda: types.void(types.int64, kinds.F32, types.int64))
def store_masked(build: Any, address: Any, value: Any, lanes: Any) -> Any:
    """Write the lanes whose bits are set in the low 16 of `lanes`."""
    if SLOW_MASKS:
        _store_pieces(build, address, value, build.trunc(lanes, ir.IntType(LANES)))
    else:
        _store_some(build, address, value, _mask(build, lanes))


@inner
def load_n(address: int, count: int) -> Any:
    """Sixteen f32, of which the first `count` are read where that is less, and the others are zero."""
    return load_f32(address) if count >= LANES else load_masked(address, (1 << count) - 1)


@inner
def store_n(address: int, vector: Any, count: int) -> None:
    """Write the first `count` lanes, at most sixteen."""
    if count >= LANES:
        store_f32(address, vector)
    else:
        store_masked(address, vector, (1 << count) - 1)


def _prefetch(name: str, text: str, writing: int) -> Any:
    def prefetch(typing: Any, address: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            place = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [place.type, *[ir.IntType(32)] * 3])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [place, *(ir.Constant(ir.IntType(32), number) for number in (writing, 3, 1))])
            return context.get_dummy_value()

        return types.void(types.int64), lower

    prefetch.__name__, prefetch.__doc__ = name, text
    return intrinsic(prefetch)


prefetch_read = _prefetch("prefetch_read", "Ask for a line of memory that will be read.", 0)
prefetch_write = _prefetch("prefetch_write", "Ask for a line of memory that will be written.", 1)


def _shuffled(name: str, text: str, places: Sequence[int]) -> Any:
    def shuffled(typing: Any, low: Any, high: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.shuffle_vector(args[0], args[1], ir.Constant(_WORDS, list(places)))

        return kinds.F32(kinds.F32, kinds.F32), lower

    shuffled.__name__, shuffled.__doc__ = name, text
    return intrinsic(shuffled)


evens = _shuffled("evens", "The even lanes of two vectors.", range(0, 2 * LANES, 2))
odds = _shuffled("odds", "The odd lanes of two vectors.", range(1, 2 * LANES, 2))
zip_low = _shuffled(
    "zip_low",
    "Lanes of two vectors in turn, of their first halves.",
    [lane // 2 + lane % 2 * LANES for lane in range(LANES)],
)
zip_high = _shuffled(
    "zip_high",
    "As `zip_low`, of their second halves.",
    [(lane + LANES) // 2 + lane % 2 * LANES for lane in range(LANES)],
)


@emitted(lambda: kinds.F32(types.int64))
def load_f16(build: Any, address: Any) -> Any:
    """Sixteen f16."""
    return build.fpext(_loaded(build, address, _F16S), _FLOATS)


@emitted(lambda: kinds.F32(types.int64))
def load_bf16(build: Any, address: Any) -> Any:
    """Sixteen bf16."""
    wide = build.zext(_loaded(build, address, _SHORTS), _WORDS)
    return build.bitcast(build.shl(wide, _constant(_WORDS, 16)), _FLOATS)


@emitted(lambda: kinds.F32(types.int64))
def load_i8(build: Any, address: Any) -> Any:
    """Sixteen signed bytes."""
    kind = ir.VectorType(ir.IntType(8), LANES)
    return build.sitofp(build.sext(_loaded(build, address, kind), _WORDS), _FLOATS)


@emitted(lambda: types.void(types.int64, kinds.F32))
def store_f32(build: Any, address: Any, vector: Any) -> Any:
    """Write sixteen f32."""
    _stored(build, address, vector)


@intrinsic
def stream_f32(typing: Any, address: Any, vector: Any) -> Any:
    """Write sixteen f32 to an address that is a multiple of 16, past the caches: for results larger than these that
    are read much later. What ends a part is an atomic operation, which waits for these writes."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word, lane = ir.IntType(64), ir.IntType(32)
        passing = builder.module.add_metadata([ir.Constant(lane, 1)])
        kind, unknown = ir.VectorType(ir.FloatType(), 4), ir.Constant(args[1].type, ir.Undefined)
        for start in range(0, LANES, 4):
            lanes = ir.Constant(ir.VectorType(lane, 4), [*range(start, start + 4)])
            place = builder.inttoptr(builder.add(args[0], ir.Constant(word, 4 * start)), kind.as_pointer())
            stored = builder.store(builder.shuffle_vector(args[1], unknown, lanes), place, align=16)
            stored.set_metadata("nontemporal", passing)
        return context.get_dummy_value()

    return types.void(types.int64, vector), lower


@emitted(lambda: types.void(types.int64, kinds.F32))
def store_f16(build: Any, address: Any, vector: Any) -> Any:
    """Write sixteen f16, rounded to nearest even."""
    _stored(build, address, build.fptrunc(vector, _F16S))


@emitted(lambda: types.void(types.int64, kinds.F32))
def store_bf16(build: Any, address: Any, vector: Any) -> Any:
    """Write sixteen bf16, rounded to nearest even; NaN stays NaN."""
    word = build.bitcast(vector, _WORDS)
    odd = build.and_(build.lshr(word, _constant(_WORDS, 16)), _constant(_WORDS, 1))
    rounded = build.lshr(build.add(build.add(word, _constant(_WORDS, 0x7FFF)), odd), _constant(_WORDS, 16))
    chosen = build.select(build.fcmp_unordered("uno", vector, vector), _constant(_WORDS, 0x7FC0), rounded)
    _stored(build, address, build.trunc(chosen, _SHORTS))


@emitted(lambda: kinds.F32(kinds.F32, kinds.F32, kinds.F32))
def fma(build: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""
    return _function(build, f"llvm.fma.v{LANES}f32", _FLOATS, [a, b, c])


@emitted(lambda: kinds.F32(kinds.F32))
def nearest(build: Any, x: Any) -> Any:
    """Lanes rounded to integers, ties to even."""
    return _function(build, f"llvm.rint.v{LANES}f32", _FLOATS, [x])


def _folded(build: Any, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
    """One value of all lanes: the halves of a vector are joined until one lane is left."""
    width = LANES
    while width > 1:
        width //= 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width))) for start in (0, width)
        )
        vector = join(build.shuffle_vector(vector, vector, low), build.shuffle_vector(vector, vector, high))
    return build.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@emitted(lambda: types.float32(kinds.F32))
def lane_sum(build: Any, vector: Any) -> Any:
    """The sum of all lanes, added pairwise."""
    return _folded(build, vector, build.fadd)


@emitted(lambda: types.float32(kinds.F32))
def lane_max(build: Any, vector: Any) -> Any:
    """The maximum of all lanes; NaN if a lane is NaN."""
    return _folded(build, vector, lambda low, high: _maximum(build, low, high))


def _maximum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.or_(builder.fcmp_unordered("uno", a, a), builder.fcmp_ordered(">", a, b)), a, b)


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """The maximum in each lane; NaN if either is NaN."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _maximum(builder, args[0], args[1])

    kind = kinds.F32 if kinds.F32 in (a, b) else types.float32
    return kind(kind, kind), lower


@emitted(lambda: kinds.MASK(types.int64))
def flags(build: Any, address: Any) -> Any:
    """Sixteen bytes as a mask: set where they are not zero."""
    kind = ir.VectorType(ir.IntType(8), LANES)
    return build.icmp_unsigned("!=", _loaded(build, address, kind), _constant(kind, 0))


@inlined
def exp16(x: Any) -> Any:
    """e to the power of each lane; zero below -87.3, the largest power at 88."""
    low, high, shift = f32(-87.3), f32(88.0), f32(1.5 * 2**23 + 127)
    bounded = select(x < low, low, x)
    bounded = select(bounded > high, high, bounded)
    shifted = fma(bounded, f32(1.44269504088896341), shift)
    n = shifted - shift
    r = fma(n, f32(-0.693359375), bounded)
    r = fma(n, f32(2.12194440e-4), r)
    p = fma(r, f32(1.9875691500e-4), f32(1.3981999507e-3))
    p = fma(p, r, f32(8.3334519073e-3))
    p = fma(p, r, f32(4.1665795894e-2))
    p = fma(p, r, f32(1.6666665459e-1))
    p = fma(p, r, f32(5.0000001201e-1))
    y = (fma(p, r * r, r) + f32(1)) * from_bits(bits(shifted) << i32(23))
    return select(x < low, f32(0), y)


@inlined
def tanh16(x: Any) -> Any:
    """Hyperbolic tangent of each lane."""
    size = abs(x)
    z = x * x
    p = fma(z, f32(-5.70498872745e-3), f32(2.06390887954e-2))
    p = fma(p, z, f32(-5.37397155531e-2))
    p = fma(p, z, f32(1.33314422036e-1))
    p = fma(p, z, f32(-3.33332819422e-1))
    near = fma(p * z, size, size)
    far = f32(1) - f32(2) / (exp16(size + size) + f32(1))
    y = select(size < f32(0.625), near, far)
    return select(x < f32(0), -y, y)


@inlined
def sigmoid16(x: Any) -> Any:
    """1 / (1 + e to the power -x) in each lane; the power is `exp16`'s, within the range of normal numbers."""
    low, high, shift = f32(-88.0), f32(87.3), f32(1.5 * 2**23 + 127)
    bounded = select(x > high, high, select(x < low, low, x))
    shifted = fma(bounded, f32(-1.44269504088896341), shift)
    n = shift - shifted
    r = fma(n, f32(0.693359375), -bounded)
    r = fma(n, f32(-2.12194440e-4), r)
    p = fma(r, f32(1.9875691500e-4), f32(1.3981999507e-3))
    p = fma(p, r, f32(8.3334519073e-3))
    p = fma(p, r, f32(4.1665795894e-2))
    p = fma(p, r, f32(1.6666665459e-1))
    p = fma(p, r, f32(5.0000001201e-1))
    power = (fma(p, r * r, r) + f32(1)) * from_bits(bits(shifted) << i32(23))
    return f32(1) / (f32(1) + power)


NORMAL_CDF_END = 5.4
"""Magnitude up to which `NORMAL_CDF` holds."""
NORMAL_CDF = (
    (0.3989422619342804, 0.03302924707531929, 0.004628954455256462,
     0.00016069352568592876, 6.3236907408281695e-06, 2.3591006481638033e-08),
    (1.0, 0.24945850670337677, 0.028180021792650223,
     0.001838646363466978, 7.117233326425776e-05, 1.2198219110359787e-06),
)  # fmt: skip
"""Coefficients of two polynomials p and q of x squared: ``1/2 + x p / q`` is the standard normal distribution function,
to 2e-7 in f32 (a minimax fit by Lawson's iteration)."""


@inlined
def gelu16(x: Any) -> Any:
    """x times the standard normal distribution function of x in each lane, to 3e-7 of x."""
    end, zero = f32(NORMAL_CDF_END), f32(0)
    bounded = select(x < -end, -end, select(x > end, end, x))
    z = bounded * bounded
    p = fma(z, f32(NORMAL_CDF[0][5]), f32(NORMAL_CDF[0][4]))
    q = fma(z, f32(NORMAL_CDF[1][5]), f32(NORMAL_CDF[1][4]))
    p, q = fma(p, z, f32(NORMAL_CDF[0][3])), fma(q, z, f32(NORMAL_CDF[1][3]))
    p, q = fma(p, z, f32(NORMAL_CDF[0][2])), fma(q, z, f32(NORMAL_CDF[1][2]))
    p, q = fma(p, z, f32(NORMAL_CDF[0][1])), fma(q, z, f32(NORMAL_CDF[1][1]))
    p, q = fma(p, z, f32(NORMAL_CDF[0][0])), fma(q, z, f32(NORMAL_CDF[1][0]))
    return x * select(x < -end, zero, bounded * p / q + f32(0.5))


@emitted(lambda: types.float32(types.int64))
def _half(build: Any, address: Any) -> Any:
    value = build.load(build.inttoptr(address, ir.HalfType().as_pointer()))
    value.align = 2
    return build.fpext(value, ir.FloatType())


@emitted(lambda: types.void(types.int64, types.float32))
def _to_half(build: Any, address: Any, value: Any) -> Any:
    build.store(build.fptrunc(value, ir.HalfType()), build.inttoptr(address, ir.HalfType().as_pointer()), align=2)


@inner
def load_one(kind: Any, address: Any) -> Any:
    """Load one element of a storage dtype as f32."""
    if kind == F32_CODE:
        return single(address)[0]
    if kind == F16_CODE:
        return _half(address)
    return from_bits(i32(u16(address)[0]) << i32(16))


@inner
def store_one(kind: Any, address: Any, value: Any) -> None:
    """Store one f32 in a storage dtype."""
    if kind == F32_CODE:
        single(address)[0] = value
    elif kind == F16_CODE:
        _to_half(address, value)
    elif value != value:
        u16(address)[0] = 0x7FC0
    else:
        word = np.int64(bits(f32(value))) & 0xFFFFFFFF
        u16(address)[0] = (word + 0x7FFF + ((word >> 16) & 1)) >> 16


@inner
def widen(kind: Any, source: Any, target: Any, count: Any, factor: Any) -> None:
    """Convert `count` elements of a storage dtype to f32, multiplied by `factor`."""
    whole = count - count % LANES
    if kind == F32_CODE:
        for j in range(0, whole, LANES):
            store_f32(target + 4 * j, load_f32(source + 4 * j) * factor)
    elif kind == F16_CODE:
        for j in range(0, whole, LANES):
            store_f32(target + 4 * j, load_f16(source + 2 * j) * factor)
    else:
        for j in range(0, whole, LANES):
            store_f32(target + 4 * j, load_bf16(source + 2 * j) * factor)
    width = 4 if kind == F32_CODE else 2
    for j in range(whole, count):
        single(target)[j] = load_one(kind, source + width * j) * factor


@inner
def narrow(kind: Any, source: Any, target: Any, count: Any, factor: Any) -> None:
    """Convert `count` f32, multiplied by `factor`, to a storage dtype."""
    whole = count - count % LANES
    if kind == F32_CODE:
        for j in range(0, whole, LANES):
            store_f32(target + 4 * j, load_f32(source + 4 * j) * factor)
    elif kind == F16_CODE:
        for j in range(0, whole, LANES):
            store_f16(target + 2 * j, load_f32(source + 4 * j) * factor)
    else:
        for j in range(0, whole, LANES):
            store_bf16(target + 2 * j, load_f32(source + 4 * j) * factor)
    width = 4 if kind == F32_CODE else 2
    for j in range(whole, count):
        store_one(kind, target + width * j, single(source)[j] * factor)
