"""Shared parts of Loop, Scan and SequenceMap: the iteration limit, and collecting outputs of the bodies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import LimitError, UnsupportedError
from ...runtime.base.limits import current, time_error
from ...runtime.base.units import counted
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Value
from ..rules.axes import input_error


class Iterations:
    """Counts what the iterations of a node use, and keeps the tensors that they give.

    Args:
        outputs: values of the body whose tensors are kept.
    """

    def __init__(self, operator: str, outputs: Sequence[Value]) -> None:
        self.operator = operator
        self.outputs = list(outputs)
        self.kept: list[list[Any]] = [[] for _ in outputs]
        self.deadline = time.monotonic() + current().time
        self.nbytes = 0

    def add(self, found: Sequence[Any], state: Sequence[Any] = ()) -> None:
        """Keep the tensors of one iteration; LimitError when they, the state or the time are too much."""
        for column, item in zip(self.kept, found, strict=True):
            column.append(item)
            self.nbytes += 0 if item is None or isinstance(item, list | dict) else item.nbytes
        if self.nbytes > current().memory:
            why = f"{self.operator} collects more than {counted(current().memory, 'byte')}"
            raise LimitError("E-RUN-MEMORY", None, why, hint="Raise it with --limit memory=8GiB")
        if any(isinstance(item, list) and len(item) > current().entries for item in state):
            why = f"{self.operator} makes a sequence of more than {counted(current().entries, 'tensor')}"
            raise LimitError("E-RUN-MEMORY", None, why, hint="Raise it with --limit entries=10000000")
        if time.monotonic() > self.deadline:
            raise time_error(self.operator)

    def stacked(self, call: Call, axes: Sequence[int], backwards: Sequence[int]) -> list[Any]:
        """The tensors of all iterations as one, along an axis for each output, the last iteration first where it goes
        backwards."""
        return [
            self._stacked(call, index, axis, bool(reverse))
            for index, (axis, reverse) in enumerate(zip(axes, backwards, strict=True))
        ]

    def _stacked(self, call: Call, index: int, axis: int, reverse: bool) -> Any:
        items, value = self.kept[index], self.outputs[index]
        if not items:
            return self._nothing(value, axis)
        if any(
            item is None
            or isinstance(item, list | dict)
            or item.shape != items[0].shape
            or item.dtype != items[0].dtype
            for item in items
        ):
            raise input_error(
                self.operator, f"output {value.name!r} of its body changes its shape or dtype between iterations"
            )
        if not -items[0].ndim - 1 <= axis <= items[0].ndim:
            why = "the axis to collect along does not exist"
            raise input_error(self.operator, why, "E-OP-AXIS", expected=f"below {items[0].ndim + 1}", found=axis)
        return call.stacked(items[::-1] if reverse else items, axis)

    def _nothing(self, value: Value, axis: int) -> np.ndarray:
        """The scan outputs of no iterations: length 0 along the axis, and 0 for unknown lengths."""
        if value.dtype is None:
            why = f"{self.operator} does not iterate, and the dtype of its output {value.name!r} is unknown"
            raise UnsupportedError("E-OP-DTYPE", None, why, hint="Give the outputs of its body types")
        lengths = [dim if isinstance(dim, int) else 0 for dim in value.shape or ()]
        lengths.insert(axis + len(lengths) + 1 if axis < 0 else axis, 0)
        return np.zeros(lengths, value.dtype.as_numpy())


def outputs_of(operator: str, call: Call, found: Sequence[Any], count: int) -> list[Any]:
    """The outputs that a body gave; UsageError where their number is not the node's."""
    if len(found) != count:
        why = f"its body and the node {call.node.name!r} differ in their outputs"
        raise input_error(operator, why, expected=count, found=len(found))
    return list(found)


def taken_over(inner: Value, outer: Value | None, shaped: bool) -> None:
    """Give an input of a body what is known of the value that it stands for."""
    if outer is not None:
        inner.dtype = inner.dtype or outer.dtype
        inner.container = inner.container or outer.container
        if shaped and inner.shape is None:
            inner.shape = outer.shape
