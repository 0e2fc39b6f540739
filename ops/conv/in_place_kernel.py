"""Convolutions with kernels computed at run time: taps of padded planes are read in place, and multiplied with rows
of kernels; nothing is copied into panels."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch
from ...runtime.simd.llvm_vector import F32, LANES, Code, vector_type
from ..kernels.conv.problem import Convolution, ConvPlan, Problem
from ..kernels.gemm.epilogue import Epilogue, apply_epilogue
from ..kernels.gemm.microkernel_f32 import HEIGHTS, vector_groups
from ..kernels.gemm.register_tile import FLOATS, PANEL, VECTOR, fma, limit_and_store, tiles_by_rows
from .conv_weight_grad_kernel import padded, tap_offsets


class WindowArguments(NamedTuple):
    """A tile of rows of kernels and `PANEL` positions; addresses and steps are in bytes.

    Attributes:
        image, taps: address of the first position's first element, and offsets of all taps.
        vector, piece: from the first vector of positions to the second, and from the first half of a vector to its
            second half where that is on the next row.
    """

    w: Any
    w_row: Any
    image: Any
    taps: Any
    vector: Any
    piece: Any
    depth: Any
    c: Any
    c_row: Any
    bias: Any
    bias_row: Any
    low: float
    high: float


def _tiles(pieces: int) -> Any:
    """Tiles whose vectors of positions lie in as many pieces."""
    lanes = LANES // pieces
    joined = ir.Constant(vector_type(ir.IntType(32)), list(range(LANES)))

    def write(code: Code, rows: int, tile: WindowArguments) -> None:
        build = code.builder

        def positions(address: Any) -> Any:
            if pieces == 1:
                return code.load(address, FLOATS)
            halves = [code.load(place, vector_type(F32, lanes)) for place in (address, build.add(address, tile.piece))]
            return build.shuffle_vector(*halves, joined)

        lines = [build.add(tile.w, build.mul(tile.w_row, code.word(row))) for row in range(rows)]
        for group in vector_groups(PANEL // LANES):
            places = [build.add(tile.image, build.mul(tile.vector, code.word(half))) for half in group]
            sums = []
            for row in range(rows):
                bias = code.splat(code.load(build.add(tile.bias, build.mul(tile.bias_row, code.word(row))), F32)).value
                sums += [bias for _ in group]

            def step(index: Any, held: list[Any], places: list[Any] = places) -> list[Any]:
                offset = code.load(build.add(tile.taps, build.mul(index, code.word(8))), code.word(0).type)
                columns = [positions(build.add(place, offset)) for place in places]
                at = build.mul(index, code.word(4))
                elements = [code.splat(code.load(build.add(line, at), F32)).value for line in lines]
                return [
                    fma(code, total, elements[place // len(columns)], columns[place % len(columns)])
                    for place, total in enumerate(held)
                ]

            found = code.repeat(tile.depth, sums, step)
            limit_and_store(code, found, group, (tile.c, tile.c_row, code.word(VECTOR)), tile.low, tile.high)

    return tiles_by_rows(HEIGHTS, WindowArguments, write)


_whole_tiles, _halved_tiles = _tiles(1), _tiles(2)


@range_kernel
def windows_in_place(conv: Convolution, taps: Address, tall: int, wide: int, part: int, parts: int) -> None:
    """Images, whose rows of output channels are cut into slices."""
    outputs, depth, width = conv.outputs, conv.channels * conv.kernel_y * conv.kernel_x, conv.out_width
    positions, plane = conv.out_height * width, 4 * tall * wide
    low, high = np.float32(conv.epilogue.low), np.float32(conv.epilogue.high)
    image = conv.scratch + part * conv.channels * plane
    first, last = share(conv.images * conv.slices, part, parts)
    before = -1
    vector = 4 * (LANES if width > LANES else LANES // width * wide)
    for unit in range(first, last):
        number, piece = unit // conv.slices, unit % conv.slices
        if number != before:
            before = number
            for channel in range(conv.channels):
                source = conv.source + 4 * (number * conv.channels + channel) * conv.height * conv.width
                padded(source, image + channel * plane, conv.height, conv.width, conv.pad_y, conv.pad_x, tall, wide)
        begin, end = outputs * piece // conv.slices, outputs * (piece + 1) // conv.slices
        for place in range(0, positions, PANEL):
            at, to = 4 * (place // width * wide + place % width), 4 * (number * outputs * positions + place)
            row = begin
            while row < end:
                kernels, bias = conv.weights + 4 * row * depth, conv.bias + row * conv.bias_step
                target = conv.target + to + 4 * row * positions
                if width >= LANES:
                    row += _whole_tiles(
                        end - row, kernels, 4 * depth, image + at, taps, vector, 0, depth, target, 4 * positions,
                        bias, conv.bias_step, low, high,
                    )  # fmt: skip
                else:
                    row += _halved_tiles(
                        end - row, kernels, 4 * depth, image + at, taps, vector, 4 * wide, depth, target,
                        4 * positions, bias, conv.bias_step, low, high,
                    )  # fmt: skip
            line = to + 4 * begin * positions
            apply_epilogue(conv.epilogue, conv.target, line, 4 * positions, end - begin, PANEL)


def plan_in_place(problem: Problem) -> ConvPlan | None:
    """A convolution without strides whose kernel is not a constant and whose rows are vectors or halves of them."""
    lengths, kernel, strides, dilations = (problem.geometry[at : at + 3] for at in range(3, 15, 3))
    if problem.blocked or problem.groups != 1 or problem.step.is_constant(1) or set(strides) != {1}:
        return None
    whole = lengths[2] == LANES // 2 or lengths[2] % PANEL == 0 or lengths[2] == LANES
    if not problem.planar or not whole or problem.positions % PANEL:
        return None
    tall, wide = ((kernel[axis] - 1) * dilations[axis] + lengths[axis] for axis in (1, 2))
    step = problem.step
    offsets = step.constant_buffer(tap_offsets(problem.channels, kernel[1:], dilations[1:], tall, wide))
    slices = 1 if problem.images >= 4 * step.threads else max(1, problem.outputs // HEIGHTS[0])
    parts = step.parts(problem.images * slices, problem.work)
    scratch = step.scratch(parts * 4 * problem.channels * tall * wide)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        conv = problem.arguments(problem.x, problem.w, result, problem.bias, slices, scratch, epilogue)
        return Launch(windows_in_place, parts, conv=conv, taps=offsets, tall=tall, wide=wide)

    return [], launch
