"""Convolution in panels of output channels: kernels, packed once, are read once for many positions, which are the rows of tiles.

Windows are read where they lie, from a copy of the input with zeros around it where they reach over the edge.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import PARTS_PER_THREAD, Buffer, Launch
from ...runtime.native import number, share
from ..math.finish_kernel import Finish, finished, foresee
from ..math.lane_kernel import KINDS, SINGLE, widen
from ..math.tile_kernel import AHEAD, NARROW, PANEL, panels
from ..math.turn_kernel import handed
from .problem_kernel import FINER, Problem, Way
from .stretch_kernel import stretches
from .window_tile_kernel import CHUNK, columns_of_windows
from .winograd_square_kernel import VECTOR

FEW = 12
"""Positions up to which panels of outputs always pay."""
ENOUGH = 16
"""Output channels of a group from which they may."""
TURN, PACK = 4, 16
"""What turning a result and packing an element of a window cost, in products."""
ROOM = 4 * PANEL * (2 * CHUNK + NARROW)
"""Bytes of the results of a chunk, which are turned together; the last one takes along what is left."""


def fit(problem: Problem) -> bool:
    """Whether it takes less time than panels of positions: each pads its panels, one turns its results, the other packs its windows."""
    positions, outputs, depth = problem.positions, problem.outputs, problem.depth
    if outputs < ENOUGH or not problem.constant:
        return False
    whole_outputs, whole_positions = (-(-count // NARROW) * NARROW for count in (outputs, positions))
    turned = positions * (depth * whole_outputs + TURN * outputs)
    return positions <= FEW or turned < depth * (whole_positions * outputs + PACK * positions)


def weight_panels(rows: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [out, ...] as panels [groups, out / groups / PANEL, depth, PANEL]."""
    return panels(rows.T)[None] if groups == 1 else np.stack([panels(part.T) for part in np.split(rows, groups)])


def slices_of(units: int, positions: int, threads: int) -> int:
    """Into how many slices positions are cut, so that there are parts for all threads."""
    wanted = FINER * PARTS_PER_THREAD * threads
    return 1 if units >= wanted or threads == 1 else max(1, min(positions // CHUNK, -(-wanted // units)))


def _convolved(blocked: bool, even: bool) -> Any:
    column = columns_of_windows(blocked, even)

    @range_kernel
    def convolved_in_panels(args: Any, part: Any, parts: Any) -> None:
        """Arguments as `problem_kernel` says, with kernels in panels, biases padded to them, and slices of the positions; then `Stretches`: bytes of
        a group's input, places, taps, how many, and depth and step of a stretch; the kind of kernels, which are widened panel by panel; and whether
        the channels of the output come in blocks, which need not be turned.
        """
        images, groups, outputs, slices = args[6], args[7], args[9], args[30]
        low, high = np.float32(number(args[28])), np.float32(number(args[29]))
        alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
        depth, positions = args[41] * args[42], args[13] * args[14] * args[15]
        kind, nbytes, in_blocks = args[44], 4 * PANEL * depth, args[45] != 0
        spare = args[31] + part * (ROOM if kind == SINGLE else ROOM + nbytes)
        wide, held = spare + ROOM, -1
        chunks = max(1, positions // CHUNK)
        count, block = (outputs + PANEL - 1) // PANEL, NARROW if in_blocks else 1
        step = 4 * block * positions
        first, last = share(groups * count * images * slices, part, parts)
        for unit in range(first, last):
            piece, image, panel = unit % slices, unit // slices % images, unit // slices // images
            group, top = panel // count, panel % count * PANEL
            most = min(PANEL, outputs - top)
            width = NARROW if most <= NARROW else PANEL
            source = args[0] + (image * groups + group) * args[38]
            base = 4 * positions * ((image * groups + group) * outputs + top)
            weights = args[1] + panel * nbytes
            if kind != SINGLE:
                if panel != held:
                    widen(kind, args[1] + panel * (nbytes // 2), wide, PANEL * depth, np.float32(1))
                weights, held = wide, panel
            begin, end = share(chunks, piece, slices)
            for chunk in range(begin, end):
                start = chunk * CHUNK
                rows = CHUNK if chunk + 1 < chunks else positions - start
                place = base + 4 * block * start
                target, other = args[2] + place, added + place if added != 0 else added
                foresee(target, other, step, most // block, 4 * block * rows)
                made, c_row, apart = (target, VECTOR, step) if in_blocks else (spare, 4 * PANEL, VECTOR)
                column(
                    source, args[39] + 8 * start, args[40], args[41], args[42], args[43], weights, made, c_row, apart, rows, width,
                    args[3] + 4 * PANEL * panel, low, high, AHEAD,
                )
                if not in_blocks:
                    _turned(spare, target, step, rows, most)
                if args[32] != 0:
                    finished(args[33], alpha, beta, target, step, most // block, block * rows, other, step)

    return convolved_in_panels


@inner
def _turned(source: Any, target: Any, step: Any, rows: Any, outputs: Any) -> None:
    """Rows of a panel of outputs as rows of positions."""
    for row in range(0, rows, NARROW):
        lanes = (1 << min(NARROW, rows - row)) - 1
        for output in range(0, outputs, NARROW):
            handed(source + 4 * (PANEL * row + output), 4 * PANEL, target + output * step + 4 * row, step, min(NARROW, outputs - output), lanes)


_KERNELS = {(blocked, even): _convolved(blocked, even) for blocked in (False, True) for even in (False, True)}
"""By whether the channels of the input come in blocks, and whether windows are its elements one behind the other."""


def in_panels(problem: Problem) -> Way | None:
    """The launches where these panels are faster."""
    if not (problem.blocked or fit(problem)):
        return None
    step, groups = problem.step, problem.groups
    read = stretches(problem)
    layout = ("panels", groups, read.channels), lambda array: weight_panels(read.ordered(array), groups)
    weights = step.narrowed(1, *layout) or step.packed(1, *layout)
    kind = KINDS[weights.dtype.name]
    bias = problem.padded_bias()
    places, taps = step.held(read.places), step.held(read.taps)
    units = problem.images * groups * -(-problem.outputs // PANEL)
    slices = slices_of(units, problem.positions, step.threads)
    parts_of = problem.parts(units * slices, problem.work)
    room = step.scratch(parts_of * (ROOM if kind == SINGLE else ROOM + 4 * PANEL * problem.depth))

    def launch(finish: Finish, result: Buffer) -> Launch:
        head = problem.arguments(read.source, weights, result, bias, slices, room, finish)
        tail = (read.size, places, taps, taps.count, read.depth, read.step, kind, int(problem.blocks_out))
        return Launch(_KERNELS[problem.blocks_in, problem.plain], (*head, *tail), parts_of)

    return read.before, launch
