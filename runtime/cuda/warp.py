"""Instructions of a whole warp: products of small matrices on tensor cores, loads of their operands, copies that do not wait.

Each is one instruction of PTX on a card, chosen by its compute capability when a kernel is compiled; the simulator follows `fragment.py`.
All 32 threads of a warp take part, under the simulator all threads of the block.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .fragment import LANES, exchange, shape_of
from .machine import SIMULATED

if SIMULATED:

    def _product(kind: str, depth: int) -> Callable[..., Any]:
        shape = shape_of(kind, depth)
        sums = shape.rows // 4

        def multiply(*registers: Any) -> Any:
            lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]

            def whole(given: Any) -> Any:
                totals = np.array([item[:sums] for item in given], shape.total)
                rest = np.array([[int(number) for number in item[sums:]] for item in given], np.int64).astype(np.int32)
                return shape.multiplied(totals, rest[:, : shape.a], rest[:, shape.a :])

            return tuple(exchange().shared(registers, whole)[lane])

        return multiply

    multiply_f16, multiply_bf16 = _product("f16", 16), _product("bf16", 16)
    multiply_s8, multiply_s8_half = _product("s8", 32), _product("s8", 16)

    def load_four(array: Any, place: Any) -> Any:
        """Four matrices of 8 rows of 16 bytes; thread ``l`` gives the place of row ``l % 8`` of matrix ``l // 8``."""
        lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]

        def whole(places: Any) -> Any:
            rows = np.array([np.asarray(array[start : start + 4]) for start in places]).reshape(4, 8, 4)
            return rows.reshape(4, LANES).T.astype(np.int32)

        return tuple(exchange().shared(int(place), whole)[lane])

    def load_four_turned(array: Any, place: Any) -> Any:
        """The same of four matrices of 8 by 8 halves, each transposed."""
        lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]

        def whole(places: Any) -> Any:
            rows = np.array([np.asarray(array[start : start + 4]) for start in places], np.int32).view(np.uint16).reshape(4, 8, 8)
            turned = np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(4, -1).view(np.int32)
            return turned.reshape(4, LANES).T

        return tuple(exchange().shared(int(place), whole)[lane])

    def copy_sixteen(target: Any, place: Any, source: Any, start: Any, there: Any) -> None:
        """Four words of a shared array from four of a device array, zeros where `there` is false; done after `await_copies`."""
        for item in range(4):
            target[place + item] = source[start + item] if there else 0

    def close_copies() -> None:
        """The copies so far belong together."""

    def await_copies(later: Any) -> None:
        """Wait until all but the `later` groups closed last are done."""

    def exchanged(value: Any, mask: Any) -> Any:
        """The number of the thread whose place in the warp differs by the bits of `mask`."""
        lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]
        return exchange().shared(value, lambda given: given)[lane ^ int(mask)]

    def pair(low: Any, high: Any) -> Any:
        """Two numbers of half precision in a word."""
        return np.array([low, high], np.float32).astype(np.float16).view(np.int32)[0]

    def brain_pair(low: Any, high: Any) -> Any:
        """Two numbers of bfloat16 in a word."""
        import ml_dtypes

        return np.array([low, high], np.float32).astype(ml_dtypes.bfloat16).view(np.int32)[0]

    def sixteen(array: Any, place: Any) -> Any:
        """Four neighbouring words, integers or floats, of device memory, the first at a multiple of four."""
        if int(place) % 4:
            raise RuntimeError("sixteen bytes are read from where they cannot be")
        return tuple(array[place + item] for item in range(4))

    def permuted(low: Any, high: Any, chosen: Any) -> Any:
        """Four of the eight bytes of two words, each by the lowest three bits of four of `chosen`."""
        held = np.array([low, high], np.int32).view(np.uint8)
        return held[[(int(chosen) >> 4 * item) & 7 for item in range(4)]].copy().view(np.int32)[0]

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.core import targetconfig
    from numba.cuda.extending import intrinsic

    _F32, _I32, _I64, _VOID = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.VoidType()

    def _capability() -> Any:
        return targetconfig.ConfigStack().top().compute_capability

    def _called(builder: Any, text: str, constraint: str, result: Any, values: Any, effect: bool = True, together: bool = False) -> Any:
        """An instruction; one that all threads of a warp carry out `together` is never copied or moved to where only some of them come."""
        kind = ir.FunctionType(result, [value.type for value in values])
        return builder.call(ir.InlineAsm(kind, text, constraint, side_effect=effect), values, attrs=("convergent",) if together else ())

    def _matrices(builder: Any, name: str, sums: Any, a: Any, b: Any) -> list[Any]:
        """One instruction; the sums go in and come out of the same registers."""
        letter = "f" if sums[0].type == _F32 else "r"
        count, numbers = len(sums), iter(range(100))
        groups = ["{" + ", ".join(f"${next(numbers)}" for _ in items) + "}" for items in (sums, a, b)]
        constraint = ",".join([*[f"={letter}"] * count, *["r"] * (len(a) + len(b)), *map(str, range(count))])
        made = ir.LiteralStructType([sums[0].type] * count)
        text = f"{name} {groups[0]}, {groups[1]}, {groups[2]}, {groups[0]};"
        found = _called(builder, text, constraint, made, [*a, *b, *sums], effect=False, together=True)
        return [builder.extract_value(found, item) for item in range(count)]

    def _tuple(builder: Any, items: Any) -> Any:
        found = ir.Constant(ir.ArrayType(items[0].type, len(items)), ir.Undefined)
        for place, item in enumerate(items):
            found = builder.insert_value(found, item, place)
        return found

    def _halves(kind: str, builder: Any, sums: Any, a: Any, b: Any) -> list[Any]:
        if _capability() >= (8, 0):
            return _matrices(builder, f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32", sums, a, b)
        if kind != "f16":
            raise ValueError("products of bfloat16 need compute capability 8.0")
        for deep in range(2):
            sums = _matrices(builder, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", sums, a[2 * deep : 2 * deep + 2], b[deep : deep + 1])
        return list(sums)

    def _bytes(builder: Any, sums: Any, a: Any, b: Any) -> list[Any]:
        if _capability() >= (8, 0):
            return _matrices(builder, f"mma.sync.aligned.m16n8k{16 * len(b)}.row.col.s32.s8.s8.s32", sums, a, b)
        for deep, right in enumerate(b):
            for side in range(2):
                name = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
                sums[2 * side : 2 * side + 2] = _matrices(builder, name, sums[2 * side : 2 * side + 2], [a[2 * deep + side]], [right])
        return list(sums)

    def _multiply(total: Any, lower: Any, a: int, b: int) -> Any:
        def made(builder: Any, args: Any) -> Any:
            return _tuple(builder, lower(builder, list(args[:4]), list(args[4 : 4 + a]), list(args[4 + a :])))

        return types.UniTuple(total, 4), made

    @intrinsic
    def multiply_f16(typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any) -> Any:
        """Four sums and the products of halves: [16, 16] by [16, 8]."""
        result, made = _multiply(types.float32, lambda *items: _halves("f16", *items), 4, 2)
        return result(*[types.float32] * 4, *[types.int32] * 6), lambda context, builder, sig, args: made(builder, args)

    @intrinsic
    def multiply_bf16(typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any) -> Any:
        """Four sums and the products of bfloat16 numbers: [16, 16] by [16, 8]."""
        result, made = _multiply(types.float32, lambda *items: _halves("bf16", *items), 4, 2)
        return result(*[types.float32] * 4, *[types.int32] * 6), lambda context, builder, sig, args: made(builder, args)

    @intrinsic
    def multiply_s8(typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any) -> Any:
        """Four sums and the products of signed bytes: [16, 32] by [32, 8]."""
        result, made = _multiply(types.int32, _bytes, 4, 2)
        return result(*[types.int32] * 10), lambda context, builder, sig, args: made(builder, args)

    @intrinsic
    def multiply_s8_half(typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, b0: Any) -> Any:
        """Four sums and the products of signed bytes: [16, 16] by [16, 8]."""
        result, made = _multiply(types.int32, _bytes, 2, 1)
        return result(*[types.int32] * 7), lambda context, builder, sig, args: made(builder, args)

    def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
        found = builder.gep(context.make_array(kind)(context, builder, array).data, [place])
        return builder.ptrtoint(found, _I64)

    _SHARED = "{ .reg .u64 at; cvta.to.shared.u64 at, $4; "
    _GLOBAL = "{ .reg .u64 at, from; cvta.to.shared.u64 at, $0; cvta.to.global.u64 from, $1; "

    def _four(turned: str) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _address(context, builder, sig.args[0], *args)
            text = _SHARED + f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0, $1, $2, $3}}, [at]; }}"
            found = _called(builder, text, "=r,=r,=r,=r,l,~{memory}", ir.LiteralStructType([_I32] * 4), [where], together=True)
            return _tuple(builder, [builder.extract_value(found, item) for item in range(4)])

        return lower

    @intrinsic
    def load_four(typing: Any, array: Any, place: Any) -> Any:
        """Four matrices of 8 rows of 16 bytes; thread ``l`` gives the place of row ``l % 8`` of matrix ``l // 8``."""
        return types.UniTuple(types.int32, 4)(array, types.intp), _four("")

    @intrinsic
    def load_four_turned(typing: Any, array: Any, place: Any) -> Any:
        """The same of four matrices of 8 by 8 halves, each transposed."""
        return types.UniTuple(types.int32, 4)(array, types.intp), _four(".trans")

    @intrinsic
    def copy_sixteen(typing: Any, target: Any, place: Any, source: Any, start: Any, there: Any) -> Any:
        """Four words of a shared array from four of a device array, zeros where `there` is false; done after `await_copies`."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, since = (_address(context, builder, sig.args[item], args[item], args[item + 1]) for item in (0, 2))
            asked = builder.select(args[4], ir.Constant(_I32, 16), ir.Constant(_I32, 0))
            if _capability() >= (8, 0):
                text = _GLOBAL + "cp.async.cg.shared.global [at], [from], 16, $2; }"
            else:
                text = (
                    "{ .reg .u64 at, from; .reg .pred some; .reg .b32 w0, w1, w2, w3; cvta.to.shared.u64 at, $0; cvta.to.global.u64 from, $1; "
                    "mov.b32 w0, 0; mov.b32 w1, 0; mov.b32 w2, 0; mov.b32 w3, 0; setp.ne.b32 some, $2, 0; "
                    "@some ld.global.v4.b32 {w0, w1, w2, w3}, [from]; st.shared.v4.b32 [at], {w0, w1, w2, w3}; }"
                )
            _called(builder, text, "l,l,r,~{memory}", _VOID, [to, since, asked])
            return context.get_dummy_value()

        return types.void(target, types.intp, source, types.intp, types.boolean), lower

    @intrinsic
    def close_copies(typing: Any) -> Any:
        """The copies so far belong together."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if _capability() >= (8, 0):
                _called(builder, "cp.async.commit_group;", "~{memory}", _VOID, [])
            return context.get_dummy_value()

        return types.void(), lower

    @intrinsic
    def await_copies(typing: Any, later: Any) -> Any:
        """Wait until all but the `later` groups closed last are done."""
        if not isinstance(later, types.IntegerLiteral):
            return None
        count = later.literal_value

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if _capability() >= (8, 0):
                _called(builder, f"cp.async.wait_group {count};", "~{memory}", _VOID, [])
            return context.get_dummy_value()

        return types.void(later), lower

    @intrinsic
    def exchanged(typing: Any, value: Any, mask: Any) -> Any:
        """The number of the thread whose place in the warp differs by the bits of `mask`."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            word = builder.bitcast(args[0], _I32) if value == types.float32 else args[0]
            found = _called(builder, "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;", "=r,r,r", _I32, [word, args[1]], together=True)
            return builder.bitcast(found, _F32) if value == types.float32 else found

        return value(value, types.int32), lower

    def _paired(kind: str) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if kind == "f16":
                text = "{ .reg .b16 low, high; cvt.rn.f16.f32 low, $1; cvt.rn.f16.f32 high, $2; mov.b32 $0, {low, high}; }"
            else:
                text = "cvt.rn.bf16x2.f32 $0, $2, $1;"
            return _called(builder, text, "=r,f,f", _I32, args, effect=False)

        return types.int32(types.float32, types.float32), lower

    @intrinsic
    def pair(typing: Any, low: Any, high: Any) -> Any:
        """Two numbers of half precision in a word."""
        return _paired("f16")

    @intrinsic
    def brain_pair(typing: Any, low: Any, high: Any) -> Any:
        """Two numbers of bfloat16 in a word."""
        return _paired("bf16")

    @intrinsic
    def sixteen(typing: Any, array: Any, place: Any) -> Any:
        """Four neighbouring words, integers or floats, of device memory, the first at a multiple of four."""

        element, letter = (_F32, "f") if array.dtype == types.float32 else (_I32, "r")

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _address(context, builder, sig.args[0], *args)
            text = "ld.global.v4.b32 {$0, $1, $2, $3}, [$4];"
            constraint = ",".join([*[f"={letter}"] * 4, "l", "~{memory}"])
            found = _called(builder, text, constraint, ir.LiteralStructType([element] * 4), [where])
            return _tuple(builder, [builder.extract_value(found, item) for item in range(4)])

        return types.UniTuple(array.dtype, 4)(array, types.intp), lower

    @intrinsic
    def permuted(typing: Any, low: Any, high: Any, chosen: Any) -> Any:
        """Four of the eight bytes of two words, each by the lowest three bits of four of `chosen`."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _called(builder, "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", _I32, args, effect=False)

        return types.int32(types.int32, types.int32, types.int32), lower
