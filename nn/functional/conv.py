"""Convolutions, transposed convolutions and padding of images [N, C, ...] and [C, ...]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.expression import leaf, op_named, shape_error
from ...tensors.core.registry import FUNCTIONS
from ...tensors.core.tensor import Tensor
from ...tensors.operations.operands import apply_in, integers, require_one_dtype, scalar
from .sizes import Size, batched, per_dim, unbatched

__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "pad", "unfold",
]  # fmt: skip
MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""torch's words for what is beyond the edges, and ONNX's."""


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """More elements at the ends of dims, or fewer.

    Args:
        pad: how many before and after the last dim, then the one before it, and so on.
        mode: "constant", "reflect", "replicate" or "circular".
        value: of the constant, 0 by default.
    """
    if mode not in MODES:
        raise UsageError("E-NN-VALUE", None, f"{mode!r} is not a mode of padding", expected=", ".join(MODES))
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise shape_error(f"pad: {list(pad)} does not fit a tensor of shape {list(input.shape)}")
    before, after = [0] * input.ndim, [0] * input.ndim
    for index in range(len(pad) // 2):
        before[-1 - index], after[-1 - index] = int(pad[2 * index]), int(pad[2 * index + 1])
    most = {"reflect": -1, "circular": 0}.get(mode)
    ends = map(max, before, after)
    if most is not None and any(end and end > length + most for end, length in zip(ends, input.shape, strict=True)):
        raise shape_error(f"pad: {list(pad)} in mode {mode!r} is more than a tensor of {list(input.shape)} has")
    if mode == "replicate" and min([*before, *after], default=0) < 0:  # the edges are those of the whole image
        wide = _padded(input, [max(count, 0) for count in before], [max(count, 0) for count in after], mode, None)
        before, after = ([min(count, 0) for count in counts] for counts in (before, after))
        return _padded(wide, before, after, "constant", None)
    return _padded(input, before, after, mode, value)


def _padded(input: Tensor, before: Sequence[int], after: Sequence[int], mode: str, value: float | None) -> Tensor:
    filled = scalar(value, input.dtype) if mode == "constant" and value else None
    inputs = [input.expression, integers([*before, *after]), filled]
    return Tensor(apply_in(op_named("Pad"), inputs, {"mode": MODES[mode]}))


def _windows(padding: Any, weight: Tensor, stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Padding before the dims, then after them."""
    dims = weight.ndim - 2
    if padding == "valid":
        return [0] * (2 * dims)
    if padding == "same":
        if any(step != 1 for step in stride):
            why = f'padding "same" with stride {list(stride)}'
            raise UsageError("E-NN-VALUE", None, why, expected="a stride of 1")
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        return [each // 2 for each in total] + [each - each // 2 for each in total]
    if isinstance(padding, str):
        raise UsageError("E-NN-VALUE", None, f"{padding!r} is not a padding", expected="valid, same or numbers")
    return list(per_dim(padding, dims, "padding")) * 2


def _by_parts(
    convolved: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *options: Any
) -> Tensor:
    """A convolution of complex numbers, as four of their parts."""
    require_one_dtype([input.expression, weight.expression], "a convolution")

    def of(x: Tensor, w: Tensor) -> Tensor:
        return convolved(x, w, None, *options)

    a, b, c, d = input.real, input.imag, weight.real, weight.imag
    found: Tensor = FUNCTIONS["complex"](of(a, c) - of(b, d), of(a, d) + of(b, c))
    return found if bias is None else found + bias.reshape([-1, *[1] * (weight.ndim - 2)])


def convolve(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Size, padding: Any, dilation: Size,
    groups: int,
) -> Tensor:  # fmt: skip
    """A convolution with as many dims as the weight [out, in / groups, ...] has."""
    dims = weight.ndim - 2
    if weight.dtype.is_complex:
        return _by_parts(convolve, input, weight, bias, stride, padding, dilation, groups)
    x, added = batched(input, dims, f"conv{dims}d")
    if x.shape[1] != weight.shape[1] * groups:
        why = f"{x.shape[1]} channels of {list(input.shape)} for a weight of shape {list(weight.shape)}"
        raise shape_error(f"conv{dims}d: {why} with {counted(groups, 'group')}")
    steps, spread = per_dim(stride, dims, "stride"), per_dim(dilation, dims, "dilation")
    options = {
        "strides": steps,
        "pads": _windows(padding, weight, steps, spread),
        "dilations": spread,
        "group": groups,
        "kernel_shape": weight.shape[2:],
    }
    inputs = [x.expression, weight.expression, *([] if bias is None else [bias.expression])]
    return unbatched(Tensor(apply_in(op_named("Conv"), inputs, options)), added)


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Any = 0,
    dilation: Size = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of [N, C, L] with a weight [out, C / groups, k]; padding is numbers, "same" or "valid"."""
    return convolve(input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Any = 0,
    dilation: Size = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of [N, C, H, W] with a weight [out, C / groups, k, k]; padding is numbers, "same" or "valid"."""
    return convolve(input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Any = 0,
    dilation: Size = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of [N, C, D, H, W] with a weight [out, C / groups, k, k, k], padding as in `conv2d`."""
    return convolve(input, weight, bias, stride, padding, dilation, groups)


def convolve_transposed(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Size, padding: Size, output_padding: Size,
    groups: int, dilation: Size,
) -> Tensor:  # fmt: skip
    """The gradient of a convolution by its input, with as many dims as the weight [in, out / groups, ...] has."""
    dims = weight.ndim - 2
    if weight.dtype.is_complex:
        return _by_parts(convolve_transposed, input, weight, bias, stride, padding, output_padding, groups, dilation)
    x, added = batched(input, dims, f"conv_transpose{dims}d")
    if x.shape[1] != weight.shape[0]:
        why = f"{x.shape[1]} channels of {list(input.shape)} for a weight of shape {list(weight.shape)}"
        raise shape_error(f"conv_transpose{dims}d: {why}")
    options = {
        "strides": per_dim(stride, dims, "stride"),
        "pads": per_dim(padding, dims, "padding") * 2,
        "dilations": per_dim(dilation, dims, "dilation"),
        "output_padding": per_dim(output_padding, dims, "output_padding"),
        "group": groups,
        "kernel_shape": weight.shape[2:],
    }
    inputs = [x.expression, weight.expression, *([] if bias is None else [bias.expression])]
    return unbatched(Tensor(apply_in(op_named("ConvTranspose"), inputs, options)), added)


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0,
    output_padding: Size = 0, groups: int = 1, dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of [N, C, L] with a weight [C, out / groups, k]."""
    return convolve_transposed(input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0,
    output_padding: Size = 0, groups: int = 1, dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of [N, C, H, W] with a weight [C, out / groups, k, k]."""
    return convolve_transposed(input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0,
    output_padding: Size = 0, groups: int = 1, dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of [N, C, D, H, W] with a weight [C, out / groups, k, k, k]."""
    return convolve_transposed(input, weight, bias, stride, padding, output_padding, groups, dilation)


def _places(size: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """For each window of a padded image, row by row, the flat positions of its elements: [kernel elements, windows]."""
    k, d, p, s = (per_dim(each, 2) for each in (kernel, dilation, padding, stride))
    length = [size[n] + 2 * p[n] for n in range(2)]
    counts = [(length[n] - d[n] * (k[n] - 1) - 1) // s[n] + 1 for n in range(2)]
    if min(counts) < 1:
        raise shape_error(f"unfold: no window of {list(k)} fits an image of {list(size)}")
    rows, columns = (np.arange(k[n])[:, None] * d[n] + np.arange(counts[n]) * s[n] for n in range(2))
    found = rows[:, None, :, None] * length[1] + columns[None, :, None, :]
    return found.reshape(k[0] * k[1], counts[0] * counts[1]), length, p


def unfold(input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """The windows of images [N, C, H, W] as columns [N, C * kernel elements, windows]."""
    x, added = batched(input, 2, "unfold")
    places, _, p = _places(x.shape[2:], kernel_size, dilation, padding, stride)
    flat = pad(x, [p[1], p[1], p[0], p[0]]).flatten(2)
    found = flat.index_select(2, Tensor(leaf(places.reshape(-1))))
    return unbatched(found.reshape(x.shape[0], x.shape[1] * places.shape[0], places.shape[1]), added)


def fold(
    input: Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
) -> Tensor:
    """Images [N, C, H, W] that add up the windows of columns [N, C * kernel elements, windows]."""
    x = input if input.ndim == 3 else input.unsqueeze(0)
    size = per_dim(output_size, 2)
    places, length, p = _places(size, kernel_size, dilation, padding, stride)
    if x.ndim != 3 or x.shape[2] != places.shape[1] or x.shape[1] % places.shape[0]:
        raise shape_error(f"fold: columns of shape {list(input.shape)} do not make images of {list(size)}")
    columns = x.reshape(x.shape[0], -1, places.size)
    zeros = Tensor(leaf(np.zeros((*columns.shape[:2], length[0] * length[1]), input.dtype.as_numpy())))
    found = zeros.index_add(2, Tensor(leaf(places.reshape(-1))), columns)
    found = pad(found.reshape(*columns.shape[:2], *length), [-p[1], -p[1], -p[0], -p[0]])
    return unbatched(found, input.ndim == 2)
