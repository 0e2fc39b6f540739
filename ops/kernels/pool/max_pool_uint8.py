"""Max pooling of bytes: rows are combined first, then shifted copies of the row, and strides are applied last."""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from ....runtime.jit.address import i8, share, u8
from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner, range_kernel
from .problem import Pool

WIDE, NARROW = 64, 16
"""Bytes of the vectors that rows are cut into. The last one of a row overlaps the one before."""


def _joining(count: int, signed: bool, thinned: bool = False) -> Any:
    @intrinsic
    def join(typing: Any, target: Any, source: Any, step: Any, taps: Any) -> Any:
        """The largest of `taps` vectors, `step` bytes apart; every other byte of it where that is asked for."""

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            target, source, step, taps = args
            kind, half = (ir.VectorType(ir.IntType(8), length) for length in (count, count // 2))
            load = lambda address: builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)  # noqa: E731
            one = ir.Constant(ir.IntType(64), 1)
            start, before, loop, after = (
                load(source),
                builder.block,
                builder.append_basic_block("tap"),
                builder.append_basic_block("done"),
            )
            builder.branch(loop)
            builder.position_at_end(loop)
            tap, place, best = builder.phi(ir.IntType(64)), builder.phi(ir.IntType(64)), builder.phi(kind)
            found = load(place)
            larger = (builder.icmp_signed if signed else builder.icmp_unsigned)(">", best, found)
            steps = builder.add(tap, one), builder.add(place, step), builder.select(larger, best, found)
            for phi, begin, value in zip((tap, place, best), (one, source, start), steps, strict=True):
                phi.add_incoming(begin, before)
                phi.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<=", steps[0], taps), loop, after)
            builder.position_at_end(after)
            if thinned:
                lanes = ir.Constant(ir.VectorType(ir.IntType(32), count // 2), list(range(0, count, 2)))
                builder.store(
                    builder.shuffle_vector(steps[2], steps[2], lanes),
                    builder.inttoptr(target, half.as_pointer()),
                    align=1,
                )
            else:
                builder.store(steps[2], builder.inttoptr(target, kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), lower

    return join


def _largest(pointer: Any, nothing: int, signed: bool) -> Any:
    wide, narrow, every_other = _joining(WIDE, signed), _joining(NARROW, signed), _joining(2 * NARROW, signed, True)

    @inner
    def scalars(target: Any, source: Any, step: Any, taps: Any, stride: Any, count: Any) -> None:
        for j in range(count):
            best = pointer(source)[j * stride]
            for tap in range(1, taps):
                best = max(best, pointer(source + tap * step)[j * stride])
            pointer(target)[j] = best

    @inner
    def joined(target: Any, source: Any, step: Any, taps: Any, count: Any) -> None:
        if count >= WIDE:
            for j in range(0, count - WIDE, WIDE):
                wide(target + j, source + j, step, taps)
            wide(target + count - WIDE, source + count - WIDE, step, taps)
        elif count >= NARROW:
            for j in range(0, count - NARROW, NARROW):
                narrow(target + j, source + j, step, taps)
            narrow(target + count - NARROW, source + count - NARROW, step, taps)
        else:
            scalars(target, source, step, taps, 1, count)

    @inner
    def thinned(target: Any, source: Any, step: Any, taps: Any, count: Any, spare: Any) -> None:
        """With stride 2; a byte after the last one is read."""
        if count < NARROW:
            every_other(spare, source, step, taps)
            for j in range(count):
                u8(target)[j] = u8(spare)[j]
            return
        for j in range(0, count - NARROW, NARROW):
            every_other(target + j, source + 2 * j, step, taps)
        every_other(target + count - NARROW, source + 2 * (count - NARROW), step, taps)

    @range_kernel
    def largest_bytes(pool: Pool, part: int, parts: int) -> None:
        """As `pooled`, of bytes."""
        height, width, out_height, out_width = pool.height, pool.width, pool.out_height, pool.out_width
        taps = pool.kernel_y
        wide, band = pool.wide, pool.band
        lines = pool.scratch + part * wide * (band + 1)
        for j in range(wide * band):
            pointer(lines)[j] = nothing
        bands = (out_height + band - 1) // band
        first, last = share(pool.planes * bands, part, parts)
        for unit in range(first, last):
            plane, begin = unit // bands, unit % bands * band
            rows = min(band, out_height - begin)
            for row in range(rows):
                at, target = (begin + row) * pool.stride_y - pool.pad_y, lines + row * wide + pool.pad_x
                top = (pool.dilation_y - 1 - at) // pool.dilation_y if at < 0 else 0
                end = min(taps, (height - 1 - at) // pool.dilation_y + 1)
                if end > top:
                    joined(
                        target,
                        pool.x + (plane * height + at + top * pool.dilation_y) * width,
                        pool.dilation_y * width,
                        end - top,
                        width,
                    )
                else:
                    for j in range(width):
                        pointer(target)[j] = nothing
            for row in range(rows):
                line, y = lines + row * wide, pool.y + (plane * out_height + begin + row) * out_width
                if pool.stride_x == 1:
                    joined(y, line, pool.dilation_x, pool.kernel_x, out_width)
                elif pool.stride_x == 2:
                    thinned(y, line, pool.dilation_x, pool.kernel_x, out_width, lines + wide * band)
                else:
                    scalars(y, line, pool.dilation_x, pool.kernel_x, pool.stride_x, out_width)

    return largest_bytes


LARGEST_BYTES = {"uint8": _largest(u8, 0, False), "int8": _largest(i8, -128, True)}
