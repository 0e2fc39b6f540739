"""Layers that multiply with a matrix."""

from __future__ import annotations

import math
from typing import Any

from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import zeros
from .. import init
from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.linear import bilinear, linear

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """The input as it is; arguments are ignored."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """`input`."""
        return input


class Linear(Module):
    """x @ weight.T + bias of x [..., in_features].

    Attributes:
        weight: [out_features, in_features].
        bias: [out_features], or None.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(zeros(out_features, in_features, dtype=dtype, device=device))
        self.bias = Parameter(zeros(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """[..., out_features]."""
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whether there is a bias."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1 @ weight[k] @ x2 + bias[k] of x1 [..., in1_features] and x2 [..., in2_features].

    Attributes:
        weight: [out_features, in1_features, in2_features].
        bias: [out_features], or None.
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(zeros(out_features, in1_features, in2_features, dtype=dtype, device=device))
        self.bias = Parameter(zeros(out_features, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters."""
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """[..., out_features]."""
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whether there is a bias."""
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{sizes}, out_features={self.out_features}, bias={self.bias is not None}"
