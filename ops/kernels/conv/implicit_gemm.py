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
from ..gemm.microkernel_f32 import NARROW, PREFETCH_DISTANCE, WIDE, panels
from ..gemm.register_tile import PANEL, VECTOR
from .channel_scale import scaled_panels
from .indirection import indirection
from .microkernel_f32 import CHUNK, microkernel_column
from .problem import PARTS_FACTOR, Convolution, ConvPlan, Problem

SMALL_PLANE = 12
"""Output positions up to which this algorithm is always faster."""
MIN_OUTPUTS = 16
"""Minimum number of output channels per group."""
TRANSPOSE_COST, PACK_COST = 4, 16
"""Cost of transposing an output and of packing a window element, in products."""
LONG_ROW = 12
"""Outputs of a row from which tiles need not cross its end."""
CORE_CACHE_BYTES = 1 << 20
"""Bytes of kernels that stay in the cache of a core while images are computed one after another."""
MAX_COPY = 1 << 27
"""Bytes of an input up to which 1 x 1 kernels without AVX-512 read a copy of it in blocks of channels: im2col takes 1.4
times as long (256 to 128 channels of 512 x 512 positions at AVX2), without that memory."""
STRIDES = (1, 2)
"""Strides of windows for which there are tiles of one row."""


def is_faster(problem: Problem) -> bool:
    """Whether implicit GEMM is estimated to be faster than im2col: it transposes outputs, im2col packs windows."""
    positions, outputs, depth = problem.positions, problem.outputs, problem.depth
    if outputs < MIN_OUTPUTS or not problem.constant:
        return False
    if problem.pointwise and not WIDE and 4 * problem.x.count > MAX_COPY:
        return False
    whole_outputs, whole_positions = (-(-count // NARROW) * NARROW for count in (outputs, positions))
    cost = positions * (depth * whole_outputs + TRANSPOSE_COST * outputs)
    return positions <= SMALL_PLANE or cost < depth * (whole_positions * outputs + PACK_COST * positions)


def pack_weights(rows: np.ndarray, groups: int) -> np.ndarray:
    """Pack kernels [out, ...] to panels [groups, out / groups / PANEL, depth, PANEL]."""
    return panels(rows.T)[None] if groups == 1 else np.stack([panels(part.T) for part in np.split(rows, groups)])


def slice_count(units: int, chunks: int, threads: int) -> int:
    """Number of slices of the chunks of positions, so that all threads have parts."""
    wanted = PARTS_FACTOR * PARTS_PER_THREAD * threads
    return 1 if units >= wanted or threads == 1 else max(1, min(chunks, -(-wanted // units)))


@inner
def results_bytes(chunk: Any) -> Any:
    """Bytes of the results of a chunk, which are transposed together; the last chunk includes the remainder."""
    return 4 * PANEL * (2 * chunk + NARROW)


def _kernel(blocked: bool, apart: int, rowwise: bool, in_blocks: bool) -> Any:
    column = microkernel_column(blocked, apart)

    @range_kernel(unroll=False)
    def implicit_gemm(
        conv: Convolution,
        image_weights: int,
        group_bytes: int,
        offsets: Address,
        taps: Address,
        tap_count: int,
        tap_depth: int,
        tap_step: int,
        kind: int,
        chunk_rows: int,
        by_image: int,
        part: int,
        parts: int,
    ) -> None:
        """Kernels are packed panels (16-bit ones are widened on use), `image_weights` bytes apart from image to image,
        biases are padded, slices cut the positions, in chunks of `chunk_rows`; images are computed one after another
        where `by_image` is 1, panels otherwise;
        offsets and taps are those of `Indirection`. NCHW16c results are not transposed."""
        images, groups, outputs, slices = conv.images, conv.groups, conv.outputs, conv.slices
        low, high = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high)
        depth, positions = tap_count * tap_depth, conv.out_depth * conv.out_height * conv.out_width
        nbytes = 4 * PANEL * depth
        made_bytes = results_bytes(chunk_rows)
        results = conv.scratch + part * (made_bytes if kind == F32_CODE else made_bytes + nbytes)
        widened, widened_panel = results + made_bytes, -1
        chunks = max(1, positions // chunk_rows)
        count, block = (outputs + PANEL - 1) // PANEL, NARROW if in_blocks else 1
        step = 4 * block * positions
        first, last = share(groups * count * images * slices, part, parts)
        inner = groups * count if by_image else images
        for unit in range(first, last):
            piece, within, outer = unit % slices, unit // slices % inner, unit // slices // inner
            image, panel = (outer, within) if by_image else (within, outer)
            group, top = panel // count, panel % count * PANEL
            most = min(PANEL, outputs - top)
            width = NARROW if most <= NARROW else PANEL
            source = conv.source + (image * groups + group) * group_bytes
            base = 4 * positions * ((image * groups + group) * outputs + top)
            weights = conv.weights + image * image_weights + panel * nbytes
            if kind != F32_CODE:
                if panel != widened_panel:
                    widen(kind, conv.weights + panel * (nbytes // 2), widened, PANEL * depth, np.float32(1))
                weights, widened_panel = widened, panel
            begin, end = share(chunks, piece, slices)
            changes = unit + 1 < last and kind == F32_CODE and (by_image or (unit + 1) // (slices * images) != panel)
            following = nbytes if changes and piece + 1 == slices else 0
            for chunk in range(begin, end):
                start = chunk * chunk_rows
                rows = chunk_rows if chunk + 1 < chunks else positions - start
                place = base + 4 * block * start
                target = conv.target + place
                prefetch_rows(conv.epilogue, conv.target, place, step, most // block, 4 * block * rows)
                made, c_row, vector_step = (target, VECTOR, step) if in_blocks else (results, 4 * PANEL, VECTOR)
                done = 0
                while done < rows:
                    at = start + done
                    some = min(rows - done, conv.out_width - at % conv.out_width) if rowwise else rows
                    column(
                        source,
                        offsets + 8 * at,
                        taps,
                        tap_count,
                        tap_depth,
                        tap_step,
                        weights,
                        made + done * c_row,
                        c_row,
                        vector_step,
                        some,
                        width,
                        conv.bias + 4 * PANEL * panel,
                        low,
                        high,
                        PREFETCH_DISTANCE if done == 0 else 0,
                        following if chunk + 1 == end and done == 0 else 0,
                    )
                    done += some
                if not in_blocks:
                    transpose_results(results, target, step, rows, most)
                apply_epilogue(conv.epilogue, conv.target, place, step, most // block, block * rows)

    return implicit_gemm


@inner
def transpose_results(source: Any, target: Any, step: Any, rows: Any, outputs: Any) -> None:
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


_KERNELS = {
    (blocked, apart, rowwise, in_blocks): _kernel(blocked, apart, rowwise, in_blocks)
    for blocked in (False, True)
    for apart, rowwise in ((0, False), (1, False), *((stride, True) for stride in STRIDES))
    for in_blocks in (False, True)
}
"""Kernels by (input is NCHW16c, elements between windows, tiles end with rows, results are NCHW16c)."""


def ends_with_rows(problem: Problem) -> bool:
    """Whether tiles have windows of one row of outputs."""
    return not problem.pointwise and problem.geometry[5] >= LONG_ROW and problem.geometry[11] in STRIDES


def plan_implicit_gemm(problem: Problem, scale: Buffer | None = None) -> ConvPlan | None:
    """Launches by implicit GEMM, None if im2col is faster; `scale` multiplies the f32 input of 1 x 1 kernels."""
    if not (problem.blocked or is_faster(problem)):
        return None
    step, groups = problem.step, problem.groups
    windows = indirection(problem)
    layout = (
        ("panels", groups, windows.channels, *problem.arrangement),
        lambda array: pack_weights(windows.reorder(problem.arrange(array)), groups),
    )
    weights = step.packed_16bit(1, *layout) or step.packed(1, *layout)
    kind, before, image_weights = DTYPE_CODES[weights.dtype.name], windows.before, 0
    if scale is not None:
        weights, scaling = scaled_panels(problem, weights, scale)
        before, image_weights = [*before, scaling], weights.nbytes // problem.images
    bias = problem.padded_bias()
    offsets, taps = step.constant_buffer(windows.offsets), step.constant_buffer(windows.taps)
    units = problem.images * groups * -(-problem.outputs // PANEL)
    out_width, stride = problem.geometry[5], problem.geometry[11]
    rowwise = ends_with_rows(problem)
    in_blocks = problem.blocks_out or (problem.positions == 1 and problem.outputs % NARROW == 0)
    apart = stride if rowwise else int(problem.pointwise)
    chunk = out_width * max(1, CHUNK // out_width) if rowwise else CHUNK
    slices = slice_count(units, problem.positions // chunk, step.threads)
    parts = problem.parts(units * slices, problem.work)
    widened = 0 if kind == F32_CODE else 4 * PANEL * problem.depth
    scratch = step.scratch(parts * (results_bytes(chunk) + widened))

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            _KERNELS[problem.blocks_in, apart, rowwise, in_blocks],
            parts,
            conv=problem.arguments(windows.source, weights, result, bias, slices, scratch, epilogue),
            image_weights=image_weights,
            group_bytes=windows.group_bytes,
            offsets=offsets,
            taps=taps,
            tap_count=taps.count,
            tap_depth=windows.depth,
            tap_step=windows.step,
            kind=kind,
            chunk_rows=chunk,
            by_image=int(kind == F32_CODE and (weights.nbytes <= CORE_CACHE_BYTES or scale is not None)),
        )

    return before, launch
