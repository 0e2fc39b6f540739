"""MaxRoiPool, DeformConv and MaxUnpool on the device."""

from __future__ import annotations

import math

from ...runtime.cuda.each import each
from ...runtime.cuda.element import computing
from ...runtime.cuda.kernel import Launch
from ...runtime.cuda.place import Planned, Step, composed, cuda
from ...runtime.cuda.product import Axes, product
from ...runtime.cuda.zip import Chain, mapped
from ...runtime.launch import Argument
from ..forming_cuda import Form, Stays, forms, lengths
from .deform_conv import deform_conv
from .unpool import _lengths, max_roi_pool, max_unpool
from .window import window

LARGEST = """
    column = i % columns
    row = i // columns % rows
    channel = i // (columns * rows) % channels
    region = i // (columns * rows * channels)
    image = np.int64(np.float32(get_rois(rois, region * 5)))
    if image < 0 or image >= batch:
        outside[0] = 1
        image = np.int64(0)
    left = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 1)) * np.float32(scale) + np.float32(0.5)))
    top = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 2)) * np.float32(scale) + np.float32(0.5)))
    right = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 3)) * np.float32(scale) + np.float32(0.5)))
    under = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 4)) * np.float32(scale) + np.float32(0.5)))
    wide = np.float32(max(right - left + 1, np.int64(1))) / np.float32(columns)
    tall = np.float32(max(under - top + 1, np.int64(1))) / np.float32(rows)
    x_from = min(max(left + np.int64(math.floor(np.float32(column) * wide)), np.int64(0)), width)
    x_to = min(max(left + np.int64(math.ceil(np.float32(column + 1) * wide)), np.int64(0)), width)
    y_from = min(max(top + np.int64(math.floor(np.float32(row) * tall)), np.int64(0)), height)
    y_to = min(max(top + np.int64(math.ceil(np.float32(row + 1) * tall)), np.int64(0)), height)
    best = KIND(0)
    empty = True
    for v in range(y_from, y_to):
        for u in range(x_from, x_to):
            value = get_x(x, ((image * channels + channel) * height + v) * width + u)
            if empty or value > best or value != value:
                best = value
                empty = False
    put_y(y, i, best)
"""


@cuda(max_roi_pool)
def max_roi_pool_on_device(step: Step) -> Planned:
    """The elements of each bin one after another."""
    x, rois, y = step.input(0), step.input(1), step.output()
    named: dict[str, Argument] = {
        "x": x, "rois": rois, "y": y, "batch": x.shape[0], "channels": x.shape[1], "height": x.shape[2], "width": x.shape[3], "rows": y.shape[2],
        "columns": y.shape[3], "scale": float(step.attributes["spatial_scale"]),
        "outside": step.flag("MaxRoiPool: a region is of an image that does not exist"),
    }
    return each("regions pooled", y.count, named, LARGEST.replace("KIND", f"np.{computing(x.dtype).name}"))


def _sampled(rank: int, taps: tuple[int, ...], axes: list[tuple[int, int, int]], sizes: tuple[int, ...], kind: str, masked: bool) -> str:
    """A sample at [image, channel, tap, cell], interpolated along every axis, zero outside."""
    count = math.prod(taps)
    lines = [
        "cell = i % cells", f"tap = i // cells % {count}", f"channel = i // (cells * {count}) % channels",
        f"image = i // (cells * {count} * channels)",
        "member = channel // each", f"base = ((image * members + member) * {count} + tap) * {rank} * cells + cell",
    ]
    cell, tap = "cell", "tap"
    for axis in range(rank - 1, -1, -1):
        stride, dilation, begin = axes[axis]
        lines += [f"cell{axis} = {cell} % length{axis}" if axis else f"cell{axis} = {cell}", f"tap{axis} = {tap} % {taps[axis]}" if axis else
                  f"tap{axis} = {tap}"]
        cell, tap = f"({cell}) // length{axis}", f"({tap}) // {taps[axis]}"
        lines += [
            f"at{axis} = {kind}(cell{axis} * {stride} + tap{axis} * {dilation} - {begin}) + get_offset(offset, base + {axis} * cells)",
            f"low{axis} = {kind}(math.floor(at{axis}))", f"part{axis} = at{axis} - low{axis}",
        ]
    lines += [f"total = {kind}(0)"]
    for axis in range(rank):
        pad = "    " * axis
        lines += [
            f"{pad}for side{axis} in range(2):", f"{pad}    place{axis} = np.int64(low{axis}) + side{axis}",
            f"{pad}    share{axis} = part{axis} if side{axis} else {kind}(1) - part{axis}",
            f"{pad}    if place{axis} < 0 or place{axis} >= {sizes[axis]}:", f"{pad}        share{axis} = {kind}(0)",
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
    """Samples of all taps, then a product for each group."""
    x, w, offset, bias, mask, y = step.input(0), step.input(1), step.input(2), step.given(3), step.given(4), step.output()
    given, rank, taps = step.attributes, len(x.shape) - 2, w.shape[2:]
    axes = window("DeformConv", rank, taps, given["strides"], given["pads"], given["dilations"]).axes(x.shape[2:])
    kind = computing(x.dtype)
    cells, count, group, members = math.prod(y.shape[2:]), math.prod(taps), given["group"], given["offset_group"]
    samples = step.temporary(kind, (x.shape[0], x.shape[1] * count, cells))
    named: dict[str, Argument] = {"x": x, "offset": offset, "y": samples, "cells": cells, "channels": x.shape[1], "members": members}
    named |= {"each": x.shape[1] // members, **{f"length{axis}": item.out for axis, item in enumerate(axes) if axis}}
    if mask is not None:
        named["mask"] = mask
    steps = [(axis.stride, axis.dilation, axis.begin) for axis in axes]
    text = _sampled(rank, taps, steps, x.shape[2:], f"np.{kind.name}", mask is not None)
    outs, depth = w.shape[0] // group, samples.shape[1] // group
    launches: list[Launch | Chain] = [each("deformed samples", samples.count, named, text)]
    launches.append(product(
        w, samples, y, Axes([x.shape[0], group], [0, outs * depth], [samples.strides[0], depth * cells], [y.strides[0], outs * cells]),
        Axes([outs], [depth], None, [cells]), Axes([cells], None, [1], [1]), Axes([depth], [1], [cells], None),
    ))
    return [*launches, *([] if bias is None else [mapped(_plus, [y, bias.view((bias.count, *[1] * rank))], y)])]


@composed(max_unpool)
@forms
def max_unpool_of_others(form: Form) -> None:
    """Elements written where they were found."""
    x, given = form.input(0), form.attributes
    spatial = _lengths(tuple(lengths(x)[2:]), given["kernel_shape"], given["strides"], given["pads"])
    inner = [*lengths(x)[:2], *(max(length, 0) for length in spatial if isinstance(length, int))]
    wanted = form.node.outputs[0].shape
    outer = inner if form.given(2) is None or wanted is None else [length for length in wanted if isinstance(length, int)]
    if len(outer) != len(inner):
        raise Stays("its shape is computed")
    flat = x.number(0).call("Expand", form.constant([math.prod(inner)]))
    y = form.reshaped(flat.call("ScatterElements", form.reshaped(form.input(1), -1), form.reshaped(x, -1), axis=0), *inner)
    for axis, (have, want) in enumerate(zip(inner, outer, strict=True)):
        y = form.part(y, axis, 0, want) if have > want else y
    if any(want > have for have, want in zip(inner, outer, strict=True)):
        y = y.call("Pad", form.constant([*[0] * len(inner), *(max(0, want - have) for have, want in zip(inner, outer, strict=True))]))
    form.give(0, y)
