"""Logits of models that end with Softmax or Sigmoid: what went into the activation, as Keras' losses find it."""

from __future__ import annotations

import warnings
from typing import Any

from .... import nn
from ....tensors.core.tensor import Tensor

ACTIVATIONS: dict[type, str] = {nn.CrossEntropyLoss: "Softmax", nn.BCEWithLogitsLoss: "Sigmoid"}
"""Losses of logits, and the operator that turns these into probabilities."""


def before(activation: str, output: Tensor) -> Tensor | None:
    """The input of the operator that computed a tensor; None if another one did."""
    found: Any = output.expression
    while found is not None and found.signature is None and len(found.inputs) == 1:
        found = found.inputs[0]
    if found is None or found.signature is None or found.signature.op.name != activation or not found.inputs:
        return None
    axis = found.signature.attributes.get("axis")
    return Tensor(found.inputs[0]) if axis is None or axis % max(output.ndim, 1) == min(1, output.ndim - 1) else None


def logits_for(loss: Any, output: Tensor, named: bool) -> Tensor:
    """The output, or its logits where the loss would apply Softmax or Sigmoid for a second time; with a warning.

    Args:
        named: whether the loss was chosen by its name; one that was made elsewhere gets what the model gives.
    """
    activation = ACTIVATIONS.get(type(loss))
    found = None if activation is None else before(activation, output)
    if found is None:
        return output
    ending = f"the model ends with {activation}, but the loss takes logits and applies {activation} itself"
    what = "the loss is computed from what went into it" if named else "it is applied twice"
    warnings.warn(f"{ending}: {what}. Remove the last {activation} of the model", stacklevel=2)
    return found if named else output
