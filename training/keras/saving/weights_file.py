"""Weights in Keras' files: .weights.h5 by the paths of layers, and the older .h5 by their names and order."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from .... import nn
from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from ....tensors.core.expression import leaf
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.tensor import Tensor
from ..core.settings import snake_case
from ..models.model import Model
from . import hdf5


def save_weights(model: Any, target: str | os.PathLike[str] | io.BytesIO) -> None:
    """Write the weights of a model as Keras' .weights.h5."""
    require_built(model)
    with hdf5.written(target) as file:
        for path, layer in located(model):
            group = file.require_group(f"{path}/vars" if path else "vars")
            group.attrs["name"] = layer.name if hasattr(layer, "name") else path
            for number, each in enumerate(own_weights(layer)):
                group.create_dataset(str(number), data=each.array())


def read_weights(model: Any, file: Any, by_name: bool = False) -> None:
    """Take the weights of an open file of either kind; nothing is taken where one does not fit."""
    require_built(model)
    older = hdf5.member(file, "model_weights") or (file if "layer_names" in file.attrs else None)
    found = list(_older(model, older, by_name) if older is not None else _newer(model, file))
    with no_grad():
        for weight, array in found:
            weight.become(Tensor(leaf(np.array(array, weight.dtype.as_numpy()))))


def require_built(model: Any) -> None:
    """UsageError if layers have no weights yet."""
    for each in model.modules():
        if not getattr(each, "built", True):
            why = f"{type(each).__name__} {each.name!r} has no weights before its first call"
            raise UsageError("E-NN-STATE", None, why, hint="Begin the model with keras.Input(shape), or call it once")


def own_weights(layer: Any) -> list[Tensor]:
    """The weights of a layer without those inside: parameters, then running statistics."""
    tables = (layer._parameters, layer._buffers)
    return [each for table in tables for each in table.values() if each is not None and each.dtype.kind == "float"]


def located(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each layer with its path in a .weights.h5: that of an attribute, or the word and number of a layer of a model."""
    yield path, layer
    children = dict(layer.named_children())
    if hasattr(layer, "config_name") and layer.graph is not None:
        seen: dict[str, int] = {}
        for each in children.values():
            word = snake_case(each.config_name if type(each) is Model else type(each).__name__)
            count = seen[word] = seen.get(word, -1) + 1
            yield from located(each, f"{path}/layers/{word}{f'_{count}' if count else ''}".strip("/"))
        return
    of_containers = {id(each): place for place, each in _contained(layer)}
    for name, each in children.items():
        yield from located(each, f"{path}/{of_containers.get(id(each), name)}".strip("/"))


def _contained(layer: Any) -> Iterator[tuple[str, Any]]:
    """The layers in lists and dictionaries of a layer, with Keras' paths: the attribute, and the word of the class with
    a number from the second one on."""
    for name, value in vars(layer).items():
        if name.startswith("_") or not isinstance(value, list | tuple | dict):
            continue
        seen: dict[str, int] = {}
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, nn.Module):
                word = snake_case(type(each).__name__)
                count = seen[word] = seen.get(word, -1) + 1
                yield f"{name}/{word}{f'_{count}' if count else ''}", each


def _newer(model: Any, file: Any) -> Iterator[tuple[Tensor, np.ndarray]]:
    for path, layer in located(model):
        own = own_weights(layer)
        group = hdf5.member(file, f"{path}/vars") if own else None
        if own and (group is None or len(group) != len(own)):
            held = 0 if group is None else len(group)
            why = f"the file has {counted(held, 'weight')} of {path or model.name!r}"
            raise UsageError("E-NN-STATE", None, why, expected=str(len(own)), hint="Build the model that was saved")
        for number, each in enumerate(own):
            yield each, hdf5.array(hdf5.member(group, str(number)), each.shape, f"{path}/{number}")


def _older(model: Any, file: Any, by_name: bool) -> Iterator[tuple[Tensor, np.ndarray]]:
    layers = [each for each in model.layers if each.weights]
    names = [
        name for name in hdf5.words(file.attrs["layer_names"]) if len(hdf5.member(file, name).attrs["weight_names"])
    ]
    if by_name:
        layers = [each for each in layers if each.name in names]
        names = [each.name for each in layers]
    if len(layers) != len(names):
        why = f"the file has {counted(len(names), 'layer')} with weights"
        raise UsageError("E-NN-STATE", None, why, expected=str(len(layers)), hint="Build the model that was saved")
    for layer, name in zip(layers, names, strict=True):
        group = hdf5.member(file, name)
        own = [*layer.trainable_weights, *layer.non_trainable_weights]
        held = hdf5.words(group.attrs["weight_names"])
        if len(own) != len(held):
            why = f"the file has {counted(len(held), 'weight')} of {name!r}"
            raise UsageError("E-NN-STATE", None, why, expected=str(len(own)))
        for weight, path in zip(own, held, strict=True):
            yield weight, hdf5.array(hdf5.member(group, path), weight.shape, path)
