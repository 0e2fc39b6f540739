"""Normalization layers."""

from __future__ import annotations

from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import shape_error
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import ones, tensor, zeros
from .. import init
from ..core.module import LayerVariants, Module
from ..core.parameter import Parameter
from ..functional import norm

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


class _Affine(LayerVariants):
    """A layer whose results are multiplied with `weight` and to which `bias` is added, if it has them."""

    weight: Parameter | None
    bias: Parameter | None

    def reset_parameters(self) -> None:
        """Weight 1 and bias 0."""
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            parameter = self._parameters.get(name)
            if parameter is not None:
                init.constant_(parameter, value)


class LayerNorm(_Affine):
    """Zero mean and unit variance over the last dims, then times `weight` and plus `bias` of their shape."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        given = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if given else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        self.weight = Parameter(ones(shape, dtype=dtype, device=device)) if elementwise_affine else None
        self.bias = Parameter(zeros(shape, dtype=dtype)) if elementwise_affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return norm.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The settings."""
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(_Affine):
    """A mean square of 1 over the last dims, then times `weight` of their shape; `eps` None is the dtype's epsilon."""

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        given = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if given else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = ones(self.normalized_shape, dtype=dtype, device=device)
        self.weight = Parameter(weight) if elementwise_affine else None

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return norm.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Zero mean and unit variance over groups of channels of [N, C, ...], then `weight` and `bias` [C]."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise UsageError("E-NN-VALUE", None, f"{num_channels} channels do not make {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.weight = Parameter(ones(num_channels, dtype=dtype, device=device)) if affine else None
        self.bias = Parameter(zeros(num_channels, dtype=dtype)) if affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return norm.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The settings."""
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class _RunningNorm(_Affine):
    """Normalization of channels with running statistics.

    Attributes:
        ranks: numbers of dims that inputs have.
        running_mean, running_var: [num_features]; num_batches_tracked: a number; None where they are not tracked.
    """

    ranks: tuple[int, ...] = ()
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _prepare(
        self, num_features: int, eps: float, momentum: float | None, affine: tuple[bool, bool], tracks: bool,
        device: Any, dtype: Any,
    ) -> None:  # fmt: skip
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine, biased = affine
        self.track_running_stats = tracks
        self.weight = Parameter(ones(num_features, dtype=dtype, device=device)) if self.affine else None
        self.bias = Parameter(zeros(num_features, dtype=dtype)) if self.affine and biased else None
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype) if tracks else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype) if tracks else None)
        self.register_buffer("num_batches_tracked", tensor(0) if tracks else None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0, and statistics of nothing."""
        super().reset_parameters()
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                init.constant_(buffer, value)

    def _check(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            expected = " or ".join(map(str, self.ranks))
            raise shape_error(f"{type(self).__name__}: {list(input.shape)} does not have {expected} dims")

    def extra_repr(self) -> str:
        """The settings."""
        settings = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{settings}, bias={self.bias is not None}, track_running_stats={self.track_running_stats}"


class _BatchNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self._prepare(num_features, eps, momentum, (affine, bias), track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape; in training the running statistics move."""
        self._check(input)
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.float()
        by_batch = self.training or self.running_mean is None
        statistics = (self.running_mean, self.running_var)
        return norm.batch_norm(input, *statistics, self.weight, self.bias, by_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm, ranks=(2, 3)):
    """Zero mean and unit variance of features of [N, C] or [N, C, L] over the batch, then `weight` and `bias` [C]."""


class BatchNorm2d(_BatchNorm, ranks=(4,)):
    """Zero mean and unit variance of channels of [N, C, H, W] over the batch, then `weight` and `bias` [C]."""


class BatchNorm3d(_BatchNorm, ranks=(5,)):
    """Zero mean and unit variance of channels of [N, C, D, H, W] over the batch, then `weight` and `bias` [C]."""


class _InstanceNorm(_RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self._prepare(num_features, eps, momentum, (affine, bias), track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape; in training the running statistics move, if there are some."""
        self._check(input)
        single = input.ndim == self.ranks[0]
        x = input.unsqueeze(0) if single else input
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        found = norm.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, by_input, momentum, self.eps
        )
        return found.squeeze(0) if single else found


class InstanceNorm1d(_InstanceNorm, ranks=(2, 3)):
    """Zero mean and unit variance of each channel of each sample of [N, C, L] or [C, L]."""


class InstanceNorm2d(_InstanceNorm, ranks=(3, 4)):
    """Zero mean and unit variance of each channel of each sample of [N, C, H, W] or [C, H, W]."""


class InstanceNorm3d(_InstanceNorm, ranks=(4, 5)):
    """Zero mean and unit variance of each channel of each sample of [N, C, D, H, W] or [C, D, H, W]."""


class LocalResponseNorm(Module):
    """x over a power of the mean square of `size` neighbouring channels of [N, C, ...]."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return norm.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
