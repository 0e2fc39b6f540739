"""Sequential: layers one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ....nn.core.module import Module
from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from ..core.layer import Layer
from ..core.symbolic import KerasTensor
from ..layers.basic import Input, InputLayer
from ..layers.wrappers import ModuleLayer
from .layer_graph import LayerGraph
from .model import Model, ranked


class Sequential(Model):
    """Layers one after another; with `Input` first, shapes are known at once.

        model = keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), layers.Dense(10)])

    Modules with PyTorch's interface may stand among the layers.
    """

    config_name: ClassVar[str] = "Sequential"

    def __init__(self, layers: Iterable[Any] | None = None, trainable: bool = True, name: str | None = None) -> None:
        super().__init__(name=name, trainable=trainable)
        self._start: Any = None
        self._symbol: Any = None
        for each in layers or ():
            self.add(each)

    def add(self, layer: Any) -> None:
        """Append a layer.

        Raises UsageError for other objects, and for two layers of one name.
        """
        if isinstance(layer, KerasTensor):
            layer = layer.node.layer if layer.node is not None else None
        if isinstance(layer, InputLayer):
            if self._modules or self._start is not None:
                raise UsageError("E-NN-MODULE", None, f"the input {layer.name!r} is added after a layer")
            self._start = self._symbol = layer.output
            return
        if isinstance(layer, Module) and not isinstance(layer, Layer):
            layer = ModuleLayer(layer)
        if not isinstance(layer, Layer):
            why = f"{type(layer).__name__} is not a layer"
            raise UsageError("E-NN-MODULE", None, why, hint="Pass objects of keras.layers")
        if not self._modules and self._start is None and layer._first_shape is not None:
            self._start = self._symbol = Input(layer._first_shape)
        if not self._modules and self._start is None and isinstance(layer, Model) and layer.inputs:
            self._start = self._symbol = Input(batch_shape=layer.inputs[0].shape)
        self.register_layer(layer)
        if self._symbol is not None:
            self._symbol = layer(self._symbol)
            self.built = True

    def pop(self) -> None:
        """Remove the last layer."""
        name = next(reversed(self._modules))
        layer: Any = self._modules.pop(name)
        if self._symbol is not None:
            self._symbol = layer._nodes[-1].inputs[0]

    @property
    def graph(self) -> LayerGraph | None:
        """The layers as a graph; None while the shape of the input is not known."""
        if self._symbol is None or not self._modules:
            return None
        return LayerGraph(self._start, self._symbol)

    def call(self, inputs: Any) -> Any:
        """The output of the last layer."""
        if isinstance(inputs, list | tuple) and len(inputs) != 1:
            raise UsageError("E-NN-INPUT", None, f"the model gets {counted(len(inputs), 'input')}", expected="1")
        x = inputs[0] if isinstance(inputs, list | tuple) else inputs
        x = x if self._start is None else ranked(x, self._start)
        for each in self._modules.values():
            x = each(x)  # type: ignore[misc]
        return x

    def ends_linear(self) -> bool:
        """Whether the last layer's activation is linear."""
        last = next(reversed(self._modules.values()), None)
        return getattr(getattr(last, "activation", None), "__name__", "") == "linear"

    def build(self, input_shape: Any = None) -> None:
        """Make the weights for inputs of a shape with the batch."""
        if self._symbol is None and isinstance(input_shape, list | tuple) and input_shape:
            self._start = self._symbol = Input(batch_shape=input_shape)
            for each in self._modules.values():
                self._symbol = each(self._symbol)  # type: ignore[misc]
