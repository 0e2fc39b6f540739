"""Layers around others: both directions of a sequence, each time step, modules of PyTorch's interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....nn.core.module import Module
from ....tensors.core.tensor import Tensor
from ....tensors.operations.joining import cat
from ..core.layer import Layer
from .rnn import RNN

__all__ = ["Bidirectional", "ModuleLayer", "TimeDistributed"]


class Bidirectional(Layer):
    """A recurrent layer forwards and one backwards over [N, length, C]; outputs of masked steps are 0.

    Args:
        merge_mode: how their outputs become one: "concat", "sum", "mul", "ave", or None for a list of both.
        backward_layer: by default one with the settings of `layer`.
    """

    def __init__(
        self, layer: Any, merge_mode: str | None = "concat", backward_layer: Any = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.require("layer", isinstance(layer, RNN), (True,))
        self.require("merge_mode", merge_mode, ("concat", "sum", "mul", "ave", None))
        self.merge_mode = merge_mode
        config = layer.get_config()
        name = config.pop("name")
        self.forward_layer = type(layer)(**remade(config), name=f"forward_{name}")
        other = {**remade(config), "go_backwards": not config["go_backwards"]}
        self.backward_layer = backward_layer or type(layer)(**other, name=f"backward_{name}")

        for each in (self.forward_layer, self.backward_layer):
            each.zero_output_for_mask = each.return_sequences

    def build(self, input_shape: Any) -> None:
        for each in (self.forward_layer, self.backward_layer):
            each.build(input_shape)
            each.built = True

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The mask of the steps for each output that has them."""
        kept = mask if self.forward_layer.return_sequences else None
        return kept if self.merge_mode else [kept, kept]

    def call(self, inputs: Tensor, initial_state: Any = None, mask: Any = None) -> Any:
        """Both outputs, merged, with the states of both if they are asked for.

        Args:
            initial_state: states before the first step, those of the layer forwards first.
            mask: true where a step counts, [N, length].
        """
        given = list(initial_state or ())
        half = len(given) // 2
        forward = self.forward_layer(inputs, initial_state=given[:half] or None, mask=mask)
        backward = self.backward_layer(inputs, initial_state=given[half:] or None, mask=mask)
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


def remade(item: Any) -> Any:
    """Nested settings with new layers, of the same settings, in place of layers."""
    if isinstance(item, Layer):
        return type(item)(**remade(item.get_config()))
    if isinstance(item, dict):
        return {name: remade(each) for name, each in item.items()}
    return [remade(each) for each in item] if isinstance(item, list | tuple) else item


class TimeDistributed(Layer):
    """A layer on each time step of [N, length, ...]."""

    supports_masking = True

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
