"""Warp-level instructions: mma on tensor cores, ldmatrix, cp.async, shuffles and byte permutation.

Each is one PTX instruction on a GPU, chosen by compute capability at compile time; the simulator follows
`mma_fragment.py`. All 32 threads of a warp take part; under the simulator, all threads of the block.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .device import SIMULATED
from .mma_fragment import LANES, exchange, shape_of

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

    mma_f16, mma_bf16 = _product("f16", 16), _product("bf16", 16)
    mma_s8, mma_s8_k16 = _product("s8", 32), _product("s8", 16)

    def ldmatrix(array: Any, place: Any) -> Any:
        """ldmatrix: four 8 x 16-byte matrices; thread ``l`` passes the index of row ``l % 8`` of matrix ``l // 8``."""
        lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]

        def whole(places: Any) -> Any:
            rows = np.array([np.asarray(array[start : start + 4]) for start in places]).reshape(4, 8, 4)
            return rows.reshape(4, LANES).T.astype(np.int32)

        return tuple(exchange().shared(int(place), whole)[lane])

    def ldmatrix_transposed(array: Any, place: Any) -> Any:
        """ldmatrix.trans: four 8 x 8 16-bit matrices, each transposed."""
        lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]

        def whole(places: Any) -> Any:
            rows = (
                np.array([np.asarray(array[start : start + 4]) for start in places], np.int32)
                .view(np.uint16)
                .reshape(4, 8, 8)
            )
            transposed = np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(4, -1).view(np.int32)
            return transposed.reshape(4, LANES).T

        return tuple(exchange().shared(int(place), whole)[lane])

    def cp_async(target: Any, place: Any, source: Any, start: Any, there: Any) -> None:
        """cp.async: 16 bytes from a device array to a shared array, zeros unless `there`; complete after
        `cp_async_wait`."""
        for item in range(4):
            target[place + item] = source[start + item] if there else 0

    def cp_async_commit() -> None:
        """cp.async.commit_group."""

    def cp_async_wait(later: Any) -> None:
        """cp.async.wait_group: wait for all but the last `later` groups."""

    def shfl_xor(value: Any, mask: Any) -> Any:
        """shfl.xor: the value of the lane whose index differs by the bits of `mask`."""
        lane = threading.current_thread().thread_id % LANES  # type: ignore[attr-defined]
        return exchange().shared(value, lambda given: given)[lane ^ int(mask)]

    def f16_pair(low: Any, high: Any) -> Any:
        """Two f16 elements packed in an int32."""
        return np.array([low, high], np.float32).astype(np.float16).view(np.int32)[0]

    def bf16_pair(low: Any, high: Any) -> Any:
        """Two bf16 elements packed in an int32."""
        import ml_dtypes

        return np.array([low, high], np.float32).astype(ml_dtypes.bfloat16).view(np.int32)[0]

    def load_16_bytes(array: Any, place: Any) -> Any:
        """A 16-byte load of four int32 or float32 elements of device memory, aligned to four."""
        if int(place) % 4:
            raise RuntimeError("a 16-byte load from an unaligned address")
        return tuple(array[place + item] for item in range(4))

    def byte_permute(low: Any, high: Any, chosen: Any) -> Any:
        """prmt: four of the eight bytes of two int32 words, each selected by three bits of `chosen`."""
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

    def _called(
        builder: Any, text: str, constraint: str, result: Any, values: Any, effect: bool = True, together: bool = False
    ) -> Any:
        """An instruction; one that all threads of a warp carry out `together` is never copied or moved to where only
        some of them come."""
        kind = ir.FunctionType(result, [value.type for value in values])
        return builder.call(
            ir.InlineAsm(kind, text, constraint, side_effect=effect), values, attrs=("convergent",) if together else ()
        )

    def _matrices(builder: Any, name: str, sums: Any, a: Any, b: Any) -> list[Any]:
        """One mma instruction, with accumulators in place."""
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
            raise ValueError("bf16 products need compute capability 8.0")
        for deep in range(2):
            sums = _matrices(
                builder,
                "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
                sums,
                a[2 * deep : 2 * deep + 2],
                b[deep : deep + 1],
            )
        return list(sums)

    def _bytes(builder: Any, sums: Any, a: Any, b: Any) -> list[Any]:
        if _capability() >= (8, 0):
            return _matrices(builder, f"mma.sync.aligned.m16n8k{16 * len(b)}.row.col.s32.s8.s8.s32", sums, a, b)
        for deep, right in enumerate(b):
            for side in range(2):
                name = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
                sums[2 * side : 2 * side + 2] = _matrices(
                    builder, name, sums[2 * side : 2 * side + 2], [a[2 * deep + side]], [right]
                )
        return list(sums)

    def _multiply(total: Any, lower: Any, a: int, b: int) -> Any:
        def made(builder: Any, args: Any) -> Any:
            return _tuple(builder, lower(builder, list(args[:4]), list(args[4 : 4 + a]), list(args[4 + a :])))

        return types.UniTuple(total, 4), made

    @intrinsic
    def mma_f16(
        typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any
    ) -> Any:
        """mma: four f32 accumulators plus f16 [16, 16] x [16, 8]."""
        result, made = _multiply(types.float32, lambda *items: _halves("f16", *items), 4, 2)
        return result(*[types.float32] * 4, *[types.int32] * 6), lambda context, builder, sig, args: made(builder, args)

    @intrinsic
    def mma_bf16(
        typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any
    ) -> Any:
        """mma: four f32 accumulators plus bf16 [16, 16] x [16, 8]."""
        result, made = _multiply(types.float32, lambda *items: _halves("bf16", *items), 4, 2)
        return result(*[types.float32] * 4, *[types.int32] * 6), lambda context, builder, sig, args: made(builder, args)

    @intrinsic
    def mma_s8(
        typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any
    ) -> Any:
        """mma: four i32 accumulators plus i8 [16, 32] x [32, 8]."""
        result, made = _multiply(types.int32, _bytes, 4, 2)
        return result(*[types.int32] * 10), lambda context, builder, sig, args: made(builder, args)

    @intrinsic
    def mma_s8_k16(typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, b0: Any) -> Any:
        """mma: four i32 accumulators plus i8 [16, 16] x [16, 8]."""
        result, made = _multiply(types.int32, _bytes, 2, 1)
        return result(*[types.int32] * 7), lambda context, builder, sig, args: made(builder, args)

    def _address(context: Any, builder: Any, kind: Any, array: Any, place: Any) -> Any:
        found = builder.gep(context.make_array(kind)(context, builder, array).data, [place])
        return builder.ptrtoint(found, _I64)

    _SHARED = "{ .reg .u64 at; cvta.to.shared.u64 at, $4; "
    _GLOBAL = "{ .reg .u64 at, from; cvta.to.shared.u64 at, $0; cvta.to.global.u64 from, $1; "

    def _ldmatrix(suffix: str) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _address(context, builder, sig.args[0], *args)
            text = _SHARED + f"ldmatrix.sync.aligned.m8n8.x4{suffix}.shared.b16 {{$0, $1, $2, $3}}, [at]; }}"
            found = _called(
                builder, text, "=r,=r,=r,=r,l,~{memory}", ir.LiteralStructType([_I32] * 4), [where], together=True
            )
            return _tuple(builder, [builder.extract_value(found, item) for item in range(4)])

        return lower

    @intrinsic
    def ldmatrix(typing: Any, array: Any, place: Any) -> Any:
        """ldmatrix: four 8 x 16-byte matrices; thread ``l`` passes the index of row ``l % 8`` of matrix ``l // 8``."""
        return types.UniTuple(types.int32, 4)(array, types.intp), _ldmatrix("")

    @intrinsic
    def ldmatrix_transposed(typing: Any, array: Any, place: Any) -> Any:
        """ldmatrix.trans: four 8 x 8 16-bit matrices, each transposed."""
        return types.UniTuple(types.int32, 4)(array, types.intp), _ldmatrix(".trans")

    @intrinsic
    def cp_async(typing: Any, target: Any, place: Any, source: Any, start: Any, there: Any) -> Any:
        """cp.async: 16 bytes from a device array to a shared array, zeros unless `there`; complete after
        `cp_async_wait`."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, since = (_address(context, builder, sig.args[item], args[item], args[item + 1]) for item in (0, 2))
            asked = builder.select(args[4], ir.Constant(_I32, 16), ir.Constant(_I32, 0))
            if _capability() >= (8, 0):
                text = _GLOBAL + "cp.async.cg.shared.global [at], [from], 16, $2; }"
            else:
                text = (
                    "{ .reg .u64 at, from; .reg .pred some; .reg .b32 w0, w1, w2, w3; cvta.to.shared.u64 at, $0; "
                    "cvta.to.global.u64 from, $1; "
                    "mov.b32 w0, 0; mov.b32 w1, 0; mov.b32 w2, 0; mov.b32 w3, 0; setp.ne.b32 some, $2, 0; "
                    "@some ld.global.v4.b32 {w0, w1, w2, w3}, [from]; st.shared.v4.b32 [at], {w0, w1, w2, w3}; }"
                )
            _called(builder, text, "l,l,r,~{memory}", _VOID, [to, since, asked])
            return context.get_dummy_value()

        return types.void(target, types.intp, source, types.intp, types.boolean), lower

    @intrinsic
    def cp_async_commit(typing: Any) -> Any:
        """cp.async.commit_group."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if _capability() >= (8, 0):
                _called(builder, "cp.async.commit_group;", "~{memory}", _VOID, [])
            return context.get_dummy_value()

        return types.void(), lower

    @intrinsic
    def cp_async_wait(typing: Any, later: Any) -> Any:
        """cp.async.wait_group: wait for all but the last `later` groups."""
        if not isinstance(later, types.IntegerLiteral):
            return None
        count = later.literal_value

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if _capability() >= (8, 0):
                _called(builder, f"cp.async.wait_group {count};", "~{memory}", _VOID, [])
            return context.get_dummy_value()

        return types.void(later), lower

    @intrinsic
    def shfl_xor(typing: Any, value: Any, mask: Any) -> Any:
        """shfl.xor: the value of the lane whose index differs by the bits of `mask`."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            word = builder.bitcast(args[0], _I32) if value == types.float32 else args[0]
            found = _called(
                builder, "shfl.sync.bfly.b32 $0, $1, $2, 31, -1;", "=r,r,r", _I32, [word, args[1]], together=True
            )
            return builder.bitcast(found, _F32) if value == types.float32 else found

        return value(value, types.int32), lower

    def _paired(kind: str) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if kind == "f16":
                text = (
                    "{ .reg .b16 low, high; cvt.rn.f16.f32 low, $1; cvt.rn.f16.f32 high, $2; mov.b32 $0, {low, high}; }"
                )
            else:
                text = "cvt.rn.bf16x2.f32 $0, $2, $1;"
            return _called(builder, text, "=r,f,f", _I32, args, effect=False)

        return types.int32(types.float32, types.float32), lower

    @intrinsic
    def f16_pair(typing: Any, low: Any, high: Any) -> Any:
        """Two f16 elements packed in an int32."""
        return _paired("f16")

    @intrinsic
    def bf16_pair(typing: Any, low: Any, high: Any) -> Any:
        """Two bf16 elements packed in an int32."""
        return _paired("bf16")

    @intrinsic
    def load_16_bytes(typing: Any, array: Any, place: Any) -> Any:
        """A 16-byte load of four int32 or float32 elements of device memory, aligned to four."""

        element, letter = (_F32, "f") if array.dtype == types.float32 else (_I32, "r")

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            where = _address(context, builder, sig.args[0], *args)
            text = "ld.global.v4.b32 {$0, $1, $2, $3}, [$4];"
            constraint = ",".join([*[f"={letter}"] * 4, "l", "~{memory}"])
            found = _called(builder, text, constraint, ir.LiteralStructType([element] * 4), [where])
            return _tuple(builder, [builder.extract_value(found, item) for item in range(4)])

        return types.UniTuple(array.dtype, 4)(array, types.intp), lower

    @intrinsic
    def byte_permute(typing: Any, low: Any, high: Any, chosen: Any) -> Any:
        """prmt: four of the eight bytes of two int32 words, each selected by three bits of `chosen`."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _called(builder, "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", _I32, args, effect=False)

        return types.int32(types.int32, types.int32, types.int32), lower
