"""The layers of einops as modules: ``from einops.layers.candle_convert import Rearrange, Reduce, EinMix``.

Source: einops' `layers/torch.py`; the module is named as einops names those of other frameworks.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from ...nn.core.module import Module
from ...nn.core.parameter import Parameter
from ...runtime.plugin.discovery import ROOT
from ...tensors.core.registry import FUNCTIONS
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import zeros


class Pattern(Module):
    """A layer that applies the recipe of a pattern."""

    _apply_recipe: Any

    def forward(self, input: Tensor) -> Tensor:
        """The tensor in the pattern's shape."""
        return self._apply_recipe(input)


class Mix:
    """A sum of products with a weight, between two rearrangements.

    Attributes:
        weight, bias: parameters of the shapes that the patterns state; no bias without `bias_shape`.
    """

    Rearrange: type
    einsum_pattern: str
    weight: Parameter
    bias: Parameter | None
    register_parameter: Any

    def _create_parameters(
        self, weight_shape: Sequence[int], weight_bound: float, bias_shape: Sequence[int] | None, bias_bound: float
    ) -> None:
        self.weight = Parameter(zeros(*weight_shape).uniform_(-weight_bound, weight_bound))
        bias = None if bias_shape is None else Parameter(zeros(*bias_shape).uniform_(-bias_bound, bias_bound))
        self.register_parameter("bias", bias)

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: Mapping[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: Mapping[str, int] | None,
    ) -> None:
        before, after = pre_reshape_pattern, post_reshape_pattern
        self.pre_rearrange = None if before is None else self.Rearrange(before, **(pre_reshape_lengths or {}))
        self.post_rearrange = None if after is None else self.Rearrange(after, **(post_reshape_lengths or {}))

    def forward(self, input: Tensor) -> Tensor:
        """The sums of products, in the pattern's shape."""
        x = input if self.pre_rearrange is None else self.pre_rearrange(input)
        x = FUNCTIONS["einsum"](self.einsum_pattern, x, self.weight)
        x = x if self.bias is None else x + self.bias
        return x if self.post_rearrange is None else self.post_rearrange(x)


def register(layers: ModuleType) -> None:
    """Add the module of our layers to einops.

    Args:
        layers: its package `einops.layers`.
    """
    name = f"{layers.__name__}.{ROOT}"
    mixin = importlib.import_module(f"{layers.__name__}._einmix")._EinmixMixin
    rearrange = type("Rearrange", (layers.RearrangeMixin, Pattern), {"__module__": name})
    reduce = type("Reduce", (layers.ReduceMixin, Pattern), {"__module__": name})
    mix = type("EinMix", (Mix, mixin, Module), {"__module__": name, "Rearrange": rearrange})
    module = ModuleType(name, __doc__)
    vars(module).update(Rearrange=rearrange, Reduce=reduce, EinMix=mix, __all__=["EinMix", "Rearrange", "Reduce"])
    sys.modules[name] = module
    setattr(layers, ROOT, module)
