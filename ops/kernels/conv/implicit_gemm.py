"""Implicit-GEMM convolution: packed panels of output channels times windows that are read in place.

Windows that cross the edge are read from a zero-padded copy of the input.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.address import share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.kernel_api import PARTS_PER_THREAD, Buffer, Launch
from ....runtime.simd.memory import DTYPE_CODES, F32_CODE, widen
from ....runtime.simd.transpose import store_columns
from ..gemm.epilogue import Epilogue, apply_epilogue, prefetch_rows
from ..gemm.microkernel_f32 import NARROW, PREFETCH_DISTANCE, panels
from ..gemm.register_tile import PANEL
from .indirection import indirection
from .microkernel_f32 import CHUNK, microkernel_column
from .problem import PARTS_FACTOR, Convolution, ConvPlan, Problem
from .winograd_transform import VECTOR

SMALL_PLANE = 12
"""Output positions up to which this algorithm is always faster."""
MIN_OUTPUTS = 16
"""Minimum number of output channels per group."""
TRANSPOSE_COST, PACK_COST = 4, 16
"""Cost of transposing an output and of packing a window element, in products."""
SCRATCH_BYTES = 4 * PANEL * (2 * CHUNK + NARROW)
"""Bytes of the results of a chunk, which are transposed together; the last chunk includes the remainder."""


def is_faster(problem: Problem) -> bool:
    """Whether implicit GEMM is estimated to be faster than im2col: it transposes outputs, im2col packs windows."""
    positions, outputs, depth = problem.positions, problem.outputs, problem.depth
    if outputs < MIN_OUTPUTS or not problem.constant:
        return False
    whole_outputs, whole_positions = (-(-count // NARROW) * NARROW for count in (outputs, positions))
    cost = positions * (depth * whole_outputs + TRANSPOSE_COST * outputs)
    return positions <= SMALL_PLANE or cost < depth * (whole_positions * outputs + PACK_COST * positions)


def pack_weights(rows: np.ndarray, groups: int) -> np.ndarray:
    """Pack kernels [out, ...] to panels [groups, out / groups / PANEL, depth, PANEL]."""
    return panels(rows.T)[None] if groups == 1 else np.stack([panels(part.T) for part in np.split(rows, groups)])


def slice_count(units: int, positions: int, threads: int) -> int:
    """Number of slices of the positions, so that all threads have parts."""
    wanted = PARTS_FACTOR * PARTS_PER_THREAD * threads
    return 1 if units >= wanted or threads == 1 else max(1, min(positions // CHUNK, -(-wanted // units)))


def _kernel(blocked: bool, even: bool) -> Any:
    column = microkernel_column(blocked, even)

    @range_kernel
    def implicit_gemm(
        conv: Convolution,
        group_bytes: int,
        offsets: Address,
        taps: Address,
        tap_count: int,
        tap_depth: int,
        tap_step: int,
        kind: int,
        blocks_out: int,
        part: int,
        parts: int,
    ) -> None:
        """Kernels are packed panels (16-bit ones are widened on use), biases are padded, slices cut the positions;
        offsets and taps are those of `Indirection`. NCHW16c results are not transposed."""
        images, groups, outputs, slices = conv.images, conv.groups, conv.outputs, conv.slices
        low, high = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high)
        depth, positions = tap_count * tap_depth, conv.out_depth * conv.out_height * conv.out_width
        nbytes, in_blocks = 4 * PANEL * depth, blocks_out != 0
        results = conv.scratch + part * (SCRATCH_BYTES if kind == F32_CODE else SCRATCH_BYTES + nbytes)
        widened, widened_panel = results + SCRATCH_BYTES, -1
        chunks = max(1, positions // CHUNK)
        count, block = (outputs + PANEL - 1) // PANEL, NARROW if in_blocks else 1
        step = 4 * block * positions
        first, last = share(groups * count * images * slices, part, parts)
        for unit in range(first, last):
            piece, image, panel = unit % slices, unit // slices % images, unit // slices // images
            group, top = panel // count, panel % count * PANEL
            most = min(PANEL, outputs - top)
            width = NARROW if most <= NARROW else PANEL
            source = conv.source + (image * groups + group) * group_bytes
            base = 4 * positions * ((image * groups + group) * outputs + top)
            weights = conv.weights + panel * nbytes
            if kind != F32_CODE:
                if panel != widened_panel:
                    widen(kind, conv.weights + panel * (nbytes // 2), widened, PANEL * depth, np.float32(1))
                weights, widened_panel = widened, panel
            begin, end = share(chunks, piece, slices)
            for chunk in range(begin, end):
                start = chunk * CHUNK
                rows = CHUNK if chunk + 1 < chunks else positions - start
                place = base + 4 * block * start
                target = conv.target + place
                prefetch_rows(conv.epilogue, conv.target, place, step, most // block, 4 * block * rows)
                made, c_row, vector_step = (target, VECTOR, step) if in_blocks else (results, 4 * PANEL, VECTOR)
                column(
                    source,
                    offsets + 8 * start,
                    taps,
                    tap_count,
                    tap_depth,
                    tap_step,
                    weights,
                    made,
                    c_row,
                    vector_step,
                    rows,
                    width,
                    conv.bias + 4 * PANEL * panel,
                    low,
                    high,
                    PREFETCH_DISTANCE,
                )
                if not in_blocks:
                    _transpose(results, target, step, rows, most)
                apply_epilogue(conv.epilogue, conv.target, place, step, most // block, block * rows)

    return implicit_gemm


@inner
def _transpose(source: Any, target: Any, step: Any, rows: Any, outputs: Any) -> None:
    """Transpose results [positions, PANEL] to rows of positions per output."""
    for row in range(0, rows, NARROW):
        lanes = (1 << min(NARROW, rows - row)) - 1
        for output in range(0, outputs, NARROW):
            store_columns(
                source + 4 * (PANEL * row + output),
                4 * PANEL,
                target + output * step + 4 * row,
                step,
                min(NARROW, outputs - output),
                lanes,
            )


_KERNELS = {(blocked, even): _kernel(blocked, even) for blocked in (False, True) for even in (False, True)}
"""Kernels by (input is NCHW16c, kernel is 1 x 1)."""


def plan_implicit_gemm(problem: Problem) -> ConvPlan | None:
    """Launches by implicit GEMM, None if im2col is faster."""
    if not (problem.blocked or is_faster(problem)):
        return None
    step, groups = problem.step, problem.groups
    windows = indirection(problem)
    layout = ("panels", groups, windows.channels), lambda array: pack_weights(windows.reorder(array), groups)
    weights = step.packed_16bit(1, *layout) or step.packed(1, *layout)
    kind = DTYPE_CODES[weights.dtype.name]
    bias = problem.padded_bias()
    offsets, taps = step.constant_buffer(windows.offsets), step.constant_buffer(windows.taps)
    units = problem.images * groups * -(-problem.outputs // PANEL)
    slices = slice_count(units, problem.positions, step.threads)
    parts = problem.parts(units * slices, problem.work)
    scratch = step.scratch(parts * (SCRATCH_BYTES if kind == F32_CODE else SCRATCH_BYTES + 4 * PANEL * problem.depth))

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            _KERNELS[problem.blocks_in, problem.pointwise],
            parts,
            conv=problem.arguments(windows.source, weights, result, bias, slices, scratch, epilogue),
            group_bytes=windows.group_bytes,
            offsets=offsets,
            taps=taps,
            tap_count=taps.count,
            tap_depth=windows.depth,
            tap_step=windows.step,
            kind=kind,
            blocks_out=int(problem.blocks_out),
        )

    return windows.before, launch
