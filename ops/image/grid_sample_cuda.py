"""GridSample and RoiAlign on the device: one output element per thread."""

from __future__ import annotations

import math

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument
from ..elementwise.unary import _round as to_even
from .grid_sample import KEYS, grid_sample
from .interpolation import FILTERS
from .roi_align import roi_align

POSITION = """
    at{axis} = get_grid(grid, cell * {rank} + {last})
    at{axis} = {place}
    if at{axis} != at{axis}:
        at{axis} = KIND({lost})
    at{axis} = min(max(at{axis}, KIND(-1e9)), KIND(1e9))
"""
REFLECTED = """
    {name} = np.float64({name})
    if {high} - {low} <= 0:
        {name} = 0.0
    elif {name} < {low} or {name} > {high}:
        under = {name} < {low}
        beyond = {low} - {name} if under else {name} - {high}
        turns = math.floor(beyond / ({high} - {low}))
        rest = beyond - turns * ({high} - {low})
        odd = turns - 2.0 * math.floor(turns / 2.0) != 0.0
        {name} = {low} + rest if under != odd else {high} - rest
"""
CUBIC = f"""
    far{{axis}} = abs(np.float64(first{{axis}} + step{{axis}}) - np.float64(at{{axis}}))
    share{{axis}} = 0.0
    if far{{axis}} <= 1.0:
        share{{axis}} = (({KEYS} + 2.0) * far{{axis}} - ({KEYS} + 3.0)) * far{{axis}} * far{{axis}} + 1.0
    elif far{{axis}} < 2.0:
        share{{axis}} = ({KEYS} * far{{axis}} - 5.0 * {KEYS}) * far{{axis}} + 8.0 * {KEYS}
        share{{axis}} = share{{axis}} * far{{axis}} - 4.0 * {KEYS}
"""
LINEAR = """
    share{axis} = max(0.0, 1.0 - abs(np.float64(first{axis} + step{axis}) - np.float64(at{axis})))
"""


def _indented(text: str, depth: int) -> list[str]:
    return ["    " * depth + line[4:] for line in text.strip("\n").split("\n") if line.strip()]


def _bounds(length: int, corners: bool) -> tuple[str, str]:
    return ("0.0", f"{length - 1.0!r}") if corners else ("-0.5", f"{length - 0.5!r}")


def _inside(axis: int, length: int, padding: str, bounds: tuple[str, str], depth: int) -> list[str]:
    """Lines that bring an index into the image, or its share to nothing."""
    name = f"index{axis}"
    lines = [f"{name} = np.int64(first{axis} + step{axis})"]
    if padding == "zeros":
        lines += [f"if {name} < 0 or {name} >= {length}:", f"    share{axis} = 0.0", f"    {name} = np.int64(0)"]
    elif padding == "reflection":
        lines += [f"folded{axis} = np.float64({name})"]
        lines += _indented(REFLECTED.format(name=f"folded{axis}", low=bounds[0], high=bounds[1]), 0)
        lines += [f"{name} = np.int64(folded{axis})"]
    lines += [f"{name} = min(max({name}, np.int64(0)), np.int64({length - 1}))"]
    return ["    " * depth + line for line in lines]


def _text(lengths: tuple[int, ...], mode: str, padding: str, corners: bool, kind: str) -> str:
    rank = len(lengths)
    lines = ["cell = i % cells + i // (cells * channels) * cells", "channel = i // cells"]
    for axis, length in enumerate(lengths):
        bounds = _bounds(length, corners)
        place = (
            f"(at{axis} + KIND(1)) / KIND(2) * KIND({length - 1})"
            if corners
            else f"((at{axis} + KIND(1)) * KIND({length}) - KIND(1)) / KIND(2)"
        )
        found = _indented(
            POSITION.format(
                axis=axis, rank=rank, last=rank - 1 - axis, place=place, lost=-2.0 if padding == "zeros" else 0.0
            ),
            0,
        )
        if mode == "nearest":
            found.insert(2, f"at{axis} = KIND(rounded_even(np.float64(at{axis})))")
        if padding == "border" and mode != "cubic":
            found += [
                f"if at{axis} < {bounds[0]} or at{axis} > {bounds[1]}:",
                f"    at{axis} = min(max(at{axis}, KIND(0)), KIND({length - 1}))",
            ]
        elif padding == "reflection":
            found += [f"back{axis} = np.float64(at{axis})"]
            found += [
                *_indented(REFLECTED.format(name=f"back{axis}", low=bounds[0], high=bounds[1]), 0),
                f"at{axis} = KIND(back{axis})",
            ]
        lines += [line.replace("KIND", kind) for line in found]
        lines += [
            f"first{axis} = np.int64(at{axis})"
            if mode == "nearest"
            else f"first{axis} = np.int64(math.floor(at{axis}))"
        ]
    lines.append("total = TYPE(0)")
    reach = 0 if mode == "nearest" else FILTERS[mode][0]
    for axis, length in enumerate(lengths):
        steps = "range(1)" if mode == "nearest" else f"range({1 - reach}, {reach + 1})"
        lines += ["    " * axis + f"for step{axis} in {steps}:"]
        share = {"nearest": "    share{axis} = 1.0", "linear": LINEAR, "cubic": CUBIC}[mode].format(axis=axis)
        lines += _indented(share, axis + 1) + _inside(axis, length, padding, _bounds(length, corners), axis + 1)
    place = "channel"
    for axis, length in enumerate(lengths):
        place = f"({place}) * {length} + index{axis}"
    weight = " * ".join(f"share{axis}" for axis in range(rank))
    if mode == "nearest":
        lines += ["    " * rank + f"if {weight} != 0.0:", "    " * (rank + 1) + f"total = get_x(x, {place})"]
    else:
        lines += ["    " * rank + f"total += get_x(x, {place}) * TYPE({weight})"]
    return "\n".join([*lines, "put_y(y, i, total)"])


@cuda(grid_sample)
def grid_sample_on_device(step: Step) -> Planned:
    """Weight the taps along each axis; weights are computed in f64."""
    x, grid, y = step.input(0), step.input(1), step.output()
    given = step.attributes
    kind = compute_dtype(x.dtype)
    if kind.kind == "b" or (kind.kind != "f" and given["mode"] != "nearest"):
        return "integer and bool images are supported on the CPU only"
    cells = math.prod(y.shape[2:])
    positions = "np.float64" if grid.dtype.name == "float64" else "np.float32"
    text = _text(x.shape[2:], given["mode"], given["padding_mode"], bool(given["align_corners"]), positions).replace(
        "TYPE", f"np.{kind.name}"
    )
    named: dict[str, Argument] = {"x": x, "grid": grid, "y": y, "cells": cells, "channels": x.shape[1]}
    return per_thread_launch("grid sample", y.count, named, text, {"rounded_even": (to_even, "float64")})


REGION = """
    column = i % columns
    row = i // columns % rows
    channel = i // (columns * rows) % channels
    region = i // (columns * rows * channels)
    image = np.int64(get_images(images, region))
    if image < 0 or image >= batch:
        outside[0] = 1
        image = np.int64(0)
    shift = KIND(0.5) if half else KIND(0)
    left = KIND(get_rois(rois, region * 4)) * KIND(scale) - shift
    top = KIND(get_rois(rois, region * 4 + 1)) * KIND(scale) - shift
    wide = KIND(get_rois(rois, region * 4 + 2)) * KIND(scale) - shift - left
    tall = KIND(get_rois(rois, region * 4 + 3)) * KIND(scale) - shift - top
    if half == 0:
        wide = max(wide, KIND(1))
        tall = max(tall, KIND(1))
    across = ratio if ratio > 0 else max(np.int64(0), np.int64(math.ceil(wide / KIND(columns))))
    down = ratio if ratio > 0 else max(np.int64(0), np.int64(math.ceil(tall / KIND(rows))))
    wide = wide / KIND(columns)
    tall = tall / KIND(rows)
    plane = (image * channels + channel) * height * width
    total = KIND(0)
    best = KIND(-np.inf)
    for v in range(down):
        y_at = top + KIND(row) * tall + (KIND(v) + KIND(0.5)) * tall / KIND(max(down, np.int64(1)))
        y_out = y_at < KIND(-1) or y_at > KIND(height)
        y_at = min(max(y_at, KIND(0)), KIND(height - 1))
        y_low = np.int64(math.floor(y_at))
        y_part = y_at - KIND(y_low)
        y_high = min(y_low + 1, height - 1)
        for u in range(across):
            x_at = left + KIND(column) * wide + (KIND(u) + KIND(0.5)) * wide / KIND(max(across, np.int64(1)))
            x_out = x_at < KIND(-1) or x_at > KIND(width)
            x_at = min(max(x_at, KIND(0)), KIND(width - 1))
            x_low = np.int64(math.floor(x_at))
            x_part = x_at - KIND(x_low)
            x_high = min(x_low + 1, width - 1)
            inside = KIND(0) if x_out or y_out else KIND(1)
            a = get_x(x, plane + y_low * width + x_low) * (inside * (KIND(1) - y_part) * (KIND(1) - x_part))
            b = get_x(x, plane + y_low * width + x_high) * (inside * (KIND(1) - y_part) * x_part)
            c = get_x(x, plane + y_high * width + x_low) * (inside * y_part * (KIND(1) - x_part))
            d = get_x(x, plane + y_high * width + x_high) * (inside * y_part * x_part)
            total += a + b + c + d
            best = max(best, max(max(a, b), max(c, d)))
    if largest:
        put_y(y, i, best if across * down > 0 else KIND(0))
    else:
        put_y(y, i, total / KIND(max(np.int64(1), across * down)))
"""


@cuda(roi_align)
def roi_align_on_device(step: Step) -> Planned:
    """Sum the samples of each bin in order."""
    x, rois, images, y = step.input(0), step.input(1), step.input(2), step.output()
    given = step.attributes
    named: dict[str, Argument] = {
        "x": x,
        "rois": rois,
        "images": images,
        "y": y,
        "batch": x.shape[0],
        "channels": x.shape[1],
        "height": x.shape[2],
        "width": x.shape[3],
        "rows": y.shape[2],
        "columns": y.shape[3],
        "ratio": given["sampling_ratio"],
        "scale": float(given["spatial_scale"]),
        "half": int(given["coordinate_transformation_mode"] == "half_pixel"),
        "largest": int(given["mode"] == "max"),
        "outside": step.flag("RoiAlign: the batch index of a region is out of range"),
    }
    return per_thread_launch(
        "regions aligned", y.count, named, REGION.replace("KIND", f"np.{compute_dtype(x.dtype).name}")
    )
