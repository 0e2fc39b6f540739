"""Models of Keras' descriptions: only classes of `cc.keras.layers` are made, and those that the caller names."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ....runtime.base.errors import Error, FormatError, UnsafeFileError, UnsupportedError
from ..core.settings import fitting_settings
from ..core.symbolic import OPERATIONS
from ..layers import public
from ..layers.basic import InputLayer, Lambda, Operation
from ..models.model import Model
from ..models.sequential import Sequential
from .description import SLICE

MODELS = ("Sequential", "Functional", "Model")
BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""Exceptions for settings of a type or value that a layer does not expect."""


def model_of(entry: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The model of a description.

    Raises UnsupportedError for layers that there are not, UnsafeFileError for those that hold code, FormatError for
    settings that make no sense.
    """
    try:
        return _Reader(custom_objects or {}).layer(entry)
    except Error:
        raise
    except BROKEN as error:
        text = str(error.args[0]) if error.args else type(error).__name__
        raise _damaged(f"the settings of its layers make no sense: {text}") from error


class _Reader:
    def __init__(self, custom: Mapping[str, Any]) -> None:
        self._custom = custom
        self._known = public()

    def layer(self, entry: Any) -> Any:
        """A layer, or a model among the layers of another one."""
        if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
            raise _damaged("a layer has no class_name")
        name, config = entry["class_name"], entry.get("config")
        if name in MODELS:
            return self._model(name, config)
        if not isinstance(config, dict):
            raise _damaged(f"{name} has no config")
        is_operation = name in OPERATIONS and set(config) <= {"name"}  # the older .h5 does not name modules
        if is_operation or str(entry.get("module", "")).startswith("keras.src.ops"):
            return _operation(name, config)
        found = self._custom.get(name) or self._known.get(name)
        if found is Lambda:
            why = f"the model has a Lambda layer, {config.get('name')!r}, whose function is code in the file"
            hint = "Build the model in Python, and take its weights with load_weights"
            raise UnsafeFileError("E-KERAS-LAMBDA", None, why, hint=hint)
        if found is None:
            hint = "Pass its class in custom_objects, or build the model in Python and call load_weights"
            raise UnsupportedError("E-KERAS-LAYER", None, f"the model has a layer of class {name!r}", hint=hint)
        given = {key: self._setting(value) for key, value in config.items()}
        if found is InputLayer:
            return InputLayer(
                batch_shape=config.get("batch_shape") or config.get("batch_input_shape") or (None, *config["shape"]),
                dtype=config.get("dtype") or "float32", name=config.get("name"),
            )  # fmt: skip
        made = found(**fitting_settings(found, given))
        if "batch_input_shape" in config:
            made._first_shape = tuple(config["batch_input_shape"][1:])
        return made

    def _setting(self, value: Any) -> Any:
        """A setting, which may be a layer that another one wraps, or a list of cells."""
        if isinstance(value, list):
            return [self._setting(each) for each in value]
        is_layer = isinstance(value, dict) and value.get("class_name") in (*self._known, *self._custom, *MODELS)
        return self.layer(value) if is_layer and "config" in value else value

    def _model(self, name: str, config: Any) -> Any:
        if name == "Sequential" and isinstance(config, list):  # Keras 2.2 and older
            config = {"layers": config}
        if not isinstance(config, dict) or not isinstance(config.get("layers"), list):
            raise _damaged(f"{name} has no layers")
        if name == "Sequential":
            model: Any = Sequential([self.layer(each) for each in config["layers"]], name=config.get("name"))
            shape = config.get("build_input_shape")
            if shape:
                model.build(shape)
            return model
        return self._graph(config)

    def _graph(self, config: dict[str, Any]) -> Any:
        layers = {str(each.get("name") or each["config"]["name"]): self.layer(each) for each in config["layers"]}
        outputs: dict[tuple[str, int], Any] = {
            (name, 0): [each.output] for name, each in layers.items() if isinstance(each, InputLayer)
        }
        pending = [
            (str(each.get("name") or each["config"]["name"]), number, call)
            for each in config["layers"]
            for number, call in enumerate(each.get("inbound_nodes") or [])
        ]
        while pending:
            left = [each for each in pending if not self._called(layers, outputs, *each)]
            if len(left) == len(pending):
                raise _damaged(f"the inputs of {left[0][0]!r} are not outputs of layers")
            pending = left
        inputs = _ends(config.get("input_layers"), outputs)
        return Model(inputs, _ends(config.get("output_layers"), outputs), name=config.get("name"))

    def _called(self, layers: Any, outputs: Any, name: str, number: int, call: Any) -> bool:
        """Call a layer; False while one of its inputs is not there."""
        try:
            arguments, options = _arguments(call, outputs)
        except KeyError:
            return False
        layer = layers[name]
        if OPERATIONS.get(getattr(layer, "operation", "")) is operator.getitem:
            arguments = [tuple(each) if isinstance(each, list) else each for each in arguments]
        found = layer(*arguments, **options)
        outputs[name, number] = list(found) if isinstance(found, list | tuple) else [found]
        return True


def _operation(name: str, config: Mapping[str, Any]) -> Any:
    if name not in OPERATIONS:
        raise UnsupportedError("E-KERAS-LAYER", None, f"the model calls keras.ops.{name}")
    return Operation(name, name=config.get("name"))


def _arguments(call: Any, outputs: Mapping[Any, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call; KeyError for an output that is not there yet."""
    if isinstance(call, dict):
        options = {name: _value(each, outputs) for name, each in (call.get("kwargs") or {}).items()}
        kept = {name: each for name, each in options.items() if name not in ("training", "mask") and each is not None}
        if options.get("training") is not None:
            kept["training"] = options["training"]
        return [_value(each, outputs) for each in call.get("args") or []], kept
    places = call if isinstance(call, list) and call and isinstance(call[0], list) else [call]
    tensors = [outputs[str(each[0]), int(each[1])][int(each[2])] for each in places]
    options = {name: each for place in places for name, each in (place[3] if len(place) > 3 else {}).items()}
    options = {name: _older_place(each, outputs) for name, each in options.items() if each is not None}
    options.pop("mask", None)
    return [tensors if len(tensors) > 1 else tensors[0]], options


def _older_place(value: Any, outputs: Mapping[Any, Any]) -> Any:
    """An argument of Keras 2, which may be the place of an output."""
    is_place = isinstance(value, list) and len(value) == 3 and isinstance(value[0], str)
    return outputs[value[0], int(value[1])][int(value[2])] if is_place else value


def _value(item: Any, outputs: Mapping[Any, Any]) -> Any:
    if isinstance(item, dict) and item.get("class_name") == "__keras_tensor__":
        name, number, index = item["config"]["keras_history"]
        return outputs[str(name), int(number)][int(index)]
    if isinstance(item, dict) and item.get("class_name") == "__slice__":
        return slice(*(item["config"].get(name) for name in SLICE))
    if isinstance(item, dict) and item.get("class_name") == "__ellipsis__":
        return Ellipsis
    if isinstance(item, dict):
        return {name: _value(each, outputs) for name, each in item.items()}
    return [_value(each, outputs) for each in item] if isinstance(item, list) else item


def _ends(places: Any, outputs: Mapping[Any, Any]) -> Any:
    """Symbolic tensors of places such as ["dense", 0, 0], nested as these."""
    if isinstance(places, dict):
        return {name: _ends(each, outputs) for name, each in places.items()}
    if isinstance(places, Sequence) and len(places) == 3 and isinstance(places[0], str):
        return outputs[places[0], int(places[1])][int(places[2])]
    if not isinstance(places, list) or not places:
        raise _damaged("the model has no inputs or outputs")
    found = [_ends(each, outputs) for each in places]
    return found[0] if len(found) == 1 else found


def _damaged(why: str) -> FormatError:
    return FormatError("E-KERAS-CONFIG", None, why, hint="Save the model again, as .keras")
