"""Resize: interpolation along each axis in turn; and Upsample, its predecessor before opset 10.

Source: the ONNX operator descriptions of opsets 10 to 19. A region of interest does not change the lengths that scales
ask for: neither the standard's own inference nor any runtime lets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node, Value
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.registry import onnx
from ...runtime.ir.shape_inference import CHECK, Inference
from ..rules.output_limit import allowed
from ..rules.shape_rules import shape_error
from .interpolation import FILTERS, NEAREST, POSITIONS, Axis, chosen, taps, weighted

POLICIES: dict[str, Any] = {"stretch": None, "not_larger": min, "not_smaller": max}
WITHOUT_HALF = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


def resize_error(why: str) -> FormatError:
    """A node that contradicts itself."""
    return shape_error("Resize", f"{why}")


def resized_axes(axes: Sequence[int] | None, rank: int) -> list[int]:
    """The axes that scales, sizes and regions are for, none negative."""
    found = list(range(rank)) if not axes else [axis % rank if rank else axis for axis in axes if -rank <= axis < rank]
    if (axes and len(found) != len(axes)) or len(set(found)) != len(found):
        raise resize_error(f"axes {list(axes or ())} do not name different axes of {rank}")
    return found


def lengths_by_scale(shape: Sequence[int], scales: Sequence[float]) -> list[int]:
    """Lengths as f32 arithmetic gives them."""
    return [int(np.float32(size) * np.float32(scale)) for size, scale in zip(shape, scales, strict=True)]


def by_policy(shape: Sequence[int], sizes: Sequence[int], policy: str) -> tuple[list[int], list[float]]:
    """Lengths and scales for sizes that are asked for; the aspect ratio may have to be kept."""
    if policy not in POLICIES:
        raise resize_error(f"keep_aspect_ratio_policy {policy!r} is not one of {', '.join(POLICIES)}")
    scales = [
        float(np.float32(size) / np.float32(length)) if length else 1.0
        for size, length in zip(sizes, shape, strict=True)
    ]
    if POLICIES[policy] is None:
        return list(sizes), scales
    scale = POLICIES[policy](size / length if length else 1.0 for size, length in zip(sizes, shape, strict=True))
    return [int(scale * length + 0.5) for length in shape], [scale] * len(scales)


def _infer(node: Inference) -> None:
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), None)
        return
    axes, out = resized_axes(node.attributes["axes"], len(shape)), list(shape)
    scales, sizes = (
        node.array(2) if node.value(2) is not None else None,
        node.data(3) if node.value(3) is not None else None,
    )
    counts = [len(given) for given in (scales, sizes) if given is not None and len(given)]
    if any(count != len(axes) for count in counts):
        node.fail(f"{counted(counts[0], 'scale')} or sizes are given for {counted(len(axes), 'axis', 'axes')}")
    found: list[Dim] = [None] * len(axes)
    if scales is not None and scales.size:
        found = [scaled(shape[axis], float(scale)) for axis, scale in zip(axes, scales, strict=True)]
    elif sizes is not None and len(sizes) == len(axes):
        known = [size for size in sizes if isinstance(size, int)]
        before = [length for axis in axes if isinstance(length := shape[axis], int)]
        if node.attributes["keep_aspect_ratio_policy"] == "stretch":
            found = list(sizes)
        elif len(known) == len(before) == len(axes):
            found = list(by_policy(before, known, node.attributes["keep_aspect_ratio_policy"])[0])
    for axis, length in zip(axes, found, strict=True):
        out[axis] = length
    node.set(0, node.dtype(0), out)


def scaled(dim: Dim, scale: float) -> Dim:
    """A length by its scale."""
    return lengths_by_scale([dim], [scale])[0] if isinstance(dim, int) else dim if scale == 1 else None


def axes_to_resample(
    before: Sequence[int],
    roi: np.ndarray | None,
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    axes: Sequence[int] | None,
    policy: str,
) -> dict[int, Axis]:
    """Axis -> its resampling, for a tensor of that shape."""
    dims = resized_axes(axes, len(before))
    scales, sizes, roi = (None if item is None or not item.size else item for item in (scales, sizes, roi))
    if (scales is None) == (sizes is None):
        raise resize_error("either scales or sizes have to be given")
    shape = [before[dim] for dim in dims]
    for name, given, count in (("scales", scales, len(dims)), ("sizes", sizes, len(dims)), ("roi", roi, 2 * len(dims))):
        if given is not None and given.shape != (count,):
            raise resize_error(f"{name} of shape {given.shape} do not fit {counted(len(dims), 'axis', 'axes')}")
    if sizes is not None:
        lengths, factors = by_policy(shape, [int(size) for size in sizes], policy)
    else:
        assert scales is not None
        if not np.all(np.isfinite(scales) & (scales > 0)):
            raise resize_error("scales have to be positive")
        factors = [float(scale) for scale in scales]
        lengths = lengths_by_scale(shape, factors)
    if any(length < 0 or (length > 0 and not size) for length, size in zip(lengths, shape, strict=True)):
        raise resize_error(f"lengths {shape} cannot become {lengths}")
    regions = (
        [(0.0, 1.0)] * len(dims)
        if roi is None
        else [(float(roi[index]), float(roi[index + len(dims)])) for index in range(len(dims))]
    )
    return {
        dim: Axis(size, length, scale, *region)
        for dim, size, length, scale, region in zip(dims, shape, lengths, factors, regions, strict=True)
    }


def back(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Interpolated values in the input's dtype, whole ones rounded and saturated."""
    if dtype.kind not in "iub":
        return y.astype(dtype, copy=False)
    if dtype.kind == "b":
        return y >= 0.5
    bounds = np.iinfo(dtype)
    low, high = (
        np.nextafter(y.dtype.type(bound), y.dtype.type(0)) if bounds.bits > 32 else bound
        for bound in (bounds.min, bounds.max)
    )
    return np.clip(np.rint(y), low, high).astype(dtype)


@op(
    "Resize",
    since=19,
    types="tensor ieee f32 i64",
    traits=(Trait.KEEPS_F32,),
    infer=_infer,
    examples=[
        case("f32[1,2,3,4]", None, np.array([1, 1, 2, 3], np.float32)),
        case(
            "f32[2,1,5,7]",
            None,
            None,
            np.array([2, 1, 9, 4], np.int64),
            mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel",
        ),
        case(
            "f32[1,2,5,4]",
            None,
            np.array([1, 1, 0.8, 1.6], np.float32),
            mode="cubic",
            cubic_coeff_a=-0.5,
            exclude_outside=1,
            coordinate_transformation_mode="half_pixel",
        ),
        case(
            "f32[1,1,6,5]",
            np.array([0.2, 0.1, 1.3, 0.9], np.float32),
            None,
            np.array([4, 7], np.int64),
            axes=[3, 2],
            mode="linear",
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=9.0,
        ),
        case("f32[1,1,9,8]", None, np.array([1, 1, 0.4, 0.6], np.float32), mode="linear", antialias=1),
        case(
            "f32[1,1,5,7]",
            None,
            None,
            np.array([8, 9], np.int64),
            axes=[2, 3],
            keep_aspect_ratio_policy="not_larger",
            nearest_mode="ceil",
            coordinate_transformation_mode="asymmetric",
        ),
        case(
            "u8[1,1,4,4]",
            None,
            np.array([1, 1, 1.5, 0.5], np.float32),
            nearest_mode="floor",
            coordinate_transformation_mode="align_corners",
        ),
        case("f32[0,1,3,2]", None, np.array([1, 1, 2, 2], np.float32), mode="linear"),
    ],
)
def resize(
    x: np.ndarray,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> np.ndarray:
    """Lengths ``floor(scales * before)`` or `sizes`. Nearest moves elements of any dtype; sums are made in f32 (f64,
    i32 and i64 in f64)."""
    plan = axes_to_resample(x.shape, roi, scales, sizes, axes, keep_aspect_ratio_policy)
    allowed([plan[dim].out if dim in plan else size for dim, size in enumerate(x.shape)], x.itemsize, "Resize")
    allowed((sum(axis.out for axis in plan.values()),), 16, "Resize")
    place = chosen(POSITIONS, coordinate_transformation_mode, "coordinate_transformation_mode")
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if mode == "bilinear":
        mode = "linear"
    if mode != "nearest" and mode not in FILTERS:
        raise resize_error(f"mode {mode!r} is not nearest, linear or cubic")
    wide = (
        x.dtype
        if mode == "nearest" or x.dtype == np.float32
        else np.dtype(np.float64 if x.dtype.itemsize > 2 else np.float32)
    )
    y, outside = x.astype(wide, copy=False), []
    for dim, axis in sorted(plan.items(), key=lambda item: item[1].out / max(1, item[1].size)):
        if axis.scale == 1 and axis.out == axis.size and (not crops or (axis.start, axis.end) == (0, 1)):
            continue
        position = np.asarray(place(np.arange(axis.out, dtype=np.float32), axis))
        if crops:
            outside.append((dim, (position < 0) | (position > axis.size - 1)))
        if mode == "nearest":
            near = chosen(NEAREST, nearest_mode, "nearest_mode")(position)
            y = np.take(y, np.clip(near, 0, max(axis.size - 1, 0)).astype(np.int64), dim)
        else:
            y = weighted(y, dim, *taps(position, axis, mode, cubic_coeff_a, bool(antialias), bool(exclude_outside)))
    y = y if wide == x.dtype else back(y, x.dtype)
    for dim, mask in outside:
        if mask.any():
            y = np.where(
                mask.reshape(-1, *(1,) * (y.ndim - 1 - dim)), np.asarray(extrapolation_value).astype(y.dtype), y
            )
    return y


@upgrade(resize, below=11)
def with_coordinates(node: Node, build: Builder) -> None:
    """Opset 10: positions are ``out / scale``; the nearest element is the one before it, the one after it along axes
    that shrink."""
    x, scales = node.inputs
    mode = node.attributes.get("mode", "nearest")
    known = constant(scales, build)
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest" and (known is None or (known < 1).any()):
        one = build.constant(1.0, "float32")
        x = build.add(resize, [x, None, build.add("Min", [scales, one])], {**attributes, "nearest_mode": "ceil"})
        scales = build.add("Max", [scales, one])
    build.add(resize, [x, None, scales], {**attributes, "nearest_mode": "floor"}, outputs=node.outputs, name=node.name)


@upgrade(resize, below=13)
def without_tensorflow_pixels(node: Node, build: Builder) -> None:
    """Replace tf_half_pixel_for_nn of opsets 11 and 12 by half_pixel, with a rounding mode that selects the same
    pixels."""
    mode = node.attributes.get("nearest_mode", "round_prefer_floor")
    if node.attributes.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn" and mode in WITHOUT_HALF:
        node.attributes.update(coordinate_transformation_mode="half_pixel", nearest_mode=WITHOUT_HALF[mode])


def constant(value: Value | None, build: Builder) -> np.ndarray | None:
    """The array of a weight or of a Constant node."""
    if value is None:
        return None
    if value.producer is not None and value.producer.op is onnx.Constant:
        found = value.producer.attributes.get("value")
        return found if isinstance(found, np.ndarray) else None
    tensor = build.graph.weights.get(value.name)
    return None if tensor is None else tensor.numpy()


def infer_upsample(node: Inference) -> None:
    shape, scales = node.shape(0), node.array(1)
    if shape is not None and scales is not None and len(scales) != len(shape):
        node.fail(f"{counted(len(scales), 'scale', verb='is')} given for {counted(len(shape), 'axis', 'axes')}")
    known = (
        None
        if shape is None
        else [None if scales is None else scaled(dim, float(scales[axis])) for axis, dim in enumerate(shape)]
    )
    node.set(0, node.dtype(0), known)


@op("Upsample", since=9, types="integer+ieee+complex+bool+string f32", traits=(Trait.KEEPS_F32,), infer=infer_upsample)
def upsample(x: np.ndarray, scales: np.ndarray, *, mode: str = "nearest") -> np.ndarray:
    """Lengths ``floor(scales * before)``; positions are ``out / scale``."""
    assert resize.compute is not None
    made: np.ndarray = resize.compute(
        x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    return made


@upgrade(upsample, below=10)
def as_resize(node: Node, build: Builder) -> None:
    """Upsample is a Resize; its scales were attributes before opset 9, of the two last axes alone before opset 7."""
    attributes = node.attributes
    mode = {"bilinear": "linear"}.get(attributes.get("mode", "nearest"), attributes.get("mode", "nearest"))
    if len(node.inputs) > 1:
        scales = node.inputs[1]
    else:
        given = attributes.get("scales") or [
            1.0,
            1.0,
            attributes.get("height_scale", 0.0),
            attributes.get("width_scale", 0.0),
        ]
        if min(given) <= 0:
            raise FormatError("E-ONNX-NODE", None, f"Upsample node {node.name!r} has no scales", hint=CHECK)
        scales = build.constant(np.array(given, np.float32))
    wanted = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    build.add(resize, [node.inputs[0], None, scales], wanted, outputs=node.outputs, name=node.name)
