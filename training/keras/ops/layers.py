"""What layers compute, by Keras' names: convolutions, pooling, normalization, losses of probabilities."""

from __future__ import annotations

from typing import Any

from ....nn import functional
from ....nn.functional.conv import convolve
from ....tensors.core.expression import op_named
from ....tensors.core.tensor import Tensor
from ....tensors.linalg.products import vector_norm
from ....tensors.operations.operands import apply_in
from ..layers.windows import channels_first, channels_last, checked_padding, for_pad, same, sizes
from ..objectives import losses
from .operation import as_floats, operation, ours, tensor_of

__all__ = [
    "average_pool", "batch_normalization", "binary_crossentropy", "categorical_crossentropy", "conv",
    "dot_product_attention", "layer_normalization", "max_pool", "normalize", "rms_normalization",
    "sparse_categorical_crossentropy",
]  # fmt: skip


@operation
def conv(
    inputs: Any, kernel: Any, strides: Any = 1, padding: str = "valid", data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Tensor:  # fmt: skip
    """A convolution of [N, ..., C] with a kernel [window, in, out]."""
    x, weight = _first(as_floats(inputs), data_format), as_floats(kernel)
    dims = weight.ndim - 2
    steps, spread = sizes(strides, dims, "strides"), sizes(dilation_rate, dims, "dilation_rate")
    if checked_padding(padding) == "same":
        x = functional.pad(x, for_pad(same(x.shape[2:], weight.shape[:dims], steps, spread)))
    groups = x.shape[1] // weight.shape[-2]
    found = convolve(x, weight.movedim((-1, -2), (0, 1)), None, steps, 0, spread, groups)
    return _last(found, data_format)


def _pooled(operator: str, inputs: Any, pool_size: Any, strides: Any, padding: str, data_format: str | None) -> Tensor:
    x = _first(as_floats(inputs), data_format)
    dims = x.ndim - 2
    window = sizes(pool_size, dims, "pool_size")
    steps = window if strides is None else sizes(strides, dims, "strides")
    is_same = checked_padding(padding) == "same"
    pads = same(x.shape[2:], window, steps, (1,) * dims) if is_same else [0] * (2 * dims)
    options = {"kernel_shape": window, "strides": steps, "pads": pads}
    return _last(Tensor(apply_in(op_named(operator), [x.expression], options)), data_format)


@operation
def max_pool(
    inputs: Any, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: str | None = None
) -> Tensor:
    """The largest element of each window."""
    return _pooled("MaxPool", inputs, pool_size, strides, padding, data_format)


@operation
def average_pool(
    inputs: Any, pool_size: Any, strides: Any = None, padding: str = "valid", data_format: str | None = None
) -> Tensor:
    """The mean of each window."""
    return _pooled("AveragePool", inputs, pool_size, strides, padding, data_format)


@operation
def batch_normalization(
    x: Any, mean: Any, variance: Any, axis: int, offset: Any = None, scale: Any = None, epsilon: float = 1e-3
) -> Tensor:
    """``(x - mean) / sqrt(variance + epsilon) * scale + offset``, with statistics along an axis."""
    tensor = as_floats(x)
    shape = [length if dim == axis % tensor.ndim else 1 for dim, length in enumerate(tensor.shape)]
    found = (tensor - as_floats(mean).reshape(shape)) * (as_floats(variance).reshape(shape) + epsilon).rsqrt()
    found = found if scale is None else found * as_floats(scale).reshape(shape)
    return found if offset is None else found + as_floats(offset).reshape(shape)


@operation
def layer_normalization(
    x: Any, gamma: Any = None, beta: Any = None, axis: Any = -1, epsilon: float | None = None
) -> Tensor:
    """Zero mean and unit variance along axes, then gamma and beta."""
    tensor = as_floats(x)
    axes = [axis] if isinstance(axis, int) else list(axis)
    mean, variance = tensor.mean(axes, True), tensor.var(axes, correction=0, keepdim=True)
    found = (tensor - mean) * (variance + (losses.EPSILON if epsilon is None else epsilon)).rsqrt()
    found = found if gamma is None else found * as_floats(gamma)
    return found if beta is None else found + as_floats(beta)


@operation
def rms_normalization(x: Any, scale: Any = None, axis: Any = -1, epsilon: float | None = None) -> Tensor:
    """A mean square of 1 along axes, then a scale."""
    tensor = as_floats(x)
    axes = [axis] if isinstance(axis, int) else list(axis)
    found = tensor * (tensor.square().mean(axes, True) + (losses.EPSILON if epsilon is None else epsilon)).rsqrt()
    return found if scale is None else found * as_floats(scale)


@operation
def normalize(x: Any, axis: int = -1, order: int = 2, epsilon: float | None = None) -> Tensor:
    """A norm of 1 along an axis."""
    tensor = as_floats(x)
    floor = 1e-7 if epsilon is None else epsilon
    if order == 2:
        return tensor * tensor.square().sum(axis, True).clamp(min=floor).rsqrt()
    norms = vector_norm(tensor, order, axis, True)
    return tensor / norms.clamp(min=floor)


@operation
def dot_product_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, scale: float | None = None,
    is_causal: bool = False, flash_attention: bool | None = None, attn_logits_soft_cap: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention of [N, length, heads, width]."""
    q, k, v = (as_floats(each).transpose(1, 2) for each in (query, key, value))
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if attn_logits_soft_cap is not None:
        scores = attn_logits_soft_cap * (scores / attn_logits_soft_cap).tanh()
    scores = scores if bias is None else scores + as_floats(bias)
    shown = None if mask is None else tensor_of(mask).bool()
    if is_causal:
        order = ours("ones")((scores.shape[-2], scores.shape[-1]), dtype="bool").tril()
        shown = order if shown is None else shown & order
    if shown is not None:
        scores = ours("where")(shown, scores, -1e9)
    return (functional.softmax(scores, -1) @ v).transpose(1, 2)


@operation
def binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Tensor:
    """The loss of each element."""
    wanted, given = as_floats(target), as_floats(output)
    if from_logits:
        return given.clamp(min=0) - given * wanted + (-given.abs()).exp().log1p()
    chance = given.clamp(losses.EPSILON, 1 - losses.EPSILON)
    return -(wanted * chance.log() + (1 - wanted) * (1 - chance).log())


@operation
def categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Tensor:
    """The loss of each item, of shares of classes."""
    return losses.categorical_crossentropy(as_floats(target), as_floats(output), from_logits, axis=axis)


@operation
def sparse_categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Tensor:
    """The loss of each item, of numbers of classes."""
    return losses.sparse_categorical_crossentropy(tensor_of(target), as_floats(output), from_logits, axis=axis)


def _first(x: Tensor, data_format: str | None) -> Tensor:
    return x if data_format == "channels_first" else channels_first(x)


def _last(x: Tensor, data_format: str | None) -> Tensor:
    return x if data_format == "channels_first" else channels_last(x)
