"""Convolution with few positions of the output: kernels, packed once, stand in panels of output channels, which are read once for all positions.

Positions are the rows of tiles. A kernel of one element reads them where they lie; for others all windows are laid out first.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch
from ...runtime.native import number, share
from ..math.finish_kernel import Finish, finished
from ..math.tile_kernel import AHEAD, NARROW, PANEL, column_of_tiles, panels
from ..math.turn_kernel import handed
from .problem_kernel import Problem, Way
from .window_kernel import TOGETHER, laid_out

FEW = 12
"""Positions up to which panels of outputs always pay."""
SMALL = 256
"""Positions up to which they may."""
ENOUGH = 16
"""Output channels of a group from which they pay."""
CHUNK = 48
"""Positions whose results are turned together; the last ones take along what is left."""
ROOM = 4 * PANEL * (2 * CHUNK + NARROW)
"""Bytes of the results."""


def fit(positions: int, outputs: int) -> bool:
    """Whether fewer products are wasted at the ends of panels of outputs than at those of panels of positions."""
    whole_outputs, whole_positions = (-(-count // NARROW) * NARROW for count in (outputs, positions))
    return outputs >= ENOUGH and (positions <= FEW or (positions <= SMALL and positions * whole_outputs <= outputs * whole_positions))


def weight_panels(w: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [out, ...] as panels [groups, out / groups / PANEL, depth, PANEL]."""
    return np.stack([panels(part.reshape(len(part), -1).T) for part in np.split(w, groups)])


def slices_of(units: int, positions: int, threads: int) -> int:
    """Into how many slices positions are cut, so that there are parts for all threads."""
    return 1 if units >= 4 * threads or threads == 1 else max(1, min(positions // CHUNK, -(-4 * threads // units)))


@range_kernel
def convolved_in_panels(args: Any, part: Any, parts: Any) -> None:
    """Arguments as `problem_kernel` says, with windows [images x groups, depth, positions] for the input, kernels in panels, biases padded to
    them, and slices of the positions.
    """
    images, groups, outputs, slices = args[6], args[7], args[9], args[30]
    low, high = np.float32(number(args[28])), np.float32(number(args[29]))
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    depth, positions = args[8] * args[16] * args[17] * args[18], args[13] * args[14] * args[15]
    made = args[31] + part * ROOM
    chunks = max(1, positions // CHUNK)
    count, step = (outputs + PANEL - 1) // PANEL, 4 * positions
    first, last = share(groups * count * images * slices, part, parts)
    for unit in range(first, last):
        piece, image, panel = unit % slices, unit // slices % images, unit // slices // images
        group, output = panel // count, panel % count * PANEL
        most = min(PANEL, outputs - output)
        width = NARROW if most <= NARROW else PANEL
        windows = args[0] + (image * groups + group) * depth * step
        base = ((image * groups + group) * outputs + output) * step
        begin, end = share(chunks, piece, slices)
        for chunk in range(begin, end):
            start = chunk * CHUNK
            rows = CHUNK if chunk + 1 < chunks else positions - start
            column_of_tiles(
                windows + 4 * start, 4, step, args[1] + panel * depth * 4 * PANEL, depth, made, 4 * PANEL, 0, rows, width, args[5], 0,
                args[3] + 4 * PANEL * panel, low, high, made, AHEAD,
            )
            for row in range(0, rows, NARROW):
                lanes = (1 << min(NARROW, rows - row)) - 1
                for column in range(0, most, NARROW):
                    target = args[2] + base + column * step + 4 * (start + row)
                    handed(made + 4 * (PANEL * row + column), 4 * PANEL, target, step, min(NARROW, most - column), lanes)
            if args[32] != 0:
                place = base + 4 * start
                finished(args[33], alpha, beta, args[2] + place, step, most, rows, added + place if added != 0 else added, step)


def in_panels(problem: Problem) -> Way | None:
    """The launches for small planes."""
    if not (problem.constant and fit(problem.positions, problem.outputs)):
        return None
    step, groups = problem.step, problem.groups
    weights = step.packed(1, ("few", groups), lambda array: weight_panels(array, groups))
    bias, before, source = problem.padded_bias(), [], problem.x
    if not problem.plain:
        source = step.scratch(4 * problem.images * groups * problem.depth * problem.positions)
        units = problem.images * groups * -(-problem.channels // TOGETHER)
        parts = step.parts(units, source.nbytes / 8)
        before = [Launch(laid_out, problem.arguments(problem.x, 0, source, None, 0, 0), parts)]
    units = problem.images * groups * -(-problem.outputs // PANEL)
    slices = slices_of(units, problem.positions, step.threads)
    parts_of = step.parts(units * slices, problem.work)
    room = step.scratch(parts_of * ROOM)

    def launch(finish: Finish, result: Buffer) -> Launch:
        return Launch(convolved_in_panels, problem.arguments(source, weights, result, bias, slices, room, finish), parts_of)

    return before, launch
