"""Pad and CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import axes_in, axes_of, constants, elements, input_error, zero
from ..rules.output_limit import allowed

MODES = ("constant", "reflect", "edge", "wrap")


def infer_pad(node: Inference) -> None:
    """Each length with the pads at both of its ends."""
    shape, pads = node.shape(0), elements(node, 1)
    if shape is None:
        node.set(0, node.dtype(0), None if pads is None or node.value(3) is not None else [None] * (len(pads) // 2))
        return
    axes = constants(elements(node, 3)) if node.value(3) is not None else tuple(range(len(shape)))
    if axes is None or pads is None:
        node.set(0, node.dtype(0), [None] * len(shape))
        return
    if len(pads) != 2 * len(axes):
        node.fail(f"{counted(len(pads), 'pad')} for {counted(len(axes), 'axis', 'axes')}")
    result = list(shape)
    for index, axis in enumerate(axes_of(node, axes, len(shape))):
        result[axis] = _sum(shape[axis], pads[index], pads[index + len(axes)])
    node.set(0, node.dtype(0), result)


def _sum(*parts: Dim) -> Dim:
    numbers = constants(parts)
    others = [part for part in parts if part != 0]
    return sum(numbers) if numbers is not None else others[0] if len(others) == 1 else None


def _source(mode: str, length: int, before: int, after: int) -> np.ndarray:
    """For each position of a padded axis, the position whose element it repeats."""
    positions = np.arange(-before, length + after)
    if mode == "edge":
        return np.clip(positions, 0, length - 1)
    if mode == "wrap":
        return positions % length
    period = max(2 * (length - 1), 1)
    folded = positions % period
    return np.where(folded >= length, period - folded, folded)


def source_places(mode: str, length: int, before: int, after: int) -> np.ndarray:
    """For each index of a padded axis, the index of its element before padding, -1 for a new one. Negative pads crop
    first."""
    start, stop = max(0, -before), length + min(0, after)
    kept, before, after = stop - start, max(0, before), max(0, after)
    positions = np.arange(-before, kept + after) if mode == "constant" else _source(mode, kept, before, after)
    return np.where((positions >= 0) & (positions < kept), positions + start, -1)


def _extended(x: np.ndarray, mode: str, befores: Sequence[int], afters: Sequence[int]) -> np.ndarray:
    """Negative pads crop first; the others repeat what is left."""
    x = x[tuple(slice(max(0, -b), length + min(0, a)) for length, b, a in zip(x.shape, befores, afters, strict=True))]
    for axis, (before, after) in enumerate(zip(befores, afters, strict=True)):
        if max(before, after) > 0:
            if x.shape[axis] == 0:
                raise input_error("Pad", f"axis {axis} has no elements to repeat", found=mode)
            allowed((x.shape[axis] + before + after,), 32, "Pad: the places of an axis")
            x = np.take(x, _source(mode, x.shape[axis], max(before, 0), max(after, 0)), axis)
    return x


PADS = np.array([1, 0, 0, 2])


@op(
    "Pad",
    since=25,
    types="T=any i64 T index",
    traits=(Trait.MOVES,),
    infer=infer_pad,
    examples=[
        case("f32[2,3]", PADS),
        case("f32[2,3]", PADS, np.array(7, np.float32)),
        case("f32[3,4]", np.array([2, 1, 2, 3]), mode="reflect"),
        case("f32[2,3]", np.array([3, 0, 1, 2]), mode="edge"),
        case("f32[2,3]", PADS, mode="wrap"),
        case("f32[2,3,4]", np.array([1, 2]), None, np.array([-1])),
        case("f32[4,5]", np.array([-1, 2, 0, -2]), np.array(1, np.float32)),
        case("f32[4,5]", np.array([-1, 2, 1, -2]), mode="edge"),
        case("i64[3]", np.array([1, 1]), np.array(5)),
        case("f32[0,3]", np.array([1, 0, 0, 0])),
        case("bool[2]", np.array([0, 1])),
    ],
)
def pad(
    x: np.ndarray,
    pads: np.ndarray,
    constant_value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str = "constant",
) -> np.ndarray:
    """`x` with pads at the beginning of each axis, then at the end of each; negative ones take elements away.

    New elements are `constant_value`, or those of the axis mirrored without its end (``reflect``), its end (``edge``),
    or those of its other end (``wrap``).
    """
    chosen = tuple(range(x.ndim)) if axes is None else axes_in("Pad", axes.reshape(-1), x.ndim)
    given = [int(item) for item in pads.reshape(-1)]
    if len(given) != 2 * len(chosen) or mode not in MODES:
        why = "pads do not match the axes, or the mode is unknown"
        raise input_error("Pad", why, expected=f"{counted(2 * len(chosen), 'pad')}", found=f"{len(given)}, mode {mode}")
    befores, afters = [0] * x.ndim, [0] * x.ndim
    for index, axis in enumerate(chosen):
        befores[axis], afters[axis] = given[index], given[index + len(chosen)]
    shape = [length + b + a for length, b, a in zip(x.shape, befores, afters, strict=True)]
    if min(shape, default=0) < 0:
        raise input_error("Pad", "more elements are taken away than there are", expected=list(x.shape), found=given)
    allowed(shape, x.dtype.itemsize, "Pad")
    if mode != "constant":
        return _extended(x, mode, befores, afters)
    result = np.empty(shape, x.dtype)
    result[...] = zero(x.dtype) if constant_value is None else constant_value.reshape(-1)[0]
    source = tuple(
        slice(max(0, -b), max(0, length + min(0, a))) for length, b, a in zip(x.shape, befores, afters, strict=True)
    )
    part = x[source]
    result[tuple(slice(max(0, b), max(0, b) + length) for length, b in zip(part.shape, befores, strict=True))] = part
    return result


@upgrade(pad, below=11)
def pads_were_attributes(node: Node, build: Builder) -> None:
    """Before opset 11 pads (``paddings`` in the first opset) and value were attributes."""
    name = "paddings" if "paddings" in node.attributes else "pads"
    pads, value = node.attributes.pop(name, None), node.attributes.pop("value", 0.0)
    if pads is None:
        return
    node.inputs.append(build.constant(pads))
    if value:
        node.inputs.append(build.add("CastLike", [build.constant(value, "float32"), node.inputs[0]]))
        build.keep(node)


def infer_center_crop_pad(node: Inference) -> None:
    """The lengths asked for."""
    shape, asked, axes = node.shape(0), elements(node, 1), node.attributes["axes"]
    if shape is None:
        node.set(0, node.dtype(0), asked if axes is None else None)
        return
    chosen = axes_of(node, range(len(shape)) if axes is None else axes, len(shape))
    asked = (None,) * len(chosen) if asked is None else asked
    if len(asked) != len(chosen):
        node.fail(f"{counted(len(asked), 'length')} for {counted(len(chosen), 'axis', 'axes')}")
    result = list(shape)
    for axis, length in zip(chosen, asked, strict=True):
        result[axis] = length
    node.set(0, node.dtype(0), result)


@op(
    "CenterCropPad",
    since=18,
    types="tensor index",
    infer=infer_center_crop_pad,
    examples=[
        case("f32[5,4]", np.array([2, 7])),
        case("f32[5,4,3]", np.array([4, 6]), axes=[-3, 1]),
        case("f32[3]", np.array([0])),
        case("i32[4,3]", np.array([3, 6], np.int32)),
        case("f32[0,3]", np.array([2, 2])),
    ],
)
def center_crop_pad(x: np.ndarray, shape: np.ndarray, *, axes: Sequence[int] | None = None) -> np.ndarray:
    """`x` cut or filled with zeros at both ends of `axes` to the lengths asked for; the odd element is at the end."""
    chosen = axes_in("CenterCropPad", range(x.ndim) if axes is None else axes, x.ndim)
    asked = [int(length) for length in shape.reshape(-1)]
    if len(asked) != len(chosen) or min(asked, default=0) < 0:
        raise input_error(
            "CenterCropPad",
            "the lengths do not fit the axes",
            expected=f"{counted(len(chosen), 'length')}",
            found=asked,
        )
    lengths = list(x.shape)
    for axis, length in zip(chosen, asked, strict=True):
        lengths[axis] = length
    cut = x[
        tuple(
            slice(max(0, (own - new) // 2), max(0, (own - new) // 2) + min(own, new))
            for own, new in zip(x.shape, lengths, strict=True)
        )
    ]
    result = np.empty(allowed(lengths, x.dtype.itemsize, "CenterCropPad"), x.dtype)
    result[...] = zero(x.dtype)
    result[
        tuple(slice((new - own) // 2, (new - own) // 2 + own) for own, new in zip(cut.shape, lengths, strict=True))
    ] = cut
    return result
