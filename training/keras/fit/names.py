"""Names of optimizers, losses and metrics that `compile` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .... import nn, optim
from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import nearest
from ....tensors.core.promotion import category
from ....tensors.core.registry import FUNCTIONS
from ....tensors.core.tensor import Tensor
from .logits import before

Measure = Callable[[Tensor, Tensor], Tensor]
OPTIMIZERS: dict[str, type[optim.Optimizer]] = {
    name.lower(): each
    for name, each in vars(optim).items()
    if isinstance(each, type) and issubclass(each, optim.Optimizer) and each is not optim.Optimizer
}
"""Optimizers by their class names in lower case, with the options that the classes have by default."""
LOSSES: dict[str, Callable[[], Any]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "categorical_crossentropy": nn.CrossEntropyLoss,
    "sparse_categorical_crossentropy": nn.CrossEntropyLoss,
    "bce": nn.BCEWithLogitsLoss,
    "binary_crossentropy": nn.BCEWithLogitsLoss,
    "binary_cross_entropy": nn.BCEWithLogitsLoss,
    "nll": nn.NLLLoss,
    "kl_div": nn.KLDivLoss,
    "mse": nn.MSELoss,
    "mean_squared_error": nn.MSELoss,
    "mae": nn.L1Loss,
    "l1": nn.L1Loss,
    "mean_absolute_error": nn.L1Loss,
    "huber": nn.HuberLoss,
    "smooth_l1": nn.SmoothL1Loss,
}
"""Losses by torch's and Keras' names. Those of classes take logits, not probabilities."""
OF_CLASSES = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Losses whose targets are numbers of classes."""


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of items whose class is right: the class of the largest of several logits, or the sign of one
    (before a Sigmoid)."""
    if output.ndim > 1 and output.shape[1] > 1:
        chosen = FUNCTIONS["argmax"](output, 1)
        wanted = target if target.ndim < output.ndim else FUNCTIONS["argmax"](target, 1)
    else:
        scores = before("Sigmoid", output)
        chosen, wanted = ((output if scores is None else scores) > 0).reshape(-1), target.reshape(-1) > 0.5
    return (chosen == wanted).float().mean()


def top_5_accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of items whose class is among the five of the largest logits."""
    _, found = FUNCTIONS["topk"](output, min(5, output.shape[1]), 1)
    return (found == target.reshape(-1, 1)).any(1).float().mean()


def mean_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """The mean of the squares of differences."""
    return ((output - target) ** 2).mean()


def mean_absolute_error(output: Tensor, target: Tensor) -> Tensor:
    """The mean of absolute differences."""
    return (output - target).abs().mean()


METRICS: dict[str, Measure] = {
    "accuracy": accuracy,
    "acc": accuracy,
    "top_5_accuracy": top_5_accuracy,
    "mse": mean_squared_error,
    "mean_squared_error": mean_squared_error,
    "mae": mean_absolute_error,
    "mean_absolute_error": mean_absolute_error,
}


def optimizer_of(given: Any, parameters: Iterable[Any]) -> optim.Optimizer:
    """An optimizer of parameters: of a name, a function of the parameters, or as it is."""
    if isinstance(given, optim.Optimizer):
        return given
    made = _named(OPTIMIZERS, given, "optimizer") if isinstance(given, str) else given
    if not callable(made):
        raise UsageError("E-TRAIN-OPTIMIZER", None, f"{type(given).__name__} is not an optimizer")
    found = made(parameters)
    if not isinstance(found, optim.Optimizer):
        raise UsageError("E-TRAIN-OPTIMIZER", None, f"{type(found).__name__} is not an optimizer")
    return found


def loss_of(given: Any) -> Measure:
    """A loss: of a name, or a function of outputs and targets as it is."""
    if isinstance(given, str):
        made: Measure = _named(LOSSES, given, "loss")()
        return made
    if not callable(given):
        raise UsageError("E-TRAIN-LOSS", None, f"{type(given).__name__} is not a loss", expected="a name or a function")
    return given


def metrics_of(given: Iterable[Any]) -> dict[str, Measure]:
    """Metrics by name, of names and functions of outputs and targets."""
    found: dict[str, Measure] = {}
    for each in given:
        name = each if isinstance(each, str) else getattr(each, "__name__", type(each).__name__)
        found[name] = _named(METRICS, each, "metric") if isinstance(each, str) else each
    return found


def _named(table: dict[str, Any], name: str, what: str) -> Any:
    found = table.get(name.lower())
    if found is None:
        meant = nearest(name, table)
        hint = f"Did you mean {meant!r}?" if meant else None
        raise UsageError("E-TRAIN-NAME", None, f"there is no {what} {name!r}", expected=", ".join(table), hint=hint)
    return found


def fitting(output: Tensor, target: Tensor, loss: Measure) -> Tensor:
    """Targets as a loss needs them: classes as integers, and others in the shape and dtype of the outputs."""
    if isinstance(loss, OF_CLASSES):
        if target.ndim == 2 and target.shape[1] == 1 and category(target.dtype) < 2:
            target = target.reshape(-1)
        return target.long() if category(target.dtype) < 2 else target.to(output.dtype)
    if target.ndim == output.ndim - 1 and output.shape[-1] == 1:
        target = target.unsqueeze(-1)
    return target if target.dtype is output.dtype or not isinstance(loss, nn.Module) else target.to(output.dtype)
