"""DeformConv on the device: samples of all taps, then one product per group."""

from __future__ import annotations

import math

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import elementwise_chain
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument, Chain
from ..rules.sliding_window import window
from .deform_conv import deform_conv


def _sampled(
    rank: int, taps: tuple[int, ...], axes: list[tuple[int, int, int]], sizes: tuple[int, ...], kind: str, masked: bool
) -> str:
    """A sample at [image, channel, tap, cell], interpolated along every axis, zero outside."""
    count = math.prod(taps)
    lines = [
        "cell = i % cells",
        f"tap = i // cells % {count}",
        f"channel = i // (cells * {count}) % channels",
        f"image = i // (cells * {count} * channels)",
        "member = channel // each",
        f"base = ((image * members + member) * {count} + tap) * {rank} * cells + cell",
    ]
    cell, tap = "cell", "tap"
    for axis in range(rank - 1, -1, -1):
        stride, dilation, begin = axes[axis]
        lines += [
            f"cell{axis} = {cell} % length{axis}" if axis else f"cell{axis} = {cell}",
            f"tap{axis} = {tap} % {taps[axis]}" if axis else f"tap{axis} = {tap}",
        ]
        cell, tap = f"({cell}) // length{axis}", f"({tap}) // {taps[axis]}"
        lines += [
            f"at{axis} = {kind}(cell{axis} * {stride} + tap{axis} * {dilation} - {begin}) + get_offset(offset, base + "
            f"{axis} * cells)",
            f"low{axis} = {kind}(math.floor(at{axis}))",
            f"part{axis} = at{axis} - low{axis}",
        ]
    lines += [f"total = {kind}(0)"]
    for axis in range(rank):
        pad = "    " * axis
        lines += [
            f"{pad}for side{axis} in range(2):",
            f"{pad}    place{axis} = np.int64(low{axis}) + side{axis}",
            f"{pad}    share{axis} = part{axis} if side{axis} else {kind}(1) - part{axis}",
            f"{pad}    if place{axis} < 0 or place{axis} >= {sizes[axis]}:",
            f"{pad}        share{axis} = {kind}(0)",
            f"{pad}        place{axis} = np.int64(0)",
        ]
    place = "image * channels + channel"
    for axis in range(rank):
        place = f"({place}) * {sizes[axis]} + place{axis}"
    share = " * ".join(f"share{axis}" for axis in range(rank))
    lines += ["    " * rank + f"total += get_x(x, {place}) * ({share})"]
    if masked:
        lines += [f"total = total * get_mask(mask, ((image * members + member) * {count} + tap) * cells + cell)"]
    return "\n".join([*lines, "put_y(y, i, total)"])


def _plus(y: float, bias: float) -> float:
    return y + bias


@cuda(deform_conv)
def deform_conv_on_device(step: Step) -> Planned:
    """Sample all taps, then multiply by the weights of each group."""
    x, w, offset, bias, mask, y = (
        step.input(0),
        step.input(1),
        step.input(2),
        step.optional_input(3),
        step.optional_input(4),
        step.output(),
    )
    given, rank, taps = step.attributes, len(x.shape) - 2, w.shape[2:]
    axes = window("DeformConv", rank, taps, given["strides"], given["pads"], given["dilations"]).axes(x.shape[2:])
    kind = compute_dtype(x.dtype)
    cells, count, group, members = math.prod(y.shape[2:]), math.prod(taps), given["group"], given["offset_group"]
    samples = step.temporary(kind, (x.shape[0], x.shape[1] * count, cells))
    named: dict[str, Argument] = {
        "x": x,
        "offset": offset,
        "y": samples,
        "cells": cells,
        "channels": x.shape[1],
        "members": members,
    }
    named |= {"each": x.shape[1] // members, **{f"length{axis}": item.out for axis, item in enumerate(axes) if axis}}
    if mask is not None:
        named["mask"] = mask
    steps = [(axis.stride, axis.dilation, axis.begin) for axis in axes]
    text = _sampled(rank, taps, steps, x.shape[2:], f"np.{kind.name}", mask is not None)
    outs, depth = w.shape[0] // group, samples.shape[1] // group
    launches: list[Launch | Chain] = [per_thread_launch("deformed samples", samples.count, named, text)]
    launches.append(
        product(
            w,
            samples,
            y,
            Contraction(
                stack=Axes(
                    [x.shape[0], group],
                    [0, outs * depth],
                    [samples.strides[0], depth * cells],
                    [y.strides[0], outs * cells],
                ),
                rows=Axes([outs], [depth], None, [cells]),
                columns=Axes([cells], None, [1], [1]),
                depth=Axes([depth], [1], [cells], None),
            ),
        )
    )
    return [
        *launches,
        *([] if bias is None else [elementwise_chain(_plus, [y, bias.view((bias.count, *[1] * rank))], y)]),
    ]
