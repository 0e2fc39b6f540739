"""Descriptions of models as Keras writes them: layers, their settings, and how they are connected."""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import UnsupportedError
from ....tensors.core.nested import mapped
from ..core.settings import described
from ..core.symbolic import KerasTensor
from ..layers.basic import Operation
from ..layers.wrappers import ModuleLayer

OPERATORS = "keras.src.ops.numpy"
"""Keras' module of the layers for operators of Python."""

SLICE = ("start", "stop", "step")
"""Keys of a slice in the description of a symbolic tensor."""
MODELS: dict[str, dict[str, Any]] = {
    "Functional": {"module": "keras.src.models.functional", "registered_name": "Functional"},
    "Sequential": {"module": "keras", "registered_name": None},
}
"""Keras' names of its classes of models."""


def model_config(model: Any) -> dict[str, Any]:
    """A model's layers and their settings.

    Raises UnsupportedError for models that are a subclass with `call`.
    """
    base = {"name": model.name, "trainable": bool(getattr(model, "trainable", True))}
    if model.config_name == "Sequential":
        start = [] if model.graph is None else [layer_entry(model.inputs[0].node.layer)]
        found = {**base, "layers": [*start, *map(layer_entry, model.layers)]}
        return found if model.graph is None else {**found, "build_input_shape": list(model.inputs[0].shape)}
    graph = model.graph
    if graph is None:
        why = f"{type(model).__name__} computes what its call() says, which a file cannot describe"
        raise UnsupportedError("E-KERAS-SUBCLASS", None, why, hint="Write its weights with save_weights")
    calls = {id(layer): [node for node in graph.nodes if node.layer is layer] for layer in graph.layers}
    layers = []
    for layer in graph.layers:
        nodes = [] if layer in [each.node.layer for each in graph.given] else calls[id(layer)]
        layers.append(
            {**layer_entry(layer), "name": layer.name, "inbound_nodes": [_call(each, calls) for each in nodes]}
        )
    ends = {"input_layers": graph.inputs, "output_layers": graph.outputs}
    return {
        **base,
        "layers": layers,
        **{name: mapped(each, lambda item: _place(item, calls)) for name, each in ends.items()},
    }


def layer_entry(layer: Any) -> dict[str, Any]:
    """A layer's class and settings.

    Raises UnsupportedError for modules that are not layers of Keras.
    """
    if isinstance(layer, Operation):
        return {"module": OPERATORS, "class_name": layer.operation, "config": {"name": layer.name},
                "registered_name": layer.operation}  # fmt: skip
    if isinstance(layer, ModuleLayer):
        why = f"the model has a {type(layer.layer).__name__} of PyTorch's kind, which a .keras file cannot describe"
        raise UnsupportedError("E-KERAS-LAYER", None, why, hint="Save it as .onnx, or write its weights: save_weights")
    found: dict[str, Any] = described(layer)
    if hasattr(layer, "config_name"):
        found = {**found, **MODELS[layer.config_name], "class_name": layer.config_name}
    return found


def _place(tensor: KerasTensor, calls: dict[int, list[Any]]) -> list[Any]:
    """The layer of a symbolic tensor, which call of it, and which output."""
    node: Any = tensor.node
    return [node.layer.name, calls[id(node.layer)].index(node), tensor.index]


def _call(node: Any, calls: dict[int, list[Any]]) -> dict[str, Any]:
    def entry(item: Any) -> Any:
        if isinstance(item, slice):
            return {"class_name": "__slice__", "config": {name: getattr(item, name) for name in SLICE}}
        if item is Ellipsis:
            return {"class_name": "__ellipsis__", "config": {}}
        if not isinstance(item, KerasTensor):
            return described(item)
        config = {"shape": list(item.shape), "dtype": item.dtype, "keras_history": _place(item, calls)}
        return {"class_name": "__keras_tensor__", "config": config}

    arguments, options = mapped((node.arguments, node.options), entry)
    return {"args": list(arguments), "kwargs": options}
