"""Native transposed convolution with constant kernels: one product for all windows, which are then added up plane by plane."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, number, share
from ..math.finish_kernel import Finish, finished, finishing
from .conv_kernel import planes_product
from .conv_transpose import NAMES, conv_transpose, transposed_axes
from .problem_kernel import POINT

F32 = np.dtype(np.float32)


@range_kernel
def added_windows(args: Any, part: Any, parts: Any) -> None:
    """Windows [planes, taps, positions], biases, result, planes and how many have biases of their own; sizes of the result, of the input, of the
    kernel, strides, dilations, padding (three numbers each); limits; `Finish.arguments`."""
    columns, bias, y, planes, channels = args[0], args[1], args[2], args[3], args[4]
    height, width, rows_in, wide_in = args[6], args[7], args[9], args[10]
    kernel_y, kernel_x, stride_x, pad_x = args[12], args[13], args[16], args[22]
    low, high = np.float32(number(args[23])), np.float32(number(args[24]))
    alpha, beta, added = np.float32(number(args[27])), np.float32(number(args[28])), args[29]
    count, positions = args[5] * height * width, args[8] * rows_in * wide_in
    first, last = share(planes, part, parts)
    for plane in range(first, last):
        result = f32(y + 4 * plane * count)
        start = f32(bias)[plane % channels] if bias != 0 else np.float32(0)
        for j in range(count):
            result[j] = start
        for tap in range(args[11] * kernel_y * kernel_x):
            shift = tap % kernel_x * args[19] - pad_x
            least = max(0, (-shift + stride_x - 1) // stride_x)
            most = min(wide_in, (width - 1 - shift) // stride_x + 1) if width > shift else 0
            source = f32(columns + 4 * (plane * args[11] * kernel_y * kernel_x + tap) * positions)
            for row in range(args[8] * rows_in):
                at_z = row // rows_in * args[14] + tap // (kernel_y * kernel_x) * args[17] - args[20]
                at_y = row % rows_in * args[15] + tap // kernel_x % kernel_y * args[18] - args[21]
                if at_z < 0 or at_z >= args[5] or at_y < 0 or at_y >= height:
                    continue
                line = (at_z * height + at_y) * width + shift
                if stride_x == 1:
                    for j in range(least, most):
                        result[line + j] += source[row * wide_in + j]
                else:
                    for j in range(least, most):
                        result[line + j * stride_x] += source[row * wide_in + j]
        for j in range(count):
            value = result[j]
            value = low if value < low else value
            result[j] = high if value > high else value
        if args[25] != 0:
            place = 4 * plane * count
            finished(args[26], alpha, beta, y + place, 0, 1, count, added + place if added != 0 else added, 0)


def _turned(w: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [channels, out, taps...] as [groups x out x taps, channels / groups]."""
    split = w.reshape(groups, len(w) // groups, -1)
    return np.ascontiguousarray(split.transpose(0, 2, 1)).reshape(-1, split.shape[1])


@native(conv_transpose)
def plan_conv_transpose(step: Step) -> Planned:
    """f32 over one to three axes."""
    x, w = step.inputs[:2]
    b = step.inputs[2] if len(step.inputs) > 2 else None
    groups = step.attributes["group"]
    if x is None or w is None or x.dtype != F32 or len(x.shape) not in (3, 4, 5) or not step.known(1) or x.shape[1] != w.shape[0]:
        return None
    spatial = len(x.shape) - 2
    axes = [axis for axis in transposed_axes(w.shape[2:], x.shape[2:], *(step.attributes[name] for name in NAMES)) if axis is not None]
    y = step.output()
    outputs = w.shape[1] * groups
    if len(axes) != spatial or w.shape[0] % groups or y.shape != (x.shape[0], outputs, *(axis.size for axis in axes)):
        return None
    if b is not None and b.count != outputs:
        return None
    axes = [POINT] * (3 - spatial) + axes
    columns = zip(*((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True)
    geometry = [length for column in columns for length in column]
    taps, positions = math.prod(geometry[6:9]), math.prod(geometry[3:6])
    weights = step.packed(1, ("turned", groups), lambda array: _turned(array, groups))
    windows = step.scratch(4 * x.shape[0] * outputs * taps * positions)
    product = planes_product(step, x, weights, windows, (x.shape[0], groups, w.shape[0] // groups, w.shape[1] * taps, positions))
    planes = x.shape[0] * outputs
    parts = step.parts(planes, planes * positions * taps / 2)

    def launch(finish: Finish, result: Buffer) -> Launch:
        arguments = (windows, 0 if b is None else b, result, planes, outputs, *geometry, *finish.limits, *finish.arguments(0))
        return Launch(added_windows, arguments, parts)

    return [product, finishing(launch, y, 0)]
