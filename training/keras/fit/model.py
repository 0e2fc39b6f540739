"""Model and Sequential: modules with Keras' methods: compile, fit, evaluate, predict, summary."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .... import nn
from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from ....tensors.core.conversion import array_of
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.nested import mapped
from ....tensors.core.tensor import Tensor
from ...callbacks import ProgressBar
from ...checkpoint.nested_file import save_nested
from ...data.collate import as_tensors
from ...data.dataset import Subset, TensorDataset
from ...data.loader import DataLoader
from ...export.function_graph import graph_of
from ...lightning.lightning_module import LightningModule
from ...lightning.trainer import Trainer
from ...loop.traced_step import TracedStep, detached
from ...report.layers import example_of, print_layers
from .history import History, OfEpochs, has_keras_hooks
from .logits import logits_for
from .names import fitting, loss_of, metrics_of, optimizer_of
from .weights import Layers

BATCH = 32
LIMITS = {
    "steps_per_epoch": "limit_train_batches", "validation_steps": "limit_val_batches",
    "validation_freq": "check_val_every_n_epoch",
}  # fmt: skip
"""Settings of a trainer by Keras' names."""
VERBOSE = ("auto", 0, 1, 2)


class Model(Layers):
    """A module with Keras' methods. Subclasses define `forward`; `cc.Model(module)` gives any module these methods.

    A step of training is one native plan: forward, backward and the update.

    Args:
        module: what is trained; None for subclasses.
    """

    def __init__(self, module: nn.Module | None = None) -> None:
        super().__init__()
        if module is not None:
            self.module = module

    def forward(self, *arguments: Any) -> Any:
        """The outputs of the module."""
        return self.module(*arguments)

    def compile(self, optimizer: Any = "adamw", loss: Any = None, metrics: Sequence[Any] = ()) -> None:
        """Choose how the model is trained.

        Args:
            optimizer: a name such as "adamw" or "sgd", an optimizer, or a function of parameters that makes one.
            loss: a name such as "cross_entropy" or "mse", or a function of outputs and targets. Losses of classes
                take logits; of a model that ends with Softmax or Sigmoid, those that are named take what went into it,
                with a warning.
            metrics: names such as "accuracy", or functions of outputs and targets that give the mean over a batch.

        Raises UsageError for names that there are not.
        """
        self.freeze_layers()
        compiled = CompiledModule(self, optimizer, loss, metrics or ())
        object.__setattr__(self, "_compiled", compiled)

    @property
    def optimizer(self) -> Any:
        """The optimizer that `compile` has chosen."""
        return self._ready().optimizer

    def fit(
        self,
        x: Any,
        y: Any = None,
        epochs: int = 1,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        callbacks: Sequence[Any] = (),
        **data: Any,
    ) -> History:
        """Train.

        Args:
            x: inputs, an array or a tensor with one item a row; or a dataset or loader of pairs, without `y`.
            y: targets, one a row.
            epochs: how often all items are seen.
            batch_size: items of a step, 32 if it is None; loaders have their own.
            verbose: 0 shows nothing, 1 a live bar, 2 a line for each epoch; auto is 1 on a terminal and 2 elsewhere.
            callbacks: those of `cc.callbacks`, objects with Keras' ``on_epoch_end(epoch, logs)``, or such functions.
            data: ``validation_split``: share of the items, from the end, that is validated with and not trained;
                ``validation_data``: a pair of arrays, a dataset or a loader; ``shuffle``: whether items are in new
                random order in each epoch, by default True, by the seed of `cc.manual_seed`; ``sample_weight``: by
                what the loss of each item is multiplied, an array; ``class_weight``: the same by the number of the
                class, a dictionary, in which classes that are left out have 1; ``initial_epoch``: number of the first
                epoch; ``steps_per_epoch``, ``validation_steps``: batches of an epoch, of which the next one has those
                that follow, and of a validation;
                ``validation_batch_size``; ``validation_freq``: epochs with validation.

        The model is in evaluation mode afterwards.

        Raises UsageError before `compile`, and for data that does not fit.
        """
        compiled = self._ready()
        split, validation = data.pop("validation_split", 0.0), data.pop("validation_data", None)
        shuffle = data.pop("shuffle", True)
        weights = item_weights(y, data.pop("sample_weight", None), data.pop("class_weight", None))
        first, held_size = data.pop("initial_epoch", 0), data.pop("validation_batch_size", None) or batch_size
        limits = {here: data.pop(keras) for keras, here in LIMITS.items() if data.get(keras) is not None}
        data = {name: each for name, each in data.items() if name not in LIMITS}
        if data:
            raise UsageError("E-OPTION", None, f"fit does not have the option {sorted(data)[0]!r}")
        if verbose not in VERBOSE:
            raise UsageError("E-OPTION", None, f"verbose is {verbose!r}", expected="auto, 0, 1 or 2")
        train: Any = _dataset(x, y, weights)
        if split:
            train, held = _split(train, split)
            validation = held if validation is None else validation
        if isinstance(validation, tuple | list):
            validation = _dataset(*validation)
        history = History()
        shown = [] if verbose == 0 else [ProgressBar({"auto": None, 1: True, 2: False}[verbose], first=1)]
        if not isinstance(epochs, int) or epochs < 0:
            raise UsageError("E-OPTION", None, f"epochs is {epochs!r}", expected="a number of at least 0")
        given = [OfEpochs(each, self) if has_keras_hooks(each) else each for each in callbacks]
        loader = batch_loader(train, batch_size, shuffle)
        if "limit_train_batches" in limits:
            loader = _Continued(loader)
        trainer = _trainer([*shown, history, *given], epochs, **limits)
        trainer.current_epoch = first
        self.stop_training = False
        try:
            trainer.fit(compiled, loader, None if validation is None else batch_loader(validation, held_size, False))
        finally:
            compiled.eval()
        return history

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """One step with one batch; the loss and the metrics before it, in the forms of `evaluate`."""
        compiled, weights = self._ready(), item_weights(y, sample_weight, class_weight)
        return compiled.on_batch("train", _batch(x, y, weights), return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """The loss and the metrics of one batch in evaluation mode, in the forms of `evaluate`."""
        return self._ready().on_batch("test", _batch(x, y, item_weights(y, sample_weight, None)), return_dict)

    def predict_on_batch(self, x: Any) -> np.ndarray:
        """The outputs for one batch in evaluation mode."""
        return self.predict(x, batch_size=max(1, len(x)))

    def evaluate(
        self, x: Any, y: Any = None, batch_size: int | None = None, verbose: str | int = 0, return_dict: bool = False,
        sample_weight: Any = None, steps: int | None = None,
    ) -> Any:  # fmt: skip
        """The loss and the metrics of data: a number, a list of the loss and the metrics in their order, or with
        `return_dict` a dictionary. `verbose` other than 0 prints them; `steps` limits the batches."""
        loader = batch_loader(_dataset(x, y, item_weights(y, sample_weight, None)), batch_size, False)
        compiled = self._ready()
        limits = {} if steps is None else {"limit_val_batches": steps}
        found = _trainer([], 1, **limits).validate(compiled, loader, verbose=bool(verbose))[0]
        if not found:
            raise UsageError("E-TRAIN-DATA", None, "the data to evaluate with is empty", hint="Pass one item at least")
        return _as_asked({name.removeprefix("val_"): value for name, value in found.items()}, return_dict)

    def predict(self, x: Any, batch_size: int | None = None, verbose: str | int = 0) -> np.ndarray:
        """The outputs for inputs, one a row, in evaluation mode.

        Args:
            x: an array, a tensor, or a dataset or loader of inputs or of pairs, of which the first is the input.
            verbose: Keras' choice; nothing is shown.
        """
        module = self.__dict__.get("_compiled") or CompiledModule(self, None, None, ())
        given = TensorDataset(x) if isinstance(x, np.ndarray | Tensor | list) else x
        found = predicted(module, given, batch_size)
        return np.concatenate([each.array() for each in found])

    def summary(self, input_shape: Sequence[int | None] | None = None) -> None:
        """Print the layers with the shapes of their outputs and the numbers of their parameters.

        Args:
            input_shape: of one item; None for that of the last `fit`, or shapes are not known.
        """
        print_layers(self, self._example(input_shape))

    def save(self, path: str | os.PathLike[str], input_shape: Sequence[int | None] | None = None) -> None:
        """Write the model to a file, by its suffix: with .onnx what it computes, for a batch of any length; with
        .safetensors, .gguf, .npz or .pth parameters and buffers by name.

        Args:
            input_shape: of one item, for .onnx; None for that of the last `fit`.

        Raises UsageError where the shape of inputs is needed and not known.
        """
        if Path(path).suffix.lower() != ".onnx":
            nn.PROVIDED.get("write_tensors")(self.state_dict(), path)
            return
        example = self._example(input_shape)
        if example is None:
            why = "the shape of its inputs is not known"
            raise UsageError("E-TRAIN-SHAPE", str(path), why, hint="Call fit() before, or pass input_shape")
        nn.PROVIDED.get("write_graph")(graph_of(self, (example,), dynamic_batch=True), path)

    def _example(self, input_shape: Sequence[int | None] | None) -> Tensor | None:
        """A batch of one item of a shape, or of that of the last `fit`; None if that is not known."""
        shape, dtype = self.__dict__.get("_input", (None, "f32"))
        shape = shape if input_shape is None else input_shape
        return None if shape is None else example_of(shape, dtype)

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write parameters and buffers to a file: .npz, .pt, .pth or .gguf by its suffix, safetensors else.

        Keras' own suffix .weights.h5 gets safetensors too, with a warning: Keras does not open it, `load_weights` does.
        """
        suffix = Path(path).suffix.lower()
        if suffix in (".npz", ".pt", ".pth", ".gguf"):
            self.save(path)
            return
        if suffix != ".safetensors":
            warnings.warn(f"{path} is written as safetensors; name it .safetensors, .npz or .pth", stacklevel=2)
        save_nested(self.state_dict(), path)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Take parameters and buffers from a file of any format, such as `save` and `save_weights` write."""
        held = nn.PROVIDED.get("read_weights")(path)
        self.load_state_dict({name: tensor.numpy() for name, tensor in held.items()})

    def _ready(self) -> CompiledModule:
        compiled: CompiledModule | None = self.__dict__.get("_compiled")
        if compiled is None:
            why = f"{type(self).__name__} is not compiled"
            raise UsageError("E-TRAIN-COMPILE", None, why, hint='Call compile("adamw", "cross_entropy") first')
        return compiled


class Sequential(Model, nn.Sequential):
    """Layers one after another, with Keras' methods.

        model = cc.Sequential(cc.nn.Linear(64, 128), cc.nn.ReLU(), cc.nn.Linear(128, 10))
        model.compile("adamw", "cross_entropy", ["accuracy"])
        model.fit(x, y, epochs=10, validation_split=0.1)

    Args:
        layers: modules, or one dictionary or list of them.
    """

    def __init__(self, *layers: Any) -> None:
        given = layers[0] if len(layers) == 1 and isinstance(layers[0], list | tuple) else layers
        nn.Sequential.__init__(self, *given)

    def forward(self, *arguments: Any) -> Any:
        """The output of the last layer."""
        return nn.Sequential.forward(self, *arguments)


class CompiledModule(LightningModule):
    """A model with its optimizer, loss and metrics."""

    def __init__(self, model: Model, optimizer: Any, loss: Any, metrics: Iterable[Any]) -> None:
        super().__init__()
        self.model = model
        self._given = optimizer
        self._made: Any = None if optimizer is None else optimizer_of(optimizer, list(model.parameters()))
        self._loss = [None if loss is None else loss_of(loss)]
        self._loss_is_named = isinstance(loss, str)
        self._steps: dict[str, TracedStep] = {}
        self._metrics = metrics_of(metrics)

    @property
    def optimizer(self) -> Any:
        """The optimizer of the model's parameters."""
        return self._made

    def train(self, mode: bool = True) -> CompiledModule:
        """Training mode, but for batch norms of frozen layers."""
        super().train(mode)
        self.model.settle_batch_norms()
        return self

    def on_batch(self, kind: str, batch: Any, return_dict: bool) -> Any:
        """The loss and the metrics of a batch; of the kind train with a step of the optimizer."""
        modes = [(each, each.training) for each in self.modules()]
        if kind not in self._steps:
            trainer = _trainer([], 1)
            self._steps[kind] = TracedStep(trainer, self, f"{kind}_on_batch", getattr(self, f"_{kind}_one"), True)
        self.train(kind == "train")
        try:
            values = self._steps[kind](batch, 0)[0]
        finally:
            for each, mode in modes:
                each.training = mode
        return _as_asked({name: float(value) for name, value in values.items()}, return_dict)

    def _train_one(self, batch: Any, number: Any, check: Callable[[], None]) -> dict[str, Tensor]:
        values = self._values(batch)
        check()
        values["loss"].backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return mapped(values, detached)

    def _test_one(self, batch: Any, number: Any, check: Callable[[], None]) -> dict[str, Tensor]:
        with no_grad():
            values = self._values(batch)
        check()
        return values

    def configure_optimizers(self) -> Any:
        """The optimizer, which keeps its state from one `fit` to the next."""
        return self._made

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Note the shape of inputs for `summary` and `save`."""
        inputs = batch[0] if isinstance(batch, list | tuple) else None
        if isinstance(inputs, Tensor):
            object.__setattr__(self.model, "_input", (inputs.shape[1:], self._as_input(inputs).dtype))

    def training_step(self, batch: Any, batch_idx: Any) -> Any:
        """The loss, with the metrics logged."""
        return self._measured(batch, "")

    def validation_step(self, batch: Any, batch_idx: Any) -> Any:
        """The loss and the metrics under names with val_ in front."""
        return self._measured(batch, "val_")

    def predict_step(self, batch: Any, batch_idx: Any) -> Any:
        """The outputs."""
        inputs = batch[0] if isinstance(batch, list | tuple) else batch
        return self.model(self._as_input(inputs))

    def _measured(self, batch: Any, prefix: str) -> Tensor:
        values = self._values(batch)
        for name, value in values.items():
            self.log(f"{prefix}{name}", value, prog_bar=True, on_step=False, on_epoch=True)
        return values["loss"]

    def _values(self, batch: Any) -> dict[str, Tensor]:
        """The loss and the metrics of a batch."""
        if not isinstance(batch, list | tuple) or len(batch) not in (2, 3):
            why = "the data does not give pairs of inputs and targets"
            raise UsageError("E-TRAIN-DATA", None, why, hint="Pass x and y, or a loader of pairs")
        inputs, given = self._as_input(batch[0]), batch[1]
        output = self.model(inputs)
        loss = self._loss[0]
        if loss is None:
            raise UsageError("E-TRAIN-LOSS", None, "the model is compiled without a loss", hint="compile(loss=...)")
        target = fitting(output, given, loss)
        scores = logits_for(loss, output, self._loss_is_named)
        value = loss(scores, target) if len(batch) == 2 else _weighted(loss, scores, target, batch[2])
        return {"loss": value, **{name: measure(output, target) for name, measure in self._metrics.items()}}

    def _as_input(self, inputs: Any) -> Any:
        """Floats in the dtype of the parameters."""
        first = next((each for each in self.model.parameters() if each.dtype.kind == "float"), None)
        if first is None:
            return inputs

        def converted(item: Any) -> Any:
            is_float = isinstance(item, Tensor) and item.dtype.kind == "float"
            return item.to(first.dtype) if is_float else item

        return mapped(inputs, converted)


class _Continued:
    """The batches of a loader again and again; each iteration goes on where the last one ended."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        self._left: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        while True:
            found = next(self._left, None)
            if found is None:
                self._left = iter(self._loader)
                found = next(self._left, None)
            if found is None:
                return
            yield found


def _trainer(callbacks: list[Any], epochs: int, **limits: Any) -> Trainer:
    return Trainer(
        **limits,
        max_epochs=epochs,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def predicted(module: Any, data: Any, batch_size: int | None, steps: int | None = None) -> list[Any]:
    """The outputs of a module for each batch of data, or for the first `steps`; UsageError without data."""
    limits = {} if steps is None else {"limit_predict_batches": steps}
    found: list[Any] = _trainer([], 1, **limits).predict(module, batch_loader(data, batch_size, False))
    if not found:
        raise UsageError("E-TRAIN-DATA", None, "the data to predict for is empty", hint="Pass one item at least")
    return found


def _dataset(x: Any, y: Any = None, weights: Any = None) -> Any:
    """Pairs of arrays as a dataset, with the weight of each item if there are weights; without `y` data as it is."""
    if y is None:
        return x
    given = (x, y) if weights is None else (x, y, weights)
    return TensorDataset(*[each if isinstance(each, np.ndarray) else array_of(each) for each in given])


def _batch(x: Any, y: Any, weights: Any) -> Any:
    """A batch of tensors: of arrays, or as it is given."""
    return as_tensors(x if y is None else (x, y) if weights is None else (x, y, weights))


def _as_asked(values: dict[str, float], return_dict: bool) -> Any:
    """One value, several in a list, or all by name."""
    if return_dict:
        return values
    return next(iter(values.values())) if len(values) == 1 else list(values.values())


def item_weights(y: Any, sample_weight: Any, class_weight: Mapping[int, float] | None) -> np.ndarray | None:
    """By what the loss of each item is multiplied; None if nothing says so."""
    if sample_weight is None and class_weight is None:
        return None
    if y is None:
        why = "weights of items are given without y"
        raise UsageError("E-TRAIN-DATA", None, why, hint="Let the loader give triples of inputs, targets and weights")
    targets = y if isinstance(y, np.ndarray) else array_of(y)
    weights = np.ones(len(targets), np.float32)
    if sample_weight is not None:
        weights = np.asarray(sample_weight, np.float32).reshape(-1)
        if len(weights) != len(targets):
            raise UsageError(
                "E-TRAIN-DATA", None, f"there are {counted(len(weights), 'weight')} of {counted(len(targets), 'item')}"
            )
    if class_weight is not None:
        classes = targets.argmax(1) if targets.ndim > 1 and targets.shape[1] > 1 else targets.reshape(-1)
        weights = weights * np.array([class_weight.get(int(each), 1.0) for each in classes], np.float32)
    return weights


def _weighted(loss: Any, output: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The mean over items of the loss of each, multiplied by its weight."""
    if hasattr(loss, "reduction"):
        loss = copy.copy(loss)
        loss.reduction = "none"
    each = loss(output, target)
    if not each.ndim or each.shape[0] != output.shape[0]:
        why = f"the loss gives a tensor of shape {list(each.shape)} for {output.shape[0]} items, which have weights"
        raise UsageError("E-TRAIN-LOSS", None, why, hint="Return the loss of each item")
    of_items = each.reshape(each.shape[0], -1).mean(1)
    return (of_items * weights.to(of_items.dtype)).mean()


def _split(data: Any, share: float) -> tuple[Any, Any]:
    """The first items, and the last ones."""
    if not 0 < share < 1 or not hasattr(data, "__getitem__"):
        why = f"a validation_split of {share} is not possible"
        raise UsageError("E-OPTION", None, why, expected="a share between 0 and 1 of items with numbers")
    count = len(data)
    first = int(count * (1 - share))
    if not 0 < first < count:
        raise UsageError(
            "E-OPTION", None, f"a validation_split of {share} leaves {first} of {counted(count, 'item')} to train"
        )
    return Subset(data, range(first)), Subset(data, range(first, count))


def batch_loader(data: Any, batch_size: int | None, shuffle: bool) -> Any:
    """A loader of a dataset; what gives batches already as it is."""
    size = BATCH if batch_size is None else batch_size
    has_items = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not has_items or isinstance(data, Mapping):
        return data
    return DataLoader(data, size, shuffle)
