"""MaxRoiPool and MaxUnpool on the device."""

from __future__ import annotations

import math

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda, decomposed
from ...runtime.ir.op import Undecomposable
from ...runtime.plan.kernel_api import Argument
from ..rules.decompose_cuda import Form, forms
from .unpool import _lengths, max_roi_pool, max_unpool

LARGEST = """
    column = i % columns
    row = i // columns % rows
    channel = i // (columns * rows) % channels
    region = i // (columns * rows * channels)
    image = np.int64(np.float32(get_rois(rois, region * 5)))
    if image < 0 or image >= batch:
        outside[0] = 1
        image = np.int64(0)
    left = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 1)) * np.float32(scale) + np.float32(0.5)))
    top = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 2)) * np.float32(scale) + np.float32(0.5)))
    right = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 3)) * np.float32(scale) + np.float32(0.5)))
    under = np.int64(math.floor(np.float32(get_rois(rois, region * 5 + 4)) * np.float32(scale) + np.float32(0.5)))
    wide = np.float32(max(right - left + 1, np.int64(1))) / np.float32(columns)
    tall = np.float32(max(under - top + 1, np.int64(1))) / np.float32(rows)
    x_from = min(max(left + np.int64(math.floor(np.float32(column) * wide)), np.int64(0)), width)
    x_to = min(max(left + np.int64(math.ceil(np.float32(column + 1) * wide)), np.int64(0)), width)
    y_from = min(max(top + np.int64(math.floor(np.float32(row) * tall)), np.int64(0)), height)
    y_to = min(max(top + np.int64(math.ceil(np.float32(row + 1) * tall)), np.int64(0)), height)
    best = KIND(0)
    empty = True
    for v in range(y_from, y_to):
        for u in range(x_from, x_to):
            value = get_x(x, ((image * channels + channel) * height + v) * width + u)
            if empty or value > best or value != value:
                best = value
                empty = False
    put_y(y, i, best)
"""


@cuda(max_roi_pool)
def max_roi_pool_on_device(step: Step) -> Planned:
    """Compare the elements of each bin in order."""
    x, rois, y = step.input(0), step.input(1), step.output()
    named: dict[str, Argument] = {
        "x": x,
        "rois": rois,
        "y": y,
        "batch": x.shape[0],
        "channels": x.shape[1],
        "height": x.shape[2],
        "width": x.shape[3],
        "rows": y.shape[2],
        "columns": y.shape[3],
        "scale": float(step.attributes["spatial_scale"]),
        "outside": step.flag("MaxRoiPool: the batch index of a region is out of range"),
    }
    return per_thread_launch(
        "regions pooled", y.count, named, LARGEST.replace("KIND", f"np.{compute_dtype(x.dtype).name}")
    )


@decomposed(max_unpool)
@forms
def max_unpool_of_others(form: Form) -> None:
    """Elements written where they were found."""
    x, given = form.input(0), form.attributes
    spatial = _lengths(tuple(x.lengths[2:]), given["kernel_shape"], given["strides"], given["pads"])
    inner = [*x.lengths[:2], *(max(length, 0) for length in spatial if isinstance(length, int))]
    wanted = form.node.outputs[0].shape
    outer = (
        inner
        if form.optional_input(2) is None or wanted is None
        else [length for length in wanted if isinstance(length, int)]
    )
    if len(outer) != len(inner):
        raise Undecomposable("its shape is computed")
    flat = x.number(0).call("Expand", form.constant([math.prod(inner)]))
    y = flat.call("ScatterElements", form.input(1).reshaped(-1), x.reshaped(-1), axis=0).reshaped(*inner)
    for axis, (have, want) in enumerate(zip(inner, outer, strict=True)):
        y = y.part(axis, 0, want) if have > want else y
    if any(want > have for have, want in zip(inner, outer, strict=True)):
        y = y.call(
            "Pad",
            form.constant([*[0] * len(inner), *(max(0, want - have) for have, want in zip(inner, outer, strict=True))]),
        )
    form.give(0, y)
