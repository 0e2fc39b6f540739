"""Model: a graph of Keras' layers, or a subclass with `call`, with Keras' methods."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ....runtime.base.errors import UnsafeFileError, UsageError
from ....runtime.base.units import counted
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.nested import mapped
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import made, zeros
from ..core.layer import Layer, mapped_shapes, named
from ..core.provided import PROVIDED
from ..core.settings import described
from ..core.symbolic import KerasTensor, symbolic_tensors
from ..fit.model import Model as FitModel
from ..fit.model import predicted
from ..objectives import optimizers
from .compiled import CompiledModel
from .layer_graph import LayerGraph
from .nested_rows import NestedRows, as_array, is_rows, refuse_beside, weights_of_outputs
from .summary import print_summary

OWN_STEPS = ("compute_loss", "compute_metrics", "make_train_function", "predict_step", "test_step", "train_step")
"""Methods by which subclasses of Keras' models change how they are trained."""


class Model(Layer, FitModel):
    """A model of layers.

        model = keras.Model(inputs, outputs)

    Args:
        inputs, outputs: symbolic tensors, or lists or dictionaries of them; None for subclasses that define `call`.
        name: of the model.
    """

    file_module: ClassVar[str] = "keras"
    config_name: ClassVar[str] = "Functional"
    """The class that a file names."""

    def __init__(
        self, inputs: Any = None, outputs: Any = None, name: str | None = None, trainable: bool = True
    ) -> None:
        super().__init__(name=name or (named("functional") if inputs is not None else None), trainable=trainable)
        self._plan: LayerGraph | None = None
        if inputs is not None:
            self._plan = LayerGraph(inputs, outputs)
            for each in self._plan.layers:
                self.register_layer(each)
            self.built = True

    def register_layer(self, layer: Layer) -> None:
        """Hold a layer under its name; UsageError if another one has it."""
        if self._modules.get(layer.name, layer) is not layer:
            why = f"{type(self).__name__} {self.name!r} gets two layers named {layer.name!r}"
            raise UsageError("E-NN-MODULE", None, why, hint="Pass a name of its own to each")
        self.register_module(layer.name, layer)

    @property
    def graph(self) -> LayerGraph | None:
        """The calls of layers that the model consists of; None for subclasses with `call`."""
        return self._plan

    @property
    def takes_training_mode(self) -> bool:
        """Whether `call` takes `training`, or is that of a graph or a sequence."""
        return self._takes_training or self.config_name == "Sequential"

    @property
    def inputs(self) -> list[KerasTensor]:
        """The symbolic inputs."""
        return [] if self.graph is None else self.graph.given

    @property
    def outputs(self) -> list[KerasTensor]:
        """The symbolic outputs."""
        return [] if self.graph is None else symbolic_tensors(self.graph.outputs)

    @property
    def input(self) -> Any:
        """The symbolic input, nested as it was given."""
        return super().input if self.graph is None else self.graph.inputs

    @property
    def output(self) -> Any:
        """The symbolic output, nested as it was given."""
        return super().output if self.graph is None else self.graph.outputs

    @property
    def supports_masking(self) -> bool:
        """Whether the layers of a graph or a sequence carry masks on; of subclasses, what they set."""
        return bool(vars(self).get("_supports_masking", self._plan is not None or self.config_name == "Sequential"))

    @supports_masking.setter
    def supports_masking(self, value: bool) -> None:
        vars(self)["_supports_masking"] = value

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """None: outputs of a graph have the masks of its layers."""
        return None

    def call(self, inputs: Any) -> Any:
        """The outputs of the graph."""
        graph = self.graph
        if graph is None:
            raise UsageError("E-NN-MODULE", None, f"{type(self).__name__} does not define call()")
        return graph.run(self._in_order(inputs, graph))

    def _in_order(self, inputs: Any, graph: LayerGraph) -> list[Any]:
        if isinstance(inputs, dict):
            names = [each.name for each in graph.given]
            order = list(graph.inputs) if isinstance(graph.inputs, dict) else names
            missing = [each for each in order if each not in inputs]
            if missing:
                raise UsageError("E-NN-INPUT", None, f"the input {missing[0]!r} is missing", expected=", ".join(order))
            return [inputs[each] for each in order]
        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(given) != len(graph.given):
            why = f"the model gets {counted(len(given), 'input')}"
            raise UsageError("E-NN-INPUT", None, why, expected=str(len(graph.given)))
        return [ranked(each, symbol) for each, symbol in zip(given, graph.given, strict=True)]

    def output_names(self, count: int) -> list[str]:
        """Names of the outputs: those of the layers that give them."""
        found = [each.node.layer.name for each in self.outputs if each.node is not None]
        return found if len({*found}) == count else [f"output_{number}" for number in range(count)]

    def ends_linear(self) -> bool:
        """Whether the last layer's activation is linear; False if that is not known."""
        outputs = self.outputs
        last = outputs[-1].node.layer if outputs and outputs[-1].node is not None else None
        return getattr(getattr(last, "activation", None), "__name__", "") == "linear"

    def compile(  # type: ignore[override]
        self, optimizer: Any = "rmsprop", loss: Any = None, loss_weights: Any = None, metrics: Any = None,
        weighted_metrics: Any = None, run_eagerly: bool = False, steps_per_execution: int = 1,
        jit_compile: Any = "auto", auto_scale_loss: bool = True,
    ) -> None:  # fmt: skip
        """Choose how the model is trained.

        Args:
            optimizer: a name, or an object of `keras.optimizers`.
            loss: a name, an object of `keras.losses`, a function of targets and outputs; lists or dictionaries of them
                for several outputs. Losses of classes take probabilities unless they are made with ``from_logits``.
            loss_weights: by what the loss of each output is multiplied.
            metrics: names, objects of `keras.metrics`, functions of targets and outputs.
            run_eagerly, steps_per_execution, jit_compile, auto_scale_loss: Keras' settings without effect.

        Raises UsageError for names that there are not, weighted metrics, and models with steps of their own.
        """
        self.require("weighted_metrics", weighted_metrics or None, (None,))
        own = next((name for name in OWN_STEPS if hasattr(type(self), name)), None)
        if own is not None:
            why = f"{type(self).__name__} defines {own}, which fit does not call"
            raise UsageError("E-TRAIN-COMPILE", None, why, hint="Write the loop with loss.backward() and an optimizer")
        chosen = optimizers.get(optimizer)
        vars(self)["_choice"] = (chosen, loss, loss_weights, metrics)
        vars(self).pop("_compiled", None)

    def _ready(self) -> Any:
        """Loss, metrics and optimizer of `compile`, for the parameters that the model has now."""
        choice = self.__dict__.get("_choice")
        if choice is None:
            why = f"{type(self).__name__} is not compiled"
            raise UsageError("E-TRAIN-COMPILE", None, why, hint='Call compile("adam", "mse") first')
        if self.__dict__.get("_compiled") is None:
            self.freeze_layers()
            optimizer, *others = choice
            vars(self)["_compiled"] = CompiledModel(self, optimizer.bound, *others)
        return vars(self)["_compiled"]

    @property
    def optimizer(self) -> Any:
        """The optimizer that `compile` has chosen."""
        choice = self.__dict__.get("_choice")
        return None if choice is None else choice[0]

    def fit(  # type: ignore[override]
        self, x: Any = None, y: Any = None, batch_size: int | None = None, epochs: int = 1, verbose: Any = "auto",
        callbacks: Any = None, validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
        class_weight: Any = None, sample_weight: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Train; arguments in Keras' order, and those of `cc.Model.fit`.

        Args:
            x, y: arrays, or lists or dictionaries of them; a dataset or loader of pairs as `x` alone.
            validation_split: the share of the items, from the end, that is validated with and not trained.
        """
        given = _callbacks(callbacks)
        data, validation = x, validation_data
        if is_rows(x):
            data = NestedRows(x, y, weights_of_outputs(y, sample_weight))
            if validation_split:
                first = math.floor(len(data) * (1 - validation_split))
                validation = validation or data.part(first, len(data))
                data = data.part(0, first)
            data = data.weighted(class_weight)
        else:
            refuse_beside(x, y=y, sample_weight=sample_weight, class_weight=class_weight,
                          validation_split=validation_split or None)  # fmt: skip
        if isinstance(validation, tuple | list):
            x_held, *others = validation
            validation = NestedRows(x_held, *others[:1], *(weights_of_outputs(others[0], each) for each in others[1:]))
        data = self._built_for(data)
        return super().fit(
            data, None, epochs, batch_size, verbose, given, validation_data=validation, shuffle=shuffle, **options
        )

    def evaluate(  # type: ignore[override]
        self, x: Any = None, y: Any = None, batch_size: int | None = None, verbose: Any = 0, sample_weight: Any = None,
        steps: int | None = None, callbacks: Any = None, return_dict: bool = False,
    ) -> Any:  # fmt: skip
        """The loss and the metrics of data, in the forms of `cc.Model.evaluate`. Callbacks are refused."""
        self.require("callbacks", callbacks or None, (None,))
        if is_rows(x):
            x = NestedRows(x, y, weights_of_outputs(y, sample_weight))
        else:
            refuse_beside(x, y=y, sample_weight=sample_weight)
        verbose = 0 if verbose == "auto" else verbose
        return super().evaluate(self._built_for(x), None, batch_size, verbose, return_dict, steps=steps)

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = 0, steps: int | None = None, callbacks: Any = None
    ) -> Any:
        """The outputs for inputs, in evaluation mode: an array, or several nested as the model's outputs.

        Args:
            steps: batches of a loader or generator; None for all.

        Raises UsageError for callbacks.
        """
        self.require("callbacks", callbacks or None, (None,))
        data = self._built_for(NestedRows(x) if is_rows(x) else x)
        module = self.__dict__.get("_compiled") or CompiledModel(self, None, None, None, None)
        return _joined(predicted(module, data, batch_size, steps))

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """One step with one batch; the loss and the metrics before it."""
        self._built_for(NestedRows(x))
        rows = NestedRows(x, y, weights_of_outputs(y, sample_weight)).weighted(class_weight)
        return super().train_on_batch(rows.items, return_dict=return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """The loss and the metrics of one batch."""
        self._built_for(NestedRows(x))
        rows = NestedRows(x, y, weights_of_outputs(y, sample_weight))
        return super().test_on_batch(rows.items, return_dict=return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for one batch."""
        return self.predict(x, batch_size=max(1, len(NestedRows(x))))

    def _built_for(self, data: Any) -> Any:
        """The data, after the weights of all layers were made by the shapes of the first rows."""
        if all(each.built for each in self.modules() if isinstance(each, Layer)):
            return data
        if isinstance(data, NestedRows):
            rows = data.batch(range(min(2, len(data))))[0]
        else:
            source = iter(data)
            first = next(source, None)
            if first is None:
                return data
            if source is data:
                data = itertools.chain([first], source)
            rows = first[0] if isinstance(first, list | tuple) else first
            rows = mapped(rows, lambda each: each if isinstance(each, Tensor) else made(as_array(each)))
            if hasattr(data, "__getitem__") and not hasattr(data, "batch_size"):
                rows = mapped(rows, lambda each: each.unsqueeze(0))
        with no_grad():
            self(rows, training=False)
        return data

    def build_for(self, arguments: Sequence[Any]) -> None:
        """Make the weights of the model itself; the call that follows makes those of its layers."""
        if type(self).build is Model.build:
            self.finish_build()
        else:
            super().build_for(arguments)

    def build(self, input_shape: Any) -> None:
        """Make the weights of all layers for inputs of a shape, whose batch may be None."""
        self.finish_build()
        example = mapped(mapped_shapes(input_shape), lambda each: zeros(*[length or 1 for length in each.shape]))
        with no_grad():
            self(example, training=False)

    def summary(  # type: ignore[override]
        self, line_length: int | None = None, positions: Any = None, print_fn: Any = None, expand_nested: bool = False,
        show_trainable: bool = False, layer_range: Any = None, *, input_shape: Sequence[int | None] | None = None,
    ) -> None:  # fmt: skip
        """Print the layers with the shapes of their outputs and the numbers of their parameters.

        Args:
            line_length: columns of a line.
            print_fn: gets the text in place of the terminal.
            input_shape: of one item; None for that of the last `fit`, or shapes are not known.

        Raises UsageError for positions, expand_nested, show_trainable and layer_range.
        """
        for name, value in (("positions", positions), ("expand_nested", expand_nested),
                            ("show_trainable", show_trainable), ("layer_range", layer_range)):  # fmt: skip
            self.require(name, value, (None, False))
        print_summary(self, self._example(input_shape), print_fn, line_length)

    def save(
        self, path: str | os.PathLike[str], input_shape: Sequence[int | None] | None = None, overwrite: bool = True
    ) -> None:
        """Write the model: .keras is Keras' archive, .onnx what it computes, other suffixes are those of `cc.Model`.

        Raises UnsafeFileError for a file that exists, unless `overwrite` is given.
        """
        refuse_replacing(path, overwrite)
        if Path(path).suffix.lower() in (".keras", ".h5", ".hdf5"):
            PROVIDED.get("save_model")(self, path)
            return
        shape = input_shape
        if shape is None and len(self.inputs) == 1:
            shape = self.inputs[0].shape[1:]
        super().save(path, shape)

    def save_weights(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write the weights: Keras' .weights.h5, or the formats of `cc.Model`.

        Raises UnsafeFileError for a file that exists, unless `overwrite` is given.
        """
        refuse_replacing(path, overwrite)
        if str(path).lower().endswith(".h5"):
            PROVIDED.get("save_weights")(self, path)
            return
        super().save_weights(path)

    def load_weights(self, path: str | os.PathLike[str], skip_mismatch: bool = False, by_name: bool = False) -> None:
        """Take the weights of a file: .weights.h5, .h5 and .keras of Keras, or what `save` has written.

        Raises UsageError for `skip_mismatch`, and for weights that do not fit.
        """
        self.require("skip_mismatch", skip_mismatch, (False,))
        if str(path).lower().endswith((".h5", ".hdf5", ".keras")):
            PROVIDED.get("load_weights")(self, path, by_name)
            return
        super().load_weights(path)

    def to_json(self) -> str:
        """The layers and their settings, as Keras writes them."""
        return json.dumps(described(self))

    def get_config(self) -> dict[str, Any]:
        """The layers and their settings."""
        found: dict[str, Any] = PROVIDED.get("model_config")(self)
        return found

    @classmethod
    def from_config(cls, config: Any) -> Any:
        """A model of what `get_config` gives."""
        return PROVIDED.get("model_of")({"class_name": cls.config_name, "config": config})


def ranked(item: Any, symbol: KerasTensor) -> Any:
    """A tensor with a last dim of 1 more or fewer, where the model's input has that."""
    if isinstance(item, Tensor) and item.ndim == len(symbol.shape) - 1 and symbol.shape[-1] == 1:
        return item.unsqueeze(-1)
    if isinstance(item, Tensor) and item.ndim == len(symbol.shape) + 1 and item.shape[-1] == 1:
        return item.squeeze(-1)
    return item


def refuse_replacing(path: str | os.PathLike[str], overwrite: bool) -> None:
    """UnsafeFileError for a file that exists, unless it may be replaced."""
    if not overwrite and os.path.lexists(path):
        raise UnsafeFileError("E-OUT-EXISTS", str(path), "already exists", hint="Pass overwrite=True to replace it")


def _callbacks(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [] if given is None else [given]


def _joined(batches: Sequence[Any]) -> Any:
    """Outputs of batches as arrays, nested as those."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: _joined([each[name] for each in batches]) for name in first}
    if isinstance(first, list | tuple):
        return [_joined(each) for each in zip(*batches, strict=True)]
    return np.concatenate([each.array() for each in batches])
