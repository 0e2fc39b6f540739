"""ConvTranspose: every input element adds its kernel to the output; and Col2Im, which sums windows stored as
columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from ..rules.sliding_window import AUTO_PADS, Axis, Part, blocks, spread, taps, window
from .conv import COLUMN_BYTES, extent

NAMES = ("strides", "pads", "dilations", "output_padding", "output_shape", "auto_pad")


def transposed_axes(
    kernel: Sequence[int],
    sizes: Sequence[Dim],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
    auto_pad: str,
) -> list[Axis | None]:
    """The axes of the output, as windows that give the input; None where the input's length is not known.

    A given output length decides the padding; otherwise the padding decides the length.
    """
    what, rank = "ConvTranspose", len(kernel)
    mode = auto_pad or "NOTSET"
    if rank < 1 or mode not in AUTO_PADS:
        raise shape_error(what, f"a kernel over {rank} spatial axes with auto_pad {mode!r}")
    steps = spread(strides, rank, rank, 1, what, "strides", 1)
    gaps = spread(dilations, rank, rank, 1, what, "dilations", 1)
    around = spread(None if mode == "VALID" else pads, rank, 2 * rank, 0, what, "pads", 0)
    more = spread(output_padding, rank, rank, 0, what, "output_padding", 0)
    lengths = spread(output_shape, rank, rank, 1, what, "output_shape", 0) if output_shape else None

    def made(axis: int) -> Axis | None:
        size, step, begin, end = sizes[axis], steps[axis], around[axis], around[axis + rank]
        if not isinstance(size, int):
            return None
        full = step * (size - 1) + more[axis] + gaps[axis] * (kernel[axis] - 1) + 1
        length = lengths[axis] if lengths else min(size * step, full) if mode.startswith("SAME") else full - begin - end
        if lengths or mode.startswith("SAME"):
            total = max(full - length, 0)
            begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
            end = total - begin
        if length < 0:
            raise shape_error(what, f"{begin} + {end} of padding leave nothing of an output of {full}")
        return Axis(length, kernel[axis], step, gaps[axis], begin, end, size)

    return [made(axis) for axis in range(rank)]


def _infer(node: Inference) -> None:
    x, weight = node.shape(0), node.shape(1)
    rank = len(x) if x is not None else len(weight) if weight is not None else None
    if rank is None:
        node.set(0, node.dtype(0), None)
        return
    if rank < 3 or (x is not None and weight is not None and len(x) != len(weight)):
        node.fail(f"the input has shape {x} and the kernel {weight}")
    if (
        x is not None
        and weight is not None
        and isinstance(x[1], int)
        and isinstance(weight[0], int)
        and x[1] != weight[0]
    ):
        node.fail(f"{x[1]} channels do not match a kernel of shape {weight}")
    kernel = node.attributes["kernel_shape"] or (weight[2:] if weight is not None else ())
    lengths = [length for length in kernel if isinstance(length, int)]
    spatial: list[Dim] = list(node.attributes["output_shape"] or [None] * (rank - 2))
    if lengths and len(lengths) == len(kernel) and x is not None:
        axes = transposed_axes(lengths, x[2:], *(node.attributes[name] for name in NAMES))
        spatial = [known if axis is None else axis.size for axis, known in zip(axes, spatial, strict=True)]
    channels = weight[1] * node.attributes["group"] if weight is not None and isinstance(weight[1], int) else None
    node.set(0, node.dtype(0), (x[0] if x is not None else None, channels, *spatial))


@op(
    "ConvTranspose",
    since=22,
    types="T=float T T",
    traits=(Trait.PRODUCT,),
    weights={1: 1},
    infer=_infer,
    examples=[
        case("f32[2,4,5,3]", "f32[4,3,3,2]", "f32[3]", strides=[2, 1], pads=[1, 0, 0, 1], output_padding=[1, 0]),
        case("f32[1,4,5,3]", "f32[4,2,3,3]", group=2, dilations=[2, 1], auto_pad="SAME_LOWER", strides=[2, 3]),
        case("f32[2,3,6]", "f32[3,5,4]", "f32[5]", strides=[3], output_shape=[17], kernel_shape=[4]),
        case("f32[2,3,6]", "f32[3,5,4]", strides=[2], output_shape=[11], auto_pad="SAME_UPPER"),
        case("f32[1,2,3,4,2]", "f32[2,3,2,1,3]", strides=[1, 2, 3]),
        case("f32[1,2,3,4]", "f32[2,3,1,1]", auto_pad="VALID"),
        case("f32[0,2,3,4]", "f32[2,3,3,3]"),
    ],
)
@quiet
@widened
def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """From [n, channels, spatial...] and kernels [channels, out / group, taps...] to [n, out, spatial...]."""
    if (
        x.ndim != w.ndim
        or group < 1
        or x.shape[1] != w.shape[0]
        or w.shape[0] % group
        or list(kernel_shape or w.shape[2:]) != list(w.shape[2:])
    ):
        why = f"an input of shape {x.shape} and a kernel of shape {w.shape} do not match in {group} groups"
        raise shape_error("ConvTranspose", why)
    each = w.shape[1]
    if b is not None and b.shape != (group * each,):
        raise shape_error("ConvTranspose", f"a bias of shape {b.shape} does not match {group * each} output channels")
    axes = [
        axis
        for axis in transposed_axes(
            w.shape[2:], x.shape[2:], strides, pads, dilations, output_padding, output_shape, auto_pad
        )
        if axis
    ]
    lengths = [axis.size for axis in axes]
    y = np.zeros(allowed((len(x), group, each, *lengths), x.itemsize, "ConvTranspose"), x.dtype)
    if b is not None:
        y += b.reshape(group, each, *(1,) * len(axes))
    rows = w.reshape(group, w.shape[0] // group, math.prod(w.shape[1:])).transpose(0, 2, 1)
    depth = max(1, group * rows.shape[1] * x.itemsize)
    for image, result in zip(x.reshape(len(x), group, rows.shape[2], *x.shape[2:]), y, strict=True):
        for block in blocks(x.shape[2:], COLUMN_BYTES // depth):
            part = image[:, :, *block].reshape(group, rows.shape[2], math.prod(extent(block)))
            add_columns(result, (rows @ part).reshape(group, each, *w.shape[2:], *extent(block)), axes, block)
    return y.reshape(len(x), group * each, *lengths)


def add_columns(image: np.ndarray, columns: np.ndarray, axes: Sequence[Axis], block: Part) -> None:
    """Add windows [first, second, taps..., positions of a block...] to [first, second, spatial...] where they belong;
    what falls outside is lost."""
    for position, out, seen in taps(axes, block):
        part: tuple[int | slice, ...] = (slice(None), slice(None), *position, *out)
        image[:, :, *seen] += columns[part]


def _infer_col2im(node: Inference) -> None:
    x, image, kernel = node.shape(0), node.data(1), node.data(2)
    if x is not None and len(x) != 3:
        node.fail(f"the input has shape {x}; it is of rank 3")
    lengths = [length for length in kernel or () if isinstance(length, int)]
    count = math.prod(lengths) if kernel is not None and len(lengths) == len(kernel) else 0
    channels = x[1] // count if x is not None and isinstance(x[1], int) and count else None
    ranks = [shape[0] for shape in (node.shape(1), node.shape(2)) if shape] + [
        len(node.attributes[name] or ()) // ends or None
        for name, ends in (("strides", 1), ("dilations", 1), ("pads", 2))
    ]
    rank = next((length for length in ranks if isinstance(length, int)), None)
    spatial = image if image is not None else None if rank is None else (None,) * rank
    node.set(0, node.dtype(0), None if spatial is None else (x[0] if x is not None else None, channels, *spatial))


@op(
    "Col2Im",
    since=18,
    types="tensor i64 i64",
    infer=_infer_col2im,
    examples=[
        case("f32[2,12,20]", np.array([5, 7]), np.array([2, 3])),
        case("f32[1,8,12]", np.array([5, 6]), np.array([2, 2]), strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 3]),
        case("f32[1,6,4]", np.array([6]), np.array([3])),
        case("f32[1,24,8]", np.array([3, 4, 3]), np.array([2, 3, 2])),
    ],
)
@quiet
@widened
def col2im(
    x: np.ndarray,
    image_shape: np.ndarray,
    block_shape: np.ndarray,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """From windows [n, channels x taps, positions] to [n, channels, spatial...], elements that windows share added
    up."""
    kernel, sizes = (
        [int(length) for length in block_shape.reshape(-1)],
        [int(length) for length in image_shape.reshape(-1)],
    )
    if len(kernel) != len(sizes) or x.ndim != 3:
        raise shape_error(
            "Col2Im", f"an input of shape {x.shape}, image_shape {sizes} and block_shape {kernel} do not fit together"
        )
    axes = window("Col2Im", len(sizes), kernel, strides, pads, dilations).axes(sizes)
    count, positions = math.prod(kernel), [axis.out for axis in axes]
    if x.shape[1] % count or x.shape[2] != math.prod(positions):
        raise shape_error("Col2Im", f"an input of shape {x.shape} does not hold {positions} windows of shape {kernel}")
    y = np.zeros(allowed((len(x), x.shape[1] // count, *sizes), x.itemsize, "Col2Im"), x.dtype)
    add_columns(y, x.reshape(*y.shape[:2], *kernel, *positions), axes, tuple(slice(0, length) for length in positions))
    return y
