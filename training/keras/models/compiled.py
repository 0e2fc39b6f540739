"""CompiledModel: a model of Keras' layers with its optimizer, losses and metrics, as a module that a trainer runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ..fit.logits import before
from ..fit.model import CompiledModule
from ..objectives import losses, metrics
from ..objectives.metric import amount
from ..objectives.metrics import Metric
from .per_output import metrics_of_outputs, of_outputs, target_of

ENDINGS = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
"""Operators that give probabilities, and the activation of each."""


class CompiledModel(CompiledModule):
    """The optimizer, losses and metrics that `compile` chose for a model.

    Args:
        loss: a name, an object or a function; a list or dictionary of them for several outputs.
        weights: by what the loss of each output is multiplied.
        measures: names, objects or functions; lists or dictionaries of them for several outputs.
    """

    def __init__(self, model: Any, optimizer: Any, loss: Any, weights: Any, measures: Any) -> None:
        super().__init__(model, optimizer, None, ())
        self._losses = loss
        self._weights = weights
        self._measures = measures
        self._found: dict[str, Metric] = {}
        self._sums: dict[str, list[float]] = {}
        self._checked: list[str] = []

    def train(self, mode: bool = True) -> CompiledModel:
        """Training mode; as in Keras, not for layers of a subclass whose `call` does not take `training`."""
        super().train(mode)
        if mode and self.model.graph is None and not self.model.takes_training_mode:
            self.model.eval()
        return self

    def _values(self, batch: Any) -> dict[str, Tensor]:
        parts = self._parts(batch)
        return {name: each[0] if len(each) == 1 else self._found[name].ratio(each) for name, each in parts.items()}

    def _parts(self, batch: Any) -> dict[str, Sequence[Tensor]]:
        """The loss, the metrics that are means, and the sums that others are made of."""
        if not isinstance(batch, list | tuple) or len(batch) not in (2, 3):
            why = "the data does not give pairs of inputs and targets"
            raise UsageError("E-TRAIN-DATA", None, why, hint="Pass x and y, or a loader of pairs")
        output = self.model(self._as_input(batch[0]))
        outputs, targets = self._by_output(output), self._by_output(batch[1])
        weights = of_outputs("sample_weight", batch[2] if len(batch) == 3 else None, outputs)
        chosen, shares = of_outputs("loss", self._losses, outputs), of_outputs("loss_weights", self._weights, outputs)
        measures = metrics_of_outputs(self._measures, outputs)
        values: dict[str, Sequence[Tensor]] = {}
        total = None
        for name, output in outputs.items():
            loss = losses.get(chosen[name])
            if loss is None:
                continue
            self._check(loss, output, name)
            value = loss(target_of(targets, name), output, weights[name])
            if len(outputs) > 1:
                values[f"{name}_loss"] = [value]
            share = shares[name]
            value = value if share is None else value * share
            total = value if total is None else total + value
        if total is None:
            raise UsageError("E-TRAIN-LOSS", None, "the model is compiled without a loss", hint="compile(loss=...)")
        for penalty in getattr(self.model, "losses", ()):
            total = total + penalty
        found: dict[str, Sequence[Tensor]] = {"loss": [total], **values}
        for name, output in outputs.items():
            prefix = f"{name}_" if len(outputs) > 1 else ""
            for measure in metrics.listed(measures[name]):
                target = target_of(targets, name)
                metric = metrics.get(measure, target, output, chosen[name])
                key = f"{prefix}{metric.name}"
                self._found[key] = metric
                found[key] = metric.parts(target, output)
        return found

    def _by_output(self, item: Any) -> dict[str, Any]:
        if isinstance(item, dict):
            return item
        if not isinstance(item, list | tuple):
            return {self.model.output_names(1)[0]: item}
        return dict(zip(self.model.output_names(len(item)), item, strict=True))

    def _check(self, loss: Any, output: Tensor, name: str) -> None:
        """Warn once of a loss of logits after Softmax or Sigmoid, and of a loss of probabilities without them."""
        takes_logits = getattr(loss, "from_logits", None)
        if name in self._checked or takes_logits is None:
            return
        self._checked.append(name)
        ending = next((each for each in ENDINGS if before(each, output) is not None), None)
        title = type(loss).__name__
        if takes_logits and ending is not None:
            why = f"the model ends with {ending}, but {title}(from_logits=True) applies {ending} itself"
            warnings.warn(f"{why}. Remove the last {ending} of the model, or from_logits", stacklevel=2)
        elif not takes_logits and ending is None and self.model.ends_linear():
            why = f"the model ends without {' or '.join(ENDINGS)}, but {title} takes probabilities"
            warnings.warn(f"{why}. Pass {title}(from_logits=True)", stacklevel=2)

    def _measured(self, batch: Any, prefix: str) -> Any:
        parts = self._parts(batch)
        sums = {}
        for name, values in parts.items():
            if len(values) == 1:
                self.log(f"{prefix}{name}", values[0], prog_bar=True, on_step=False, on_epoch=True)
            else:
                sums[f"{prefix}{name}"] = [each.detach() for each in values]
        return {"loss": parts["loss"][0], "sums": sums}

    def _collect(self, outputs: Any) -> None:
        for name, values in outputs["sums"].items():
            known = self._sums.setdefault(name, [0.0] * len(values))
            self._sums[name] = [old + amount(new) for old, new in zip(known, values, strict=True)]

    def _report(self) -> None:
        for name, values in self._sums.items():
            metric = self._found[name.removeprefix("val_")]
            self.log(name, metric.ratio(values), prog_bar=True, on_step=False, on_epoch=True)
        self._sums = {}

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Collect the sums of metrics."""
        self._collect(outputs)

    def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Collect the sums of metrics."""
        self._collect(outputs)

    def on_train_epoch_end(self) -> None:
        """Report metrics of sums."""
        self._report()

    def on_validation_epoch_end(self) -> None:
        """Report metrics of sums."""
        self._report()
