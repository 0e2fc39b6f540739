"""Convolutions with a large kernel and few positions, as gradients of kernels are: each window becomes a row (im2row).

Windows are contiguous runs as long as the kernel is wide, where a panel of columns would have runs as short as the
result. The rows are multiplied with the kernels in panels; the product has a row for each position, and becomes planes
at last.
"""

from __future__ import annotations

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch
from ..kernels.conv.problem import ConvPlan, Problem
from ..kernels.gemm.epilogue import Epilogue, EpilogueArguments, apply_epilogue
from ..kernels.gemm.register_tile import PANEL
from ..kernels.strided_copy import copy
from ..linalg.panel_product import APART, copied_into_panels, packed_launch

F32 = np.dtype(np.float32)
SHORTEST_RUN = 8
"""Width of a kernel from which windows are copied as rows."""


@range_kernel
def planes_of_rows(
    rows: Address,
    bias: Address,
    y: Address,
    images: int,
    outputs: int,
    positions: int,
    epilogue: EpilogueArguments,
    part: int,
    parts: int,
) -> None:
    """[images, positions, outputs] as [images, outputs, positions], with biases, 0 for none, and what follows."""
    low, high = np.float32(epilogue.low), np.float32(epilogue.high)
    first, last = share(images * outputs, part, parts)
    for plane in range(first, last):
        image, channel = plane // outputs, plane % outputs
        source, result = f32(rows + 4 * (image * positions * outputs + channel)), f32(y + 4 * plane * positions)
        added = f32(bias)[channel] if bias != 0 else np.float32(0)
        for place in range(positions):
            value = source[place * outputs] + added
            value = low if value < low else value
            result[place] = high if value > high else value
        apply_epilogue(epilogue, y, 4 * plane * positions, 0, 1, positions)


def plan_im2row(problem: Problem) -> ConvPlan | None:
    """A convolution whose kernel is not a constant and larger than its result; None for others."""
    lengths, kernel, strides, dilations, pads = (problem.geometry[at : at + 3] for at in range(3, 18, 3))
    if problem.blocked or problem.groups != 1 or any(pads) or problem.step.is_constant(1) or dilations[2] != 1:
        return None
    if kernel[2] < SHORTEST_RUN or problem.positions > PANEL // 2:
        return None
    step, x = problem.step, problem.x
    images, outputs, positions, depth = problem.images, problem.outputs, problem.positions, problem.depth
    size = problem.geometry[:3]
    axes = (size[1] * size[2], size[2], 1)
    windows = step.temporary(F32, (images * positions, depth + APART))
    lines = copy(
        step,
        x,
        windows,
        (images, *lengths, problem.channels, *kernel),
        (
            problem.channels * size[0] * axes[0],
            *(stride * axis for stride, axis in zip(strides, axes, strict=True)),
            size[0] * axes[0],
            *(dilation * axis for dilation, axis in zip(dilations, axes, strict=True)),
        ),
        (*_row_major((images, *lengths), depth + APART), *_row_major((problem.channels, *kernel), 1)),
    )
    packed, packing = copied_into_panels(step, problem.w, (depth, outputs), (1, depth))
    rows = step.temporary(F32, (images * positions, outputs))
    product = packed_launch(step, windows, packed, rows, None, (images * positions, outputs, depth), (depth + APART, 1))
    parts = step.parts(images * outputs, rows.count)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            planes_of_rows,
            parts,
            rows=rows,
            bias=problem.bias or 0,
            y=result,
            images=images,
            outputs=outputs,
            positions=positions,
            epilogue=epilogue.arguments(0),
        )

    return [lines, *packing, product], launch


def _row_major(lengths: tuple[int, ...], innermost: int) -> list[int]:
    """Strides of axes that follow each other, the last one `innermost` elements apart."""
    strides = [innermost]
    for length in reversed(lengths[1:]):
        strides.append(strides[-1] * length)
    return strides[::-1]
