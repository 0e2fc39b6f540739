"""Activations as modules: each calls the function of its name in `functional` with its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import full
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional import activation

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
    "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "SwiGLU", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class Activation(Module):
    """A function of a tensor, with settings.

    Attributes:
        function: called with the tensor and the settings by name.
        inplace: accepted and shown as in torch; the input stays as it is.
    """

    function: Callable[..., Tensor]

    def __init__(self, inplace: bool = False, **settings: Any) -> None:
        super().__init__()
        self.inplace = inplace
        self._settings = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape, unless the function says otherwise."""
        return self.function(input, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self) -> str:
        """The settings."""
        shown = [f"{name}={getattr(self, name)!r}" for name in self._settings]
        return ", ".join([*shown, "inplace=True"] if self.inplace else shown)


class ReLU(Activation):
    """max(x, 0)."""

    function = staticmethod(activation.relu)


class ReLU6(Activation):
    """x between 0 and 6."""

    function = staticmethod(activation.relu6)


class SELU(Activation):
    """The scaled exponential linear unit."""

    function = staticmethod(activation.selu)


class SiLU(Activation):
    """x * sigmoid(x)."""

    function = staticmethod(activation.silu)


class Mish(Activation):
    """x * tanh(softplus(x))."""

    function = staticmethod(activation.mish)


class Hardsigmoid(Activation):
    """x / 6 + 0.5, clamped to 0 and 1."""

    function = staticmethod(activation.hardsigmoid)


class Hardswish(Activation):
    """x * hardsigmoid(x)."""

    function = staticmethod(activation.hardswish)


class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    function = staticmethod(activation.sigmoid)


class Tanh(Activation):
    """Hyperbolic tangent."""

    function = staticmethod(activation.tanh)


class Softsign(Activation):
    """x / (1 + |x|)."""

    function = staticmethod(activation.softsign)


class LogSigmoid(Activation):
    """log(sigmoid(x))."""

    function = staticmethod(activation.logsigmoid)


class Tanhshrink(Activation):
    """x - tanh(x)."""

    function = staticmethod(activation.tanhshrink)


class LeakyReLU(Activation):
    """x, or `negative_slope` times x below 0."""

    function = staticmethod(activation.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace, negative_slope=negative_slope)


class ELU(Activation):
    """x, or alpha * (exp(x) - 1) below 0."""

    function = staticmethod(activation.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace, alpha=alpha)


class CELU(Activation):
    """x, or alpha * (exp(x / alpha) - 1) below 0."""

    function = staticmethod(activation.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace, alpha=alpha)


class GELU(Activation):
    """x times the normal distribution function of x, or its "tanh" approximation."""

    function = staticmethod(activation.gelu)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class Hardtanh(Activation):
    """x between two bounds."""

    function = staticmethod(activation.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace, min_val=min_val, max_val=max_val)


class Hardshrink(Activation):
    """x, and 0 from -lambd to lambd."""

    function = staticmethod(activation.hardshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """The setting."""
        return f"{self.lambd}"


class Softshrink(Activation):
    """x moved towards 0 by lambd."""

    function = staticmethod(activation.softshrink)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        """The setting."""
        return f"{self.lambd}"


class Softplus(Activation):
    """log(1 + exp(beta * x)) / beta; x above the threshold."""

    function = staticmethod(activation.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Threshold(Activation):
    """x above the threshold, and `value` elsewhere."""

    function = staticmethod(activation.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace, threshold=threshold, value=value)


class GLU(Activation):
    """The first half of a dim times the sigmoid of the second half."""

    function = staticmethod(activation.glu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class SwiGLU(Activation):
    """silu of the first half of a dim times the second half."""

    function = staticmethod(activation.swiglu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class Softmax(Activation):
    """exp(x) over its sum along a dim. `dim` None is 0 for tensors of 0, 1 and 3 dims, and 1 otherwise, as in torch."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return activation.softmax(input, _dim(self.dim, input))


class LogSoftmax(Activation):
    """log(softmax(x)). `dim` None is 0 for tensors of 0, 1 and 3 dims, and 1 otherwise, as in torch."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return activation.log_softmax(input, _dim(self.dim, input))


class Softmin(Activation):
    """softmax(-x). `dim` None is 0 for tensors of 0, 1 and 3 dims, and 1 otherwise, as in torch."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return activation.softmin(input, _dim(self.dim, input))


def _dim(dim: int | None, x: Tensor) -> int:
    return int(x.ndim not in (0, 1, 3)) if dim is None else dim


class Softmax2d(Module):
    """softmax over the channels of [N, C, H, W] or [C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return activation.softmax(input, -3)


class RReLU(Activation):
    """leaky_relu with random slopes in training, and their mean otherwise."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace, lower=lower, upper=upper)

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return activation.rrelu(input, self.lower, self.upper, self.training)


class PReLU(Module):
    """x, and below 0 x times a trained weight.

    Attributes:
        weight: [num_parameters], one for all channels or one each.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full([num_parameters], float(init), dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        """A tensor of the same shape."""
        return activation.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of weights."""
        return f"num_parameters={self.num_parameters}"
