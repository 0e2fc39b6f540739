"""Resident state: parameters and gradients of a traced function keep their arrays from call to call.

A tensor that a function reads and changes has two arrays: one call reads the first and writes the second, the next call
the other way round, so that no call allocates or copies anything. It has one where the call ends by overwriting it, as
a large step of Adam does. A value that somebody else still refers to is never overwritten: its array, or its
expression, is left to them and replaced. Views and arrays that share the tensor's memory follow it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .expression import Expression, leaf
from .tensor import Tensor

if TYPE_CHECKING:
    from ...runtime.execute.replay import Replay


class State:
    """A tensor that each call reads and changes.

    Args:
        places: numbers of the inputs that are its value; target: number of the output.
    """

    __slots__ = ("_alone", "_arrays", "_expression", "_places", "_replay", "_sole", "_target", "_tensor")

    def __init__(self, replay: Replay, tensor: Tensor, places: Sequence[int], target: int) -> None:
        self._replay, self._tensor, self._places, self._target = replay, tensor, places, target
        dtype, shape = replay.outputs[target]
        self._arrays = [np.empty(shape, dtype), np.empty(shape, dtype)]
        for turn in (0, 1):
            self._connect(turn)
        self._sole = self._holders(0)
        self._arrays[0][...] = tensor.array()
        before = tensor.expression
        self._expression = renewed(tensor, self._arrays[0])
        self._alone = sys.getrefcount(self._expression)
        tensor.sync_aliases(before)

    def prepare(self, turn: int) -> None:
        """Make the input of a call the tensor's value, and its output an array that nobody else refers to."""
        if self._tensor.expression is not self._expression or self._expression.data is not self._arrays[turn]:
            if self._holders(turn) != self._sole:
                self._replace(turn)
            self._arrays[turn][...] = self._tensor.array()
        if self._holders(1 - turn) != self._sole:
            self._replace(1 - turn)

    def settle(self, turn: int) -> None:
        """Give the tensor the value that a call has computed."""
        before = self._tensor.expression
        if before is self._expression and sys.getrefcount(before) == self._alone + 1:
            before.data = self._arrays[1 - turn]
        else:
            self._expression = renewed(self._tensor, self._arrays[1 - turn])
        self._tensor.sync_aliases(before)

    def _holders(self, turn: int) -> int:
        return sys.getrefcount(self._arrays[turn])

    def _replace(self, turn: int) -> None:
        self._arrays[turn] = np.empty_like(self._arrays[turn])
        self._connect(turn)

    def _connect(self, turn: int) -> None:
        """Let one set read the array, and the other one write it."""
        for place in self._places:
            self._replay.feed(turn, place, self._arrays[turn])
        self._replay.take(1 - turn, self._target, self._arrays[turn])


class OverwrittenState:
    """A tensor that each call reads, and overwrites at its end.

    Args:
        places, target: as those of `State`.
    """

    __slots__ = ("_alone", "_array", "_expression", "_places", "_replay", "_target", "_tensor")

    def __init__(self, replay: Replay, tensor: Tensor, places: Sequence[int], target: int) -> None:
        self._replay, self._tensor, self._places, self._target = replay, tensor, places, target
        self._fill(tensor.array())

    def prepare(self, turn: int) -> None:
        """Let the call overwrite an array that nobody else refers to."""
        if self._tensor.expression is not self._expression or self._holders() != self._alone:
            self._fill(self._tensor.array())
        elif self._expression.data is not self._array:
            self._array[...] = self._tensor.array()

    def settle(self, turn: int) -> None:
        """Give the followers of the tensor the value that a call has computed."""
        self._expression.data = self._array
        self._tensor.sync_aliases(self._expression)

    def _fill(self, value: np.ndarray) -> None:
        self._array, before = value.copy(), self._tensor.expression
        for turn in (0, 1):
            for place in self._places:
                self._replay.feed(turn, place, self._array)
            self._replay.take(turn, self._target, self._array)
        self._expression = renewed(self._tensor, self._array)
        self._alone = self._holders()
        self._tensor.sync_aliases(before)

    def _holders(self) -> tuple[int, int]:
        return sys.getrefcount(self._array), sys.getrefcount(self._expression)


def renewed(tensor: Tensor, array: np.ndarray) -> Expression:
    """A new expression of a tensor, whose value is the array."""
    made, before = leaf(array), tensor.expression
    made.needs_grad, before.holder = before.needs_grad, None
    tensor.set_expression(made)
    return made


class Gradient:
    """The gradient that each call gives to a tensor.

    Args:
        target: number of the output.
    """

    __slots__ = ("_alone", "_expression", "_grad", "_replay", "_target", "_tensor")

    def __init__(self, replay: Replay, tensor: Tensor, target: int) -> None:
        self._replay, self._tensor, self._target = replay, tensor, target
        before = tensor.grad
        self._grad = self._made()
        self._alone = self._holders()
        tensor.grad = before

    def prepare(self) -> None:
        """Let the call write into the array of the gradient before, unless somebody refers to that."""
        kept = self._tensor._grad is self._grad and self._grad.expression is self._expression
        if not kept or self._holders() != self._alone:
            self._grad = self._made()

    def forget(self) -> None:
        """Leave the tensor without a gradient."""
        self._tensor.grad = None

    def _made(self) -> Tensor:
        dtype, shape = self._replay.outputs[self._target]
        array = np.empty(shape, dtype)
        for turn in (0, 1):
            self._replay.take(turn, self._target, array)
        self._tensor.grad = made = Tensor(leaf(array))
        self._expression = made.expression
        return made

    def _holders(self) -> tuple[int, int, int]:
        return (sys.getrefcount(self._grad), sys.getrefcount(self._expression), sys.getrefcount(self._expression.data))


class ResidentState:
    """All that stays between the calls of a traced function.

    Args:
        states: tensors that are read and changed, with the numbers of their inputs and their output.
        gradients: tensors that get gradients, with the number of the output.

    Attributes:
        is_settled: whether the last call has given the states their next values, though it may have raised.
    """

    def __init__(
        self,
        replay: Replay,
        states: Sequence[tuple[Tensor, Sequence[int], int]],
        gradients: Sequence[tuple[Tensor, int]],
    ) -> None:
        self._replay, self._turn, self._lock = replay, 0, threading.Lock()
        self._states = [
            (OverwrittenState if replay.overwrites(places, target) else State)(replay, tensor, places, target)
            for tensor, places, target in states
        ]
        self._gradients = [Gradient(replay, *gradient) for gradient in gradients]
        self.is_settled = False

    def run(self, fed: Sequence[tuple[int, np.ndarray]], results: Sequence[int]) -> list[np.ndarray] | None:
        """Run a call; new arrays of the outputs `results`. None where kernels met values that they do not compute:
        states are as they were, and gradients are dropped.

        Args:
            fed: numbers and arrays of the inputs that are not states.
        """
        with self._lock:
            replay, turn, self.is_settled = self._replay, self._turn, False
            for place, array in fed:
                replay.feed_elements(turn, place, array)
            for state in self._states:
                state.prepare(turn)
            for gradient in self._gradients:
                gradient.prepare()
            found = [np.empty(shape, dtype) for dtype, shape in map(replay.outputs.__getitem__, results)]
            for place, array in zip(results, found, strict=True):
                replay.take(turn, place, array)
            try:
                computed = replay.run(turn)
            finally:
                if replay.overwrote:
                    try:
                        self.is_settled, self._turn = True, 1 - turn
                        for state in self._states:
                            state.settle(turn)
                    except KeyboardInterrupt:
                        for state in self._states:
                            state.settle(turn)
                        raise
            if computed:
                return found
            for gradient in self._gradients:
                gradient.forget()
            return None
