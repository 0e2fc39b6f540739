"""Implicit-GEMM convolution of windows that cross the edge, in bands of rows: the input of a band is padded in a core's
cache, and all panels of output channels are computed from it."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.address import share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from ..gemm.epilogue import Epilogue, apply_epilogue, prefetch_rows
from ..gemm.microkernel_f32 import NARROW, PREFETCH_DISTANCE
from ..gemm.register_tile import PANEL, VECTOR
from .depthwise import copy_rows, fill
from .implicit_gemm import STRIDES, ends_with_rows, is_faster, pack_weights, results_bytes, transpose_results
from .indirection import LINE, crosses_edge, reach_of, windows_of
from .microkernel_f32 import microkernel_column
from .problem import Convolution, ConvPlan, Problem

BAND_BYTES = 128 << 10
"""Bytes of a band's padded input."""
MAX_WEIGHT_BYTES = 512 << 10
"""Maximum bytes of kernels, which are read for each band."""
BANDS_PER_THREAD, PARTS_PER_THREAD = 8, 4
"""Bands that are wanted for each thread, and the maximum number of parts."""


def _kernel(blocked: bool, apart: int) -> Any:
    column, block = microkernel_column(blocked, apart), LINE if blocked else 1

    @range_kernel
    def banded_gemm(
        conv: Convolution,
        offsets: Address,
        taps: Address,
        tap_count: int,
        tap_depth: int,
        tap_step: int,
        blocks_out: int,
        reach_width: int,
        row_step: int,
        pitch: int,
        part: int,
        parts: int,
    ) -> None:
        """Kernels are packed panels, biases are padded, slices are rows of a band; offsets and taps are those of
        `Indirection` in a band, whose channels are `pitch` bytes apart; rows of a band are `row_step` rows apart."""
        images, outputs, band, in_blocks = conv.images, conv.outputs, conv.slices, blocks_out != 0
        height, width, out_height, out_width = conv.height, conv.width * block, conv.out_height, conv.out_width
        low, high = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high)
        planes, wide, nbytes = conv.channels // block, reach_width * block, 4 * PANEL * tap_count * tap_depth
        padded = conv.scratch + part * (planes * pitch + results_bytes(out_width))
        results, reach = padded + planes * pitch, (conv.kernel_y - 1) * conv.dilation_y + 1
        fill(padded, planes * pitch // 4, np.float32(0))
        count, made_block = (outputs + PANEL - 1) // PANEL, NARROW if in_blocks else 1
        phases = min(row_step, out_height)
        bands = ((out_height + row_step - 1) // row_step + band - 1) // band
        step = 4 * made_block * out_height * out_width
        first, last = share(images * phases * bands, part, parts)
        for unit in range(first, last):
            image, begin = unit // bands // phases, unit % bands * band * row_step + unit // bands % phases
            rows = min(band, (out_height - begin + row_step - 1) // row_step)
            for plane in range(planes):
                copy_rows(
                    conv.source + 4 * (image * planes + plane) * height * width,
                    height,
                    width,
                    begin * conv.stride_y - conv.pad_y,
                    row_step,
                    (rows - 1) * conv.stride_y + reach,
                    conv.pad_x * block,
                    padded + plane * pitch,
                    wide,
                )
            for panel in range(count):
                top = panel * PANEL
                most = min(PANEL, outputs - top)
                for row in range(rows):
                    place = (
                        4 * out_width * (out_height * (image * outputs + top) + made_block * (begin + row_step * row))
                    )
                    target = conv.target + place
                    prefetch_rows(
                        conv.epilogue, conv.target, place, step, most // made_block, 4 * made_block * out_width
                    )
                    made, c_row, vector_step = (target, VECTOR, step) if in_blocks else (results, 4 * PANEL, VECTOR)
                    column(
                        padded,
                        offsets + 8 * row * out_width,
                        taps,
                        tap_count,
                        tap_depth,
                        tap_step,
                        conv.weights + panel * nbytes,
                        made,
                        c_row,
                        vector_step,
                        out_width,
                        NARROW if most <= NARROW else PANEL,
                        conv.bias + 4 * PANEL * panel,
                        low,
                        high,
                        PREFETCH_DISTANCE if row == 0 else 0,
                        0,
                    )
                    if not in_blocks:
                        transpose_results(results, target, step, out_width, most)
                    apply_epilogue(conv.epilogue, conv.target, place, step, most // made_block, made_block * out_width)

    return banded_gemm


_KERNELS = {(blocked, apart): _kernel(blocked, apart) for blocked in (False, True) for apart in STRIDES}
"""Kernels by (input is NCHW16c, elements between windows)."""


def plan_banded_gemm(problem: Problem) -> ConvPlan | None:
    """Launch of a convolution over two axes whose windows cross the edge; None if its kernels do not stay in cache."""
    geometry, step = problem.geometry, problem.step
    if not problem.constant or not (problem.blocked or is_faster(problem)) or not problem.positions:
        return None
    if problem.groups > 1 or not (problem.planar and ends_with_rows(problem) and crosses_edge(problem)):
        return None
    if 4 * PANEL * -(-problem.outputs // PANEL) * problem.depth > MAX_WEIGHT_BYTES:
        return None
    (_, _, wide), out, stride = reach_of(problem), problem.lengths, geometry[10]
    rows, row_step = problem.without_row_dilation()
    planes, lane_bytes = (problem.channels // LINE, 4 * LINE) if problem.blocks_in else (problem.channels, 4)
    reach = (geometry[7] - 1) * rows.geometry[13] + 1
    band = max(1, (BAND_BYTES // (planes * lane_bytes * wide) - reach) // stride + 1)
    band = min(band, max(1, problem.images * out[1] // (BANDS_PER_THREAD * step.threads)), -(-out[1] // row_step))
    tall = (band - 1) * stride + reach
    pitch = 4 * LINE * (tall * wide if problem.blocks_in else -(-tall * wide // LINE) | 1)
    windows = windows_of(rows, problem.x, (1, tall, wide), (1, band, out[2]), pitch)
    layout = ("panels", 1, windows.channels), lambda array: pack_weights(windows.reorder(array), 1)
    if step.packed_16bit(1, *layout) is not None:
        return None
    weights, bias = step.packed(1, *layout), problem.padded_bias()
    offsets, taps = step.constant_buffer(windows.offsets), step.constant_buffer(windows.taps)
    parts = min(
        PARTS_PER_THREAD * step.threads,
        problem.parts(problem.images * min(row_step, out[1]) * -(-out[1] // (row_step * band)), problem.work),
    )
    scratch = step.scratch(parts * (planes * pitch + results_bytes(out[2])))

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            _KERNELS[problem.blocks_in, geometry[11]],
            parts,
            conv=rows.arguments(problem.x, weights, result, bias, band, scratch, epilogue),
            offsets=offsets,
            taps=taps,
            tap_count=taps.count,
            tap_depth=windows.depth,
            tap_step=windows.step,
            blocks_out=int(problem.blocks_out),
            reach_width=wide,
            row_step=row_step,
            pitch=pitch,
        )

    return [], launch
