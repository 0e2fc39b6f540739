"""NonMaxSuppression on the device: scores are sorted, then each class is a block whose threads compare boxes."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.device.device import SIMULATED
from ...runtime.cuda.element.kernel_text import PACKAGE
from ...runtime.cuda.kernel import source_module
from ...runtime.cuda.kernel.elementwise import BLOCKS
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.merge_sort import sort_launches
from ...runtime.cuda.kernel.operand import Writer
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.kernel.stream_compaction import prefixes
from ...runtime.cuda.memory.dynamic_length import Sized
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument, Buffer
from .non_max_suppression import non_max_suppression

WIDTH = 4 if SIMULATED else 256
BETTER = """
    one, other = scores[row * boxes + a], scores[row * boxes + b]
    before = one > other or (other != other and one == one)
"""
HEAD = """
from {package}.element.bits import inlined
from {package}.device.unfused_arithmetic import add, div, mul

@inlined
def lower(one, other):
    return one if one < other or one != one else other

@inlined
def upper(one, other):
    return one if one > other or one != one else other

@inlined
def low_of(box, place, axis, centred):
    one, other = box[place + axis], box[place + axis + 2]
    if centred:
        return add(one, -mul(other, np.float32(0.5)))
    return lower(one, other)

@inlined
def high_of(box, place, axis, centred):
    one, other = box[place + axis], box[place + axis + 2]
    if centred:
        return add(one, mul(other, np.float32(0.5)))
    return upper(one, other)

@inlined
def part_of(box, one, other, axis, centred):
    low = upper(low_of(box, one, axis, centred), low_of(box, other, axis, centred))
    high = lower(high_of(box, one, axis, centred), high_of(box, other, axis, centred))
    return upper(add(high, -low), np.float32(0))

@inlined
def area_of(box, place, centred):
    width = add(high_of(box, place, 0, centred), -low_of(box, place, 0, centred))
    return mul(width, add(high_of(box, place, 1, centred), -low_of(box, place, 1, centred)))
"""
SUPPRESS = """
    t = cuda.threadIdx.x
    for row in range(np.int64(cuda.blockIdx.x), rows, cuda.gridDim.x):
        base, image = row * boxes, row // classes * boxes * 4
        limit = min(np.int64(most[0]), boxes)
        for j in range(np.int64(t), boxes, WIDTH):
            dead[base + j] = 1 if LEAST else 0
        cuda.syncthreads()
        found = np.int64(0)
        for j in range(boxes):
            if found < limit and dead[base + j] == 0:
                best = image + order[base + j] * 4
                area = area_of(box, best, centred)
                if t == 0:
                    chosen[base + found] = order[base + j]
                for later in range(j + 1 + t, boxes, WIDTH):
                    place = image + order[base + later] * 4
                    common = mul(part_of(box, best, place, 0, centred), part_of(box, best, place, 1, centred))
                    own = area_of(box, place, centred)
                    union = add(add(own, area), -common)
                    if common > 0 and own > 0 and area > 0 and union > 0 and div(common, union) > OVERLAP:
                        dead[base + later] = 1
                found += 1
                cuda.syncthreads()
        if t == 0:
            counts[row] = found
        cuda.syncthreads()
"""
ROWS = """
    row, at = i // boxes, i % boxes
    if at < starts[row + 1] - starts[row]:
        place = (starts[row] + at) * 3
        y[place] = row // classes
        y[place + 1] = row % classes
        y[place + 2] = chosen[i]
"""


def _suppressed(named: dict[str, Argument], rows: int, overlap: Buffer | None, least: Buffer | None) -> Launch:
    writer = Writer()
    given = {**named, **{name: item for name, item in (("overlap", overlap), ("least", least)) if item is not None}}
    for name, value in given.items():
        writer.parameter(name, value)
    text = SUPPRESS.replace("OVERLAP", "np.float32(0)" if overlap is None else "overlap[0]").replace(
        "WIDTH", str(WIDTH)
    )
    text = text.replace(
        "1 if LEAST else 0", "0" if least is None else "0 if scores[base + order[base + j]] > least[0] else 1"
    )
    writer.add(0, *text.strip("\n").split("\n"))
    head = HEAD.format(package=PACKAGE)
    return Launch(
        source_module.compile_source("boxes that others do not cover", f"{head}\n{writer.text()}", (WIDTH,)),
        writer.values,
        min(BLOCKS, rows),
    )


@cuda(non_max_suppression, sized=True)
def suppression_on_device(step: Step) -> Planned:
    """Write rows of image, class and box index, the best boxes of each class first."""
    box, scores, most = step.input(0), step.input(1), step.optional_input(2)
    if (
        len(box.shape) != 3
        or len(scores.shape) != 3
        or box.shape[2] != 4
        or (box.shape[0], box.shape[1]) != (scores.shape[0], scores.shape[2])
    ):
        return "the shapes of boxes and scores contradict each other"
    limits = [step.optional_input(index) for index in (3, 4)]
    most = step.constant_buffer(np.zeros(1, np.int64)) if most is None else most
    if most.count != 1 or any(item is not None and (item.count != 1 or item.dtype != np.float32) for item in limits):
        return "a limit is not a scalar"
    if box.dtype != np.float32 or scores.dtype != np.float32:
        return "its boxes are not f32"
    _, classes, boxes = scores.shape
    rows = scores.shape[0] * classes
    launches, order = sort_launches(step, "order of scores", rows, boxes, {"scores": scores, "boxes": boxes}, BETTER)
    starts, chosen = step.temporary(np.int64, (rows + 1,)), step.temporary(np.int64, (rows, boxes))
    named: dict[str, Argument] = {
        "rows": rows,
        "boxes": boxes,
        "classes": classes,
        "centred": int(step.attributes["center_point_box"]),
        "box": box,
        "scores": scores,
        "order": order,
        "most": most,
        "dead": step.temporary(np.uint8, (rows, boxes)),
        "chosen": chosen,
        "counts": starts,
    }
    y = step.temporary(np.int64, (rows * boxes, 3))
    launches += [_suppressed(named, rows, *limits), prefixes(starts)]
    launches.append(
        per_thread_launch(
            "boxes that are left",
            rows * boxes,
            {"boxes": boxes, "classes": classes, "starts": starts, "chosen": chosen, "y": y},
            ROWS,
        )
    )
    step.sized[0] = Sized(y, starts.view((1,), rows), lambda found: (found, 3))
    return launches
