"""NestedRows: arrays of nested inputs, targets and weights, of which a dataset gives the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from ....tensors.core.conversion import array_of
from ....tensors.core.nested import mapped
from ....tensors.operations.creation import made
from ...data.dataset import Stacked
from ..fit.model import item_weights


def is_array(item: Any) -> bool:
    """Whether an item is an array, a tensor or a table of pandas, and no dataset."""
    return isinstance(item, np.ndarray) or any(hasattr(item, name) for name in ("detach", "__dlpack__", "to_numpy"))


def is_rows(x: Any) -> bool:
    """Whether data are arrays, in a list, tuple or dictionary of them or alone."""
    items = list(x.values()) if isinstance(x, dict) else x if isinstance(x, list | tuple) else [x]
    return bool(items) and all(map(is_array, items))


def as_array(item: Any) -> np.ndarray:
    """An array; f64 becomes f32, as Keras' inputs do."""
    if hasattr(item, "to_numpy"):
        item = item.to_numpy()
    found = item if isinstance(item, np.ndarray) else array_of(item)
    return found.astype(np.float32) if found.dtype == np.float64 else found


class NestedRows(Stacked):
    """Rows of nested arrays of equal length.

    Args:
        items: nested arrays; None among them is left out.

    Attributes:
        items: the nested arrays.

    Raises UsageError if lengths differ.
    """

    def __init__(self, *items: Any) -> None:
        self.items = [mapped(each, as_array) for each in items if each is not None]
        lengths: set[int] = set()
        mapped(self.items, lambda each: lengths.add(len(each)))
        if len(lengths) != 1:
            why = f"the arrays have {' and '.join(counted(each, 'row') for each in sorted(lengths))}"
            raise UsageError("E-DATA-LENGTH", None, why, expected="equal lengths")
        (self._length,) = lengths

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return mapped(self.items, lambda each: made(np.asarray(each[index])))

    def batch(self, indices: Sequence[int]) -> Any:
        """Several rows at once, stacked."""
        rows = np.asarray(indices, np.int64)
        return mapped(self.items, lambda each: made(each[rows]))

    def weighted(self, by_class: Mapping[int, float] | None) -> NestedRows:
        """The same rows, whose weights are multiplied by those of their classes."""
        if by_class is None:
            return self
        x, *others = self.items
        y = _targets(others[0]) if others else [None]
        if len(y) > 1:
            why = f"class_weight is given for {counted(len(y), 'output')}"
            raise UsageError("E-TRAIN-DATA", None, why, hint="Pass sample_weight, a list with an array for each")
        weights = others[1] if len(others) > 1 else None
        return NestedRows(x, others[0] if others else None, item_weights(y[0], weights, by_class))

    def part(self, first: int, last: int) -> NestedRows:
        """Some rows."""
        return NestedRows(*mapped(self.items, lambda each: each[first:last]))


def weights_of_outputs(y: Any, sample_weight: Any) -> Any:
    """By what the loss of each item is multiplied, an array, or one for each output; None if nothing says so.

    Raises UsageError for weights without targets, and of another number than these.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, dict):
        return {name: weights_of_outputs(y, each) for name, each in sample_weight.items() if each is not None}
    nested = _targets(y)
    if isinstance(sample_weight, list | tuple) and len(nested) == len(sample_weight) and len(nested) > 1:
        ones = np.ones(len(nested[0]), np.float32)
        return [ones if each is None else item_weights(nested[0], each, None) for each in sample_weight]
    return item_weights(nested[0], sample_weight, None)


def _targets(y: Any) -> list[Any]:
    """The arrays of targets of each output."""
    items = list(y.values()) if isinstance(y, dict) else list(y) if isinstance(y, list | tuple) else [y]
    return [None if each is None else as_array(each) for each in items]


def refuse_beside(x: Any, **given: Any) -> None:
    """UsageError for what goes with arrays only, and was passed with a dataset, loader or generator."""
    name = next((name for name, value in given.items() if value is not None), None)
    if name is not None:
        why = f"{name} is given with {type(x).__name__}, which is not an array"
        hint = "Pass arrays, or let the data give pairs of inputs and targets, or triples with weights"
        raise UsageError("E-TRAIN-DATA", None, why, hint=hint)
