"""Side effects of a function that `jit` traces: new values and gradients of tensors, and random draws."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from .expression import Expression


class Counting(Protocol):
    """A counter in Python that each run of a trace advances, such as an optimizer's step."""

    def counts(self) -> Any:
        """The current count."""

    def advance(self) -> None:
        """Count a run, before it."""

    def restore(self, counts: Any) -> None:
        """Let that be counted, where a run has not come to its end."""


class Changes:
    """The changes of one trace.

    Attributes:
        values: the expressions that changed tensors had before; grads: the gradients that they had before.
        draws: functions that draw again what an expression's array holds.
        settings: values of attributes of objects, such as the modes of modules, that the trace depends on.
        counting: what counts runs, with its counts before the trace, which is counted as a run.
        guards: functions that say whether the trace still is what the function would do.
        reads: tensors whose gradients were read before they were changed.
    """

    def __init__(self) -> None:
        self.values: dict[Any, Expression] = {}
        self.grads: dict[Any, Any] = {}
        self.draws: dict[Expression, Callable[[], np.ndarray]] = {}
        self.settings: dict[tuple[Any, str], Any] = {}
        self.counting: list[tuple[Counting, Any]] = []
        self.guards: list[Callable[[], bool]] = []
        self.reads: set[Any] = set()

    def restore_counts(self) -> None:
        """Let no run be counted."""
        for each, counts in self.counting:
            each.restore(counts)

    def read_grad(self, tensor: Any, grad: Any) -> None:
        """Note that the function depends on a gradient from before the call."""
        if tensor not in self.grads:
            self.grads[tensor] = grad
            self.reads.add(tensor)


class _Trace(threading.local):
    changes: Changes | None = None


TRACE = _Trace()
"""The changes of the trace that runs in this thread, None outside of one."""
