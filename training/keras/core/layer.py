"""Layer: a module with Keras' interface. Weights are made at the first call, by the shape of its input."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from .... import nn
from ....runtime.base.errors import UsageError
from ....runtime.base.process_cache import PROCESS, owned
from ....tensors.core.nested import mapped
from ....tensors.core.tensor import Tensor
from ....tensors.core.trace import TRACE
from ....tensors.operations.creation import as_tensor
from ..fit.weights import Layers
from . import constraints, initializers, regularizers
from .masking import carry_masks, mask_options
from .settings import Configured, snake_case, unknown_setting, without_effect
from .symbolic import KerasTensor, called, shape_of, symbolic_tensors

OF_FIRST = ("input_shape", "input_dim")
"""Settings of the first layer of a sequence, which say what its input is."""
_SETTINGS_WITH_LAYERS = ("_choice", "_modules", "_settings")
"""Attributes whose layers are registered elsewhere, or belong to other objects."""
_names: dict[str, int] = owned({}, PROCESS)
_taken: set[str] = owned(set(), PROCESS)


def new_name(cls: type) -> str:
    """Keras' name of the next object of a class: dense, dense_1, dense_2."""
    return named(snake_case(cls.__name__))


def named(word: str) -> str:
    """A word, with a number from the second time on; names that were given to layers are skipped."""
    while True:
        count = _names.get(word, 0)
        _names[word] = count + 1
        name = f"{word}_{count}" if count else word
        if name not in _taken:
            return name


def clear_session() -> None:
    """Let names of layers begin anew."""
    _names.clear()
    _taken.clear()


class Layer(Layers, Configured):
    """Base of layers. A subclass defines `call`, and makes its weights in `build`.

    Args:
        name: of the layer; by default that of the class with a number.
        trainable: whether `fit` changes the weights.
        options: settings that ask for what is done anyway; ``input_shape`` of the first layer of a sequence.

    Attributes:
        built: whether the weights are there.
        constrained: of a class, which weight each of the settings such as ``kernel_constraint`` is of.
        supports_masking: whether outputs have masks by `compute_mask`; true for classes that define it.
    """

    file_module: ClassVar[str] = "keras.layers"
    supports_masking: bool = False
    constrained: ClassVar[Mapping[str, str]] = {}
    _takes_training: ClassVar[bool] = False
    _call_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, name: str | None = None, trainable: bool = True, **options: Any) -> None:
        shape = options.pop("input_shape", None)
        if "input_dim" in options:
            shape = (options.pop("input_dim"),)
        limits = {name: constraints.get(options.pop(name)) for name in type(self).constrained if name in options}
        without_effect(type(self), options)
        super().__init__()
        self.training = False
        if name:
            _taken.add(name)
        self.name = name or new_name(type(self))
        self.built = False
        self._nodes: list[Any] = []
        self._first_shape = shape
        self._penalties: list[tuple[Tensor, Any]] = []
        self._new: list[tuple[str, Tensor]] = []
        self._constraints = {type(self).constrained[name]: each for name, each in limits.items() if each is not None}
        if not trainable:
            vars(self)["trainable"] = False

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        parameters = inspect.signature(cls.call).parameters
        cls._takes_training = "training" in parameters
        positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        cls._call_names = tuple(positional[1:])
        if "compute_mask" in vars(cls) and "supports_masking" not in vars(cls):
            cls.supports_masking = True
        if "build" in vars(cls):
            cls.build = _finishing(cls.build)  # type: ignore[method-assign]

    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of a shape, whose batch may be None; a list or dictionary of several inputs."""

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """The masks of the outputs for inputs and their masks, if `supports_masking` is true: by default the same."""
        return mask

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Compute the output; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} does not define call()")

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """`call`, with `training` if it takes that."""
        if self._takes_training:
            options.setdefault("training", self.training)
        return self.call(*arguments, **options)

    def __call__(self, *arguments: Any, training: bool | None = None, **options: Any) -> Any:
        """The output for tensors or arrays; a symbolic tensor for symbolic ones.

        Args:
            training: compute as in training or not; None for the mode that the layer is in.
        """
        for name in self._call_names[len(arguments) :]:
            if name not in options:
                break
            arguments = (*arguments, options.pop(name))
        self.build_for(arguments)
        if symbolic_tensors((arguments, options)):
            return called(self, arguments, options if training is None else {**options, "training": training})
        arguments, options = mapped((arguments, options), _tensor)
        options = mask_options(self, arguments, options)
        if training is None:
            outputs = super().__call__(*arguments, **options)
        else:
            with _mode(self, training):
                outputs = super().__call__(*arguments, **options)
        if arguments:
            carry_masks(self, arguments[0], options.get("mask"), outputs)
        return outputs

    def build_for(self, arguments: Sequence[Any]) -> None:
        """Make the weights, if they are not there, for these inputs."""
        if self.built or not arguments:
            return
        self.build(shape_of(mapped(arguments[0], _tensor)))
        self.finish_build()

    def finish_build(self) -> None:
        """Register the weights that `build` has made, and layers in lists and dictionaries."""
        self._register_contained()
        for attribute, limit in self._constraints.items():
            if getattr(self, attribute, None) is not None:
                getattr(self, attribute).constraint = limit
        known = {id(each) for _, each in (*self._parameters.items(), *self._buffers.items())}
        for name, each in self._new:
            if id(each) not in known:
                setattr(self, name, each)
        self._new.clear()
        self.built = True

    def add_weight(
        self, shape: Any = (), initializer: Any = None, dtype: Any = None, trainable: bool = True,
        regularizer: Any = None, name: str | None = None, constraint: Any = None, aggregation: Any = None,
        autocast: Any = None, overwrite_with_gradient: bool = False,
    ) -> Any:  # fmt: skip
        """A new weight: a parameter, or a buffer that training does not change by gradients.

        Args:
            initializer: a name or a function of a shape; Glorot's uniform numbers by default.
            regularizer: a penalty that is added to the loss.
            constraint: what the weight is replaced by after each step of an optimizer.
            aggregation, autocast: Keras' settings without effect.

        Raises UsageError for lengths that are not known.
        """
        self.require("overwrite_with_gradient", overwrite_with_gradient, (False,))
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if None in shape:
            why = f"{type(self).__name__} {self.name!r} makes a weight of shape {list(shape)}"
            raise UsageError("E-NN-SHAPE", None, why, hint="State the lengths of the input's last dims")
        values = as_tensor(initializers.get(initializer or "glorot_uniform")(shape)).to(dtype or "f32")
        made: Any = nn.Parameter(values) if trainable else nn.Buffer(values)
        self._new.append((name or f"weight_{len(self._new)}", made))
        limit = constraints.get(constraint)
        if limit is not None:
            made.constraint = limit
        penalty = regularizers.get(regularizer)
        if penalty is not None:
            self._penalties.append((made, penalty))
        return made

    @property
    def losses(self) -> list[Tensor]:
        """The penalties of weights, of layers inside too."""
        layers = [each for each in self.modules() if isinstance(each, Layer)]
        return [penalty(weight) for each in layers for weight, penalty in each._penalties]

    def add_loss(self, loss: Any) -> None:
        """UsageError: losses of calls are not collected."""
        why = f"{type(self).__name__} {self.name!r} calls add_loss"
        raise UsageError("E-TRAIN-LOSS", None, why, hint="Pass the loss to compile, or a regularizer to add_weight")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "trainable" or isinstance(value, nn.Module):
            self._register_contained()
        super().__setattr__(name, value)
        if isinstance(value, list | tuple | dict):
            self._register_contained()

    def _register_contained(self) -> None:
        """Register layers in lists and dictionaries, in the order in which these became attributes."""
        known = {id(each) for each in self.__dict__.get("_modules", {}).values()}
        for name, value in list(vars(self).items()):
            if name in _SETTINGS_WITH_LAYERS or not isinstance(value, list | tuple | dict):
                continue
            for path, each in _contained(name, value):
                if id(each) not in known:
                    known.add(id(each))
                    self.register_module(path, each)

    @property
    def input(self) -> Any:
        """The symbolic input of the first call."""
        return _only(self._first_node().arguments)

    @property
    def output(self) -> Any:
        """The symbolic output of the first call."""
        return self._first_node().output

    @property
    def output_shape(self) -> Any:
        """The shape of `output`."""
        return shape_of(self.output)

    def _first_node(self) -> Any:
        if not self._nodes:
            why = f"{type(self).__name__} {self.name!r} was not called with a symbolic tensor"
            raise UsageError("E-NN-INPUT", None, why, hint="Begin the model with keras.Input(shape)")
        return self._nodes[0]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the output for inputs of a shape."""
        given = mapped_shapes(input_shape)
        return shape_of(self(given))

    def get_config(self) -> dict[str, Any]:
        """The settings that the layer was made with, and its name."""
        own = inspect.signature(type(self).__init__).parameters
        kept = {name: each for name, each in self._settings.items() if name in own or name not in OF_FIRST}
        return {**kept, "name": self.name, "trainable": bool(getattr(self, "trainable", True))}

    def extra_repr(self) -> str:
        """The name."""
        return f"name={self.name}"

    def require(self, what: str, value: Any, known: Sequence[Any]) -> None:
        """UsageError unless a setting has one of the values that are supported."""
        if value not in known:
            raise unknown_setting(type(self), what, value, [str(each) for each in known])


def _finishing(build: Callable[..., None]) -> Callable[..., None]:
    """A `build` after which the layer is built, whoever calls it."""

    @functools.wraps(build)
    def built(self: Layer, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.finish_build()

    return built


def _contained(path: str, item: Any) -> Iterator[tuple[str, nn.Module]]:
    """The modules in nested lists and dictionaries, with their keys behind a path."""
    if isinstance(item, nn.Module):
        yield path, item
    if isinstance(item, list | tuple | dict):
        for key, each in item.items() if isinstance(item, dict) else enumerate(item):
            yield from _contained(f"{path}_{key}".replace(".", "_"), each)


def mapped_shapes(shape: Any) -> Any:
    """Symbolic tensors of shapes."""
    if isinstance(shape, dict):
        return {name: mapped_shapes(each) for name, each in shape.items()}
    if isinstance(shape, list | tuple) and shape and isinstance(shape[0], list | tuple):
        return [mapped_shapes(each) for each in shape]
    return KerasTensor(shape)


def _tensor(item: Any) -> Any:
    return as_tensor(item) if isinstance(item, np.ndarray) else item


def _only(items: Any) -> Any:
    return items[0] if len(items) == 1 else items


@contextlib.contextmanager
def _mode(layer: nn.Module, training: bool) -> Iterator[None]:
    """Let a layer and those inside compute as in training, or not, whatever mode they are in."""
    before = [(each, each.training) for each in layer.modules()]
    try:
        layer.train(training)
        yield
    finally:
        for each, mode in before:
            each.training = mode
            if TRACE.changes is not None:
                TRACE.changes.settings[each, "training"] = mode
