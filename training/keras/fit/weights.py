"""Layers: what Keras' models tell of their layers and weights, and which layers are trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .... import nn
from ....nn.layers.norm import _BatchNorm as BatchNorm
from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import did_you_mean
from ....runtime.base.units import counted
from ....tensors.core.conversion import array_of
from ....tensors.core.expression import leaf
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.tensor import Tensor


class Layers(nn.Module):
    """A module whose layers and weights have Keras' names.

    A module in it whose attribute ``trainable`` is set to False is not trained by `fit`, once `compile` was called
    after that; its batch norms use their running statistics then. Weights have the order and the shapes of
    `state_dict`: those of linear layers are transposed, compared with Keras.

    Attributes:
        layers: the modules of a sequence, or those that the model consists of.
        weights: parameters, and buffers of floats; `variables` is the same.
        trainable_weights: the parameters that are trained; `trainable_variables` is the same.
        non_trainable_weights: all other weights; `non_trainable_variables` is the same.
        trainable: whether the model is trained; what is set is set for all its modules.
    """

    def __getattr__(self, name: str) -> Any:
        """Modules, parameters and buffers by name; if there is none, what Keras has under the name."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            found = OF_KERAS.get(name)
            if found is None:
                raise
            return found(self)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "trainable" and isinstance(value, bool):
            for each in self.modules():
                vars(each)[name] = value

    def get_layer(self, name: str | None = None, index: int | None = None) -> nn.Module:
        """A layer by its name, which may be a path such as ``encoder.0``, or by its position in `layers`.

        Raises UsageError for a layer that the model does not have.
        """
        if (name is None) == (index is None):
            raise UsageError("E-OPTION", None, "get_layer takes either name or index")
        layers = _layers(self)
        if index is not None:
            if not -len(layers) <= index < len(layers):
                raise UsageError("E-OPTION", None, f"there is no layer {index}", expected=f"one of {len(layers)}")
            return layers[index]
        known = {path.removeprefix("module."): each for path, each in self.named_modules() if path}
        found = known.get(str(name))
        if found is None:
            hint = did_you_mean(str(name), known, f"Layers: {', '.join(known)}")
            raise UsageError("E-OPTION", None, f"there is no layer {name!r}", hint=hint)
        return found

    def get_weights(self) -> list[np.ndarray]:
        """Copies of `weights` as arrays."""
        return [each.array().copy() for each in _weights(self)]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Take what `get_weights` gives.

        Raises UsageError for another number of arrays or other shapes; nothing is taken then.
        """
        own, given = _weights(self), [array_of(each) for each in weights]
        if len(given) != len(own):
            raise UsageError("E-NN-STATE", None, f"there are {counted(len(given), 'weight')}", expected=len(own))
        for number, (mine, array) in enumerate(zip(own, given, strict=True)):
            if mine.shape != array.shape:
                why = f"weight {number} has another shape"
                raise UsageError("E-NN-STATE", None, why, expected=list(mine.shape), found=list(array.shape))
        with no_grad():
            for mine, array in zip(own, given, strict=True):
                mine.become(Tensor(leaf(array.copy())))

    def count_params(self) -> int:
        """Elements of all `weights`."""
        return sum(math.prod(each.shape) for each in _weights(self))

    def freeze_layers(self) -> None:
        """Let the parameters of frozen modules need no gradients, and those again that this has frozen before."""
        for each in self.__dict__.get("_frozen", ()):
            each.requires_grad_(True)
        frozen = [each for each in _parameters_of_frozen(self) if each.requires_grad]
        object.__setattr__(self, "_frozen", frozen)
        for each in frozen:
            each.requires_grad_(False)

    def settle_batch_norms(self) -> None:
        """Let the batch norms of frozen modules use their running statistics."""
        for each in _frozen_modules(self):
            if isinstance(each, BatchNorm):
                each.training = False


def _layers(model: nn.Module) -> list[nn.Module]:
    found = [each for each in model.children() if not getattr(each, "operation", None)]
    if len(found) == 1 and "module" in dict(model.named_children()):
        return list(found[0].children()) or found
    return found


def _weights(model: nn.Module) -> list[Tensor]:
    return [each for each in model.state_dict(keep_vars=True).values() if each.dtype.kind == "float"]


def _trained(model: nn.Module) -> list[Tensor]:
    frozen = {id(each) for each in _parameters_of_frozen(model)}
    released = {id(each) for each in vars(model).get("_frozen", ())} - frozen
    free = [each for each in model.parameters() if each.requires_grad or id(each) in released]
    return [each for each in free if id(each) not in frozen]


def _not_trained(model: nn.Module) -> list[Tensor]:
    trained = {id(each) for each in _trained(model)}
    return [each for each in _weights(model) if id(each) not in trained]


def _frozen_modules(model: nn.Module) -> Iterator[nn.Module]:
    for each in model.modules():
        if vars(each).get("trainable", True) is False:
            yield from each.modules()


def _parameters_of_frozen(model: nn.Module) -> list[Tensor]:
    found = {id(each): each for module in _frozen_modules(model) for each in module.parameters()}
    return list(found.values())


OF_KERAS: dict[str, Callable[[nn.Module], Any]] = {
    "layers": _layers,
    "weights": _weights,
    "variables": _weights,
    "trainable_weights": _trained,
    "trainable_variables": _trained,
    "non_trainable_weights": _not_trained,
    "non_trainable_variables": _not_trained,
    "trainable": lambda model: True,
}
"""Attributes that a model provides unless it has modules or tensors of these names."""
