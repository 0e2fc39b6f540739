"""Layers around others: both directions of a sequence, each time step, modules of PyTorch's interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....nn.core.module import Module
from ....tensors.core.tensor import Tensor
from ....tensors.operations.joining import cat
from ..core.layer import Layer
from .recurrent import _Recurrent

__all__ = ["Bidirectional", "ModuleLayer", "TimeDistributed"]


class Bidirectional(Layer):
    """A recurrent layer forwards and one backwards over [N, length, C].

    Args:
        merge_mode: how their outputs become one: "concat", "sum", "mul", "ave", or None for a list of both.
        backward_layer: by default one with the settings of `layer`.
    """

    def __init__(
        self, layer: Any, merge_mode: str | None = "concat", backward_layer: Any = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.require("layer", isinstance(layer, _Recurrent), (True,))
        self.require("merge_mode", merge_mode, ("concat", "sum", "mul", "ave", None))
        self.merge_mode = merge_mode
        config = layer.get_config()
        name = config.pop("name")
        self.forward_layer = type(layer)(**config, name=f"forward_{name}")
        other = {**config, "go_backwards": not config["go_backwards"]}
        self.backward_layer = backward_layer or type(layer)(**other, name=f"backward_{name}")

    def build(self, input_shape: Any) -> None:
        for each in (self.forward_layer, self.backward_layer):
            each.build(input_shape)
            each.built = True

    def call(self, inputs: Tensor) -> Any:
        forward, backward = self.forward_layer(inputs), self.backward_layer(inputs)
        states: list[Any] = []
        if self.forward_layer.return_state:
            (forward, *first), (backward, *second) = forward, backward
            states = [*first, *second]
        if self.forward_layer.return_sequences:
            backward = backward.flip(1)
        merges: dict[str | None, Callable[[], Any]] = {
            "concat": lambda: cat([forward, backward], -1),
            "sum": lambda: forward + backward,
            "mul": lambda: forward * backward,
            "ave": lambda: (forward + backward) / 2,
            None: lambda: [forward, backward],
        }
        merged = merges[self.merge_mode]()
        return [merged, *states] if states else merged


class TimeDistributed(Layer):
    """A layer on each time step of [N, length, ...]."""

    def __init__(self, layer: Any, **options: Any) -> None:
        super().__init__(**options)
        self.layer = layer

    def call(self, inputs: Tensor) -> Tensor:
        flat = inputs.reshape(math.prod(inputs.shape[:2]), *inputs.shape[2:])
        found = self.layer(flat)
        return found.reshape(*inputs.shape[:2], *found.shape[1:])


class ModuleLayer(Layer):
    """A module with PyTorch's interface as a layer."""

    def __init__(self, module: Module, **options: Any) -> None:
        super().__init__(**options)
        self.layer = module

    def call(self, *inputs: Any) -> Any:
        return self.layer(*inputs)
