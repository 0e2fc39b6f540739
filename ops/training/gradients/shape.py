"""Gradients of data movement: reshape, transpose, slice, gather, scatter, concat, expand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....runtime.ir.op import Undecomposable
from ....runtime.tensor.dtype import I64
from ...conv.conv_transpose import col2im
from ...gather.gather import gather, gather_elements, gather_nd
from ...gather.non_zero import compress, non_zero
from ...gather.scatter import scatter_elements, scatter_nd, tensor_scatter
from ...generator.constant import constant
from ...generator.constant_of_shape import constant_of_shape, eye_like
from ...generator.one_hot import one_hot
from ...generator.range import range_
from ...generator.trilu import trilu
from ...pool.unpool import max_unpool
from ...rules.expression import Term
from ...rules.sliding_window import window
from ...shape.concat import concat
from ...shape.depth_to_space import depth_to_space, space_to_depth
from ...shape.expand import expand, tile
from ...shape.pad import center_crop_pad, pad
from ...shape.reshape import flatten, reshape
from ...shape.reverse_sequence import reverse_sequence
from ...shape.shape import shape, size
from ...shape.slice import slice_
from ...shape.split import split
from ...shape.squeeze import squeeze, unsqueeze
from ...shape.transpose import transpose
from ...signal import mel_weight_matrix, window_function
from ...sort.top_k import top_k
from ...sort.unique import unique
from ..gradient_rule import Step, differentiated, differentiated_as, without_gradient

without_gradient(shape, size, constant, constant_of_shape, eye_like, non_zero)
without_gradient(
    window_function.hann_window,
    window_function.hamming_window,
    window_function.blackman_window,
    mel_weight_matrix.mel_weight_matrix,
)


@differentiated(reshape, flatten, squeeze, unsqueeze)
def _reshape(step: Step) -> list[Term | None]:
    return [step.grad.like(step.input(0))]


@differentiated(transpose)
def _transpose(step: Step) -> list[Term | None]:
    perm = step.attributes["perm"]
    return [
        step.grad.call(
            "Transpose", **({} if perm is None else {"perm": [list(perm).index(axis) for axis in range(len(perm))]})
        )
    ]


@differentiated(concat)
def _concat(step: Step) -> list[Term | None]:
    axis = step.attributes["axis"]
    parts = [x.length(axis) for x in step.x if x is not None]
    lengths = step.of("Concat", parts, axis=0)
    outputs = step.build.node("Split", [step.grad.value, lengths.value], {"axis": axis}, outputs=len(parts)).outputs
    return [Term(value, step.build) for value in outputs]


@differentiated(split)
def _split(step: Step) -> list[Term | None]:
    """Parts that nothing depends on are zeros."""
    parts = [g if g is not None else step.output(index).filled(0) for index, g in enumerate(step.g)]
    return [step.of("Concat", parts, axis=step.attributes["axis"])]


@differentiated(expand)
def _expand(step: Step) -> list[Term | None]:
    return [step.grad.summed_to(step.input(0))]


@differentiated(range_)
def _range(step: Step) -> list[Term | None]:
    g = step.grad
    counts = step.integers(0).call("Range", g.call("Size"), step.integers(1)).call("CastLike", g)
    return [g.call("ReduceSum", keepdims=0), None, (g * counts).call("ReduceSum", keepdims=0)]


@differentiated(gather)
def _gather(step: Step) -> Sequence[Term | None]:
    """Gradients of entries of the first axis are added to them."""
    if step.attributes["axis"] != 0:
        return _picked(step)
    x, indices = step.input(0), step.input(1)
    places = indices.cast(I64).call("Unsqueeze", step.integers([-1]))
    return [x.filled(0).call("ScatterND", places, step.grad, reduction="add")]


@differentiated(slice_)
def _slice(step: Step) -> Sequence[Term | None]:
    """The gradient between zeros, where it is known which elements were left out."""
    try:
        pads = _left_out(step)
    except Undecomposable:
        return _picked(step)
    return _picked(step) if pads is None else [step.grad.call("Pad", step.integers(pads))]


def _left_out(step: Step) -> list[int] | None:
    """How many entries of each axis a slice leaves out before it, then after it; None if it leaves out others."""
    lengths = step.input(0).lengths
    starts, ends, axes, steps = (step.known(index) for index in range(1, 5))
    if starts is None or ends is None or (steps is not None and (steps != 1).any()):
        return None
    before, behind = [0] * len(lengths), [0] * len(lengths)
    for index, axis in enumerate(range(len(starts)) if axes is None else axes.tolist()):
        first, last, _ = slice(int(starts[index]), int(ends[index])).indices(lengths[axis])
        before[axis], behind[axis] = first, lengths[axis] - max(first, last)
    return [*before, *behind]


@differentiated(gather_elements)
def _gather_elements(step: Step) -> list[Term | None]:
    zeros, axis = step.input(0).filled(0), step.attributes["axis"]
    return [zeros.call("ScatterElements", step.input(1), step.grad, axis=axis, reduction="add")]


@differentiated(gather_nd, tile, compress)
def _picked(step: Step) -> list[Term | None]:
    """The operator on the positions of the elements says where each gradient belongs; those of one are added."""
    x, flat = step.input(0), step.integers([-1])
    zero, one = step.integers(0), step.integers(1)
    places = zero.call("Range", x.call("Size"), one).like(x)
    found = step.of(step.node.op.name, [places, *step.x[1:]], **step.attributes)
    zeros = x.filled(0).call("Reshape", flat)
    return [
        zeros.call(
            "ScatterElements", found.call("Reshape", flat), step.grad.call("Reshape", flat), axis=0, reduction="add"
        ).like(x)
    ]


@differentiated(reverse_sequence, trilu)
def _by_itself(step: Step) -> list[Term | None]:
    """Each gradient goes the way that its element went."""
    return [step.of(step.node.op.name, [step.grad, *step.x[1:]], **step.attributes)]


@differentiated(depth_to_space)
def _depth_to_space(step: Step) -> list[Term | None]:
    return [step.grad.call("SpaceToDepth", **step.attributes)]


@differentiated(space_to_depth)
def _space_to_depth(step: Step) -> list[Term | None]:
    return [step.grad.call("DepthToSpace", **step.attributes)]


@differentiated(pad)
def _pad(step: Step) -> list[Term | None]:
    """Crop the padding from the gradient; a constant gets the sum of the cropped elements."""
    pads, value, axes = (*step.x, None, None)[1:4]
    assert pads is not None
    if step.attributes["mode"] != "constant":
        return list(_picked(step))
    by_x = step.of("Pad", [step.grad, pads.call("Neg"), None, axes])
    if value is None:
        return [by_x]
    return [by_x, None, (step.grad.call("ReduceSum", keepdims=0) - by_x.call("ReduceSum", keepdims=0)).like(value)]


@differentiated(one_hot)
def _one_hot(step: Step) -> list[Term | None]:
    """The gradients of each of both values together."""
    g = step.grad
    switch = step.integers([0, 1]).call("CastLike", g)
    hot = step.of("OneHot", [step.input(0), step.input(1), switch], **step.attributes)
    parts = [(g * part).call("ReduceSum", keepdims=0).call("Unsqueeze", step.integers([0])) for part in (1 - hot, hot)]
    return [None, None, step.of("Concat", parts, axis=0)]


@differentiated(scatter_elements, scatter_nd)
def _scatter(step: Step) -> list[Term | None]:
    """Elements that were written over have no gradient; those that were added to keep it; of those that are equally far
    out each has a share."""
    data, indices, updates, g = step.input(0), step.input(1), step.input(2), step.grad
    reduction, along = step.attributes["reduction"], {}
    if "axis" in step.attributes:
        along = {"axis": step.attributes["axis"]}

    def gathered(term: Term) -> Term:
        return term.call("GatherElements" if along else "GatherND", indices, **along)

    def scattered(term: Term, values: Term, reduction: str) -> Term:
        return step.of(step.node.op.name, [term, indices, values], reduction=reduction, **along)

    if reduction in ("none", "add"):
        by_data = g if reduction == "add" else scattered(g, updates.filled(0), "none")
        return [by_data, None, gathered(g)]
    if reduction == "mul":
        ones, zero, one = updates.filled(1), updates.number(0), updates.number(1)
        by_data = g * scattered(data.filled(1), updates, "mul")
        gone, kept = updates.call("Equal", zero), data.call("Equal", zero)
        product = gathered(scattered(kept.where(1, data), gone.call("Where", ones, updates), "mul"))
        zeros = gathered(scattered(kept.call("CastLike", data), gone.call("CastLike", data), "add"))
        others = zeros.call("Equal", zero).where(product / gone.call("Where", one, updates), 0)
        alone = zeros.call("Equal", one).where(product, 0)
        return [by_data, None, gathered(g) * gone.call("Where", alone, others)]
    y = step.output(0)
    hits = updates.call("Equal", gathered(y)).call("CastLike", g)
    own = data.call("Equal", y).call("CastLike", g)
    share = g / scattered(own, hits, "add").call("Max", g.number(1))
    return [own * share, None, hits * gathered(share)]


@differentiated(center_crop_pad)
def _center_crop_pad(step: Step) -> list[Term | None]:
    """As `_picked`, with elements that come from nowhere."""
    x, g, flat = step.input(0), step.grad, step.integers([-1])
    found = step.of("CenterCropPad", [_numbered(step, x), *step.x[1:]], **step.attributes)
    return [_returned(x, found, g, flat)]


def _numbered(step: Step, x: Term) -> Term:
    """The number of each element, from 1 on."""
    one = step.integers(1)
    return one.call("Range", x.call("Size").call("Add", one), one).like(x)


def _returned(x: Term, numbers: Term, g: Term, flat: Term) -> Term:
    """Each gradient at the element of this number; those of number 0 are dropped."""
    zeros = x.number(0).call("Expand", x.call("Size").call("Add", x.integers(1)).call("Reshape", flat))
    added = zeros.call(
        "ScatterElements", numbers.call("Reshape", flat), g.call("Reshape", flat), axis=0, reduction="add"
    )
    return added.call("Slice", x.integers([1]), x.integers([1 << 62])).like(x)


@differentiated(tensor_scatter)
def _tensor_scatter(step: Step) -> list[Term | None]:
    """Overwritten elements have a gradient of zero."""
    cache, update, g, flat = step.input(0), step.input(1), step.grad, step.integers([-1])
    zeros = step.integers(0).call("Expand", cache.shape)
    numbers = step.of("TensorScatter", [zeros, _numbered(step, update), *step.x[2:]], **step.attributes)
    by_cache = (numbers > 0).where(0, g)
    return [by_cache, _returned(update, numbers, g, flat)]


@differentiated(max_unpool)
def _max_unpool(step: Step) -> list[Term | None]:
    """The gradients at the positions that elements were put to."""
    x, places, g, flat = step.input(0), step.input(1), step.grad, step.integers([-1])
    if len(step.x) > 2 and step.x[2] is not None:
        inner = step.of("MaxUnpool", [x, places], **step.attributes).shape
        behind = inner.call("Sub", g.shape)
        none = inner.call("Sub", inner)
        g = g.call("Pad", none.call("Concat", behind, axis=0))
    return [g.call("Reshape", flat).call("Gather", places.call("Reshape", flat)).like(x)]


@differentiated(unique)
def _unique(step: Step) -> list[Term | None]:
    """The gradient goes to the first element, or part of an axis, of each kind."""
    x, flat, axis = step.input(0), step.integers([-1]), step.attributes["axis"]
    zero, one = step.integers(0), step.integers(1)
    indices = zero.call("Range", x.call("Size"), one)
    if axis is not None:
        indices = indices.like(x)
    found = indices.call("Gather", step.output(1), axis=axis or 0)
    zeros = x.filled(0).call("Reshape", flat)
    added = zeros.call(
        "ScatterElements", found.call("Reshape", flat), step.grad.call("Reshape", flat), axis=0, reduction="add"
    )
    return [added.like(x)]


@differentiated_as(col2im)
def _col2im(step: Step) -> list[Term | None]:
    """A transposed convolution with a kernel for each tap."""
    x, sizes, kernel, options = step.input(0), step.known(1), step.known(2), step.attributes
    assert sizes is not None
    assert kernel is not None
    image, block = sizes.reshape(-1).tolist(), kernel.reshape(-1).tolist()
    axes = window("Col2Im", len(image), block, options["strides"], options["pads"], options["dilations"]).axes(image)
    taps = math.prod(block)
    batch, channels, _ = x.lengths
    weight = np.tile(np.eye(taps).reshape(taps, 1, *block), (channels // taps, *(1,) * (len(block) + 1)))
    reach = [(axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 for axis in axes]
    found = x.reshaped(batch, channels, *(axis.out for axis in axes)).call(
        "ConvTranspose",
        x.constant(weight, x.dtype.as_numpy()),
        group=channels // taps,
        strides=[axis.stride for axis in axes],
        dilations=[axis.dilation for axis in axes],
    )
    ends = [length + axis.begin - span for length, axis, span in zip(image, axes, reach, strict=True)]
    pads = [0, 0, *(-axis.begin for axis in axes), 0, 0, *ends]
    return [found.call("Pad", step.integers(pads))]


@differentiated(top_k)
def _top_k(step: Step) -> list[Term | None]:
    x, axis = step.input(0), step.attributes["axis"]
    return [x.filled(0).call("ScatterElements", step.output(1), step.grad, axis=axis, reduction="add")]
