"""Kernels of convolutions with the norms around them folded in, and sums of parallel branches; computed when read.

A batch norm is ``y = g (x - mean) / sqrt(var + eps) + b`` per channel, so it scales the output channels of the
convolution before it. Branches that are added are one convolution whose kernel is the sum, with smaller kernels padded
by zeros (RepVGG; Ding et al. 2021, arXiv:2101.03697).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.contract.architecture import wrong_shape
from ....runtime.tensor.scaled import scaled_rows
from ....runtime.tensor.stored_tensor import StoredTensor
from ...schema.computed_weights import computed, f32
from ..net import Net
from .image_net import ImageNet

NORM_EPS = 1e-5
PARAMETERS = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Kernel:
    """The weight of a convolution, f32 [out, in / groups, height, width], and its bias, f32 [out] or None."""

    weight: StoredTensor
    bias: np.ndarray | None


def plain_kernel(net: ImageNet, conv: str) -> Kernel:
    """The kernel ``CONV.weight`` with ``CONV.bias``, if the model has it."""
    bias = net.array(f"{conv}.bias") if net.has(f"{conv}.bias") else None
    return Kernel(f32(net.kernel(f"{conv}.weight")), bias)


def normed_kernel(net: ImageNet, conv: str, norm: str, epsilon: float = NORM_EPS) -> Kernel:
    """A convolution followed by a batch norm."""
    kernel = plain_kernel(net, conv)
    return scaled_kernel(kernel, *affine(net, norm, kernel.weight.shape[0], epsilon))


def scaled_kernel(kernel: Kernel, factor: np.ndarray, shift: np.ndarray) -> Kernel:
    """A convolution whose output channels are multiplied and shifted."""
    start = 0.0 if kernel.bias is None else kernel.bias
    return Kernel(scaled_rows(kernel.weight, factor.astype(np.float32)), (start * factor + shift).astype(np.float32))


def affine(
    net: Net, norm: str, channels: int, epsilon: float = NORM_EPS, names: Sequence[str] = PARAMETERS
) -> tuple[np.ndarray, np.ndarray]:
    """A batch norm as factor and shift, f64 [channels]; `names` are those of its factor, offset, mean and variance."""
    scale, offset, mean, variance = (net.array(f"{norm}.{name}").astype(np.float64) for name in names)
    for found in (scale, offset, mean, variance):
        if found.shape != (channels,):
            why = f"the norm {norm} has {list(found.shape)} elements where its input has {channels} channels"
            raise wrong_shape(None, why)
    factor = scale / np.sqrt(np.maximum(variance, 0) + epsilon)
    return factor, offset - mean * factor


def negative(kernel: Kernel) -> Kernel:
    """A convolution with the opposite results."""
    ones = np.ones(kernel.weight.shape[0], np.float32)
    return scaled_kernel(kernel, -ones, 0 * ones)


def identity_kernel(channels: int, groups: int, size: int) -> Kernel:
    """The convolution that changes nothing, as a kernel of `size` x `size`."""
    inner = channels // groups

    def make() -> np.ndarray:
        weight = np.zeros((channels, inner, size, size), np.float32)
        weight[np.arange(channels), np.arange(channels) % inner, size // 2, size // 2] = 1
        return weight

    return Kernel(computed((channels, inner, size, size), make), None)


def added(kernels: Sequence[Kernel]) -> Kernel:
    """One convolution for several whose results are added; smaller kernels are padded to the largest."""
    size = max(kernel.weight.shape[-1] for kernel in kernels)
    out, inner = kernels[0].weight.shape[:2]
    if any(kernel.weight.shape[:2] != (out, inner) for kernel in kernels):
        raise FormatError("E-ARCH-SHAPE", None, "branches that are added have different channels")

    def make() -> np.ndarray:
        total = np.zeros((out, inner, size, size), np.float64)
        for kernel in kernels:
            margin = (size - kernel.weight.shape[-1]) // 2
            total[..., margin : size - margin, margin : size - margin] += kernel.weight.numpy()
        return total.astype(np.float32)

    biases = [kernel.bias for kernel in kernels if kernel.bias is not None]
    bias = np.sum(np.stack(biases).astype(np.float64), 0).astype(np.float32) if biases else None
    return Kernel(computed((out, inner, size, size), make), bias)
