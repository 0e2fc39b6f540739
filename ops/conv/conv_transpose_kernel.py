"""Native ConvTranspose with constant kernels: one product for all windows, which are then summed plane by plane."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ..kernels.conv.problem import UNIT_AXIS
from ..kernels.gemm.epilogue import Epilogue, EpilogueArguments, apply_epilogue, launch_with_epilogue
from ..kernels.half_via_f32 import via_f32
from .conv_kernel import pointwise_gemm
from .conv_transpose import NAMES, conv_transpose, transposed_axes
from .phases_kernel import plan_transposed_by_phases

F32 = np.dtype(np.float32)
GEOMETRY = (
    "depth",
    "height",
    "width",
    "depth_in",
    "rows_in",
    "wide_in",
    "kernel_z",
    "kernel_y",
    "kernel_x",
    "stride_z",
    "stride_y",
    "stride_x",
    "dilation_z",
    "dilation_y",
    "dilation_x",
    "pad_z",
    "pad_y",
    "pad_x",
)
"""Arguments of `added_windows` for the three axes: lengths of the result and of the input, then the windows."""


@range_kernel
def added_windows(
    windows: Address,
    bias: Address,
    y: Address,
    planes: int,
    channels: int,
    depth: int,
    height: int,
    width: int,
    depth_in: int,
    rows_in: int,
    wide_in: int,
    kernel_z: int,
    kernel_y: int,
    kernel_x: int,
    stride_z: int,
    stride_y: int,
    stride_x: int,
    dilation_z: int,
    dilation_y: int,
    dilation_x: int,
    pad_z: int,
    pad_y: int,
    pad_x: int,
    epilogue: EpilogueArguments,
    part: int,
    parts: int,
) -> None:
    """Windows [planes, taps, positions] added up; so many channels have biases of their own, 0 for none."""
    low, high = np.float32(epilogue.low), np.float32(epilogue.high)
    count, positions = depth * height * width, depth_in * rows_in * wide_in
    first, last = share(planes, part, parts)
    for plane in range(first, last):
        result = f32(y + 4 * plane * count)
        start = f32(bias)[plane % channels] if bias != 0 else np.float32(0)
        for j in range(count):
            result[j] = start
        for tap in range(kernel_z * kernel_y * kernel_x):
            shift = tap % kernel_x * dilation_x - pad_x
            least = max(0, (-shift + stride_x - 1) // stride_x)
            most = min(wide_in, (width - 1 - shift) // stride_x + 1) if width > shift else 0
            source = f32(windows + 4 * (plane * kernel_z * kernel_y * kernel_x + tap) * positions)
            for row in range(depth_in * rows_in):
                at_z = row // rows_in * stride_z + tap // (kernel_y * kernel_x) * dilation_z - pad_z
                at_y = row % rows_in * stride_y + tap // kernel_x % kernel_y * dilation_y - pad_y
                if at_z < 0 or at_z >= depth or at_y < 0 or at_y >= height:
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
        apply_epilogue(epilogue, y, 4 * plane * count, 0, 1, count)


def _transposed_weights(w: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [channels, out, taps...] as [groups x out x taps, channels / groups]."""
    split = w.reshape(groups, len(w) // groups, -1)
    return np.ascontiguousarray(split.transpose(0, 2, 1)).reshape(-1, split.shape[1])


@native(conv_transpose)
@via_f32
def plan_conv_transpose(step: Step) -> Planned:
    """Plan f32 over one to three spatial axes."""
    x, w = step.inputs[:2]
    b = step.inputs[2] if len(step.inputs) > 2 else None
    groups = step.attributes["group"]
    if (
        x is None
        or w is None
        or x.dtype != F32
        or len(x.shape) not in (3, 4, 5)
        or not step.is_constant(1)
        or x.shape[1] != w.shape[0]
    ):
        return None
    spatial = len(x.shape) - 2
    axes = [
        axis
        for axis in transposed_axes(w.shape[2:], x.shape[2:], *(step.attributes[name] for name in NAMES))
        if axis is not None
    ]
    y = step.output()
    outputs = w.shape[1] * groups
    if len(axes) != spatial or w.shape[0] % groups or y.shape != (x.shape[0], outputs, *(axis.size for axis in axes)):
        return None
    if b is not None and b.count != outputs:
        return None
    if spatial == 1:
        (axis,) = axes
        geometry = (axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin)
        if (found := plan_transposed_by_phases(step, y, groups, geometry)) is not None:
            return [*found[0], launch_with_epilogue(found[1], y, 0)]
    axes = [UNIT_AXIS] * (3 - spatial) + axes
    columns = zip(
        *((axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes), strict=True
    )
    lengths = [length for column in columns for length in column]
    taps, positions = math.prod(lengths[6:9]), math.prod(lengths[3:6])
    weights = step.packed(1, ("transposed", groups), lambda array: _transposed_weights(array, groups))
    windows = step.scratch(4 * x.shape[0] * outputs * taps * positions)
    product = pointwise_gemm(
        step, x, weights, windows, (x.shape[0], groups, w.shape[0] // groups, w.shape[1] * taps, positions)
    )
    planes = x.shape[0] * outputs
    parts = step.parts(planes, planes * positions * taps / 2)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            added_windows,
            parts,
            windows=windows,
            bias=0 if b is None else b,
            y=result,
            planes=planes,
            channels=outputs,
            **dict(zip(GEOMETRY, lengths, strict=True)),
            epilogue=epilogue.arguments(0),
        )

    return [product, launch_with_epilogue(launch, y, 0)]
