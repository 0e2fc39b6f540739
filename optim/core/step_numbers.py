"""Numbers of a step, such as the learning rate and bias corrections: computed in Python, and inputs of plans, so that
one plan serves every step of a schedule."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.tensor.dtype import DType
from ...tensors.core.expression import leaf
from ...tensors.core.tensor import Tensor
from ...tensors.core.trace import TRACE

Numbers = Mapping[str, Tensor]
"""0-d tensors by name, of the dtype that a parameter is updated in."""
Advance = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]
"""From the options of a group and the state of a parameter, whose counters it advances, to the numbers of the step."""


def plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """Options with numbers in place of tensors without dims, as learning rates may be."""
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in group.items()}


class Bucket:
    """Parameters of one group whose counters are equal, so that their steps have the same numbers.

    Args:
        advance: the optimizer's rule.
        group: options.
        states: of each parameter.
        counters: the names of the counters in the states.
    """

    def __init__(
        self, advance: Advance, group: dict[str, Any], states: Sequence[dict[str, Any]], counters: Sequence[str]
    ) -> None:
        self._advance = advance
        self._group = group
        self._states = states
        self._counters = counters
        self._values: Mapping[str, Any] = {}
        if TRACE.changes is not None:
            TRACE.changes.counting.append((self, self.counts()))
            TRACE.changes.guards.append(self._is_uniform)
        self.advance()
        self._made: dict[DType, Numbers] = {}

    def advance(self) -> None:
        """Count a step, and compute its numbers."""
        first, *others = self._states
        self._values = self._advance(plain(self._group), first)
        for name in self._counters:
            for each in others:
                each[name] = first[name]

    def counts(self) -> Mapping[str, Any]:
        """The counters, which are equal in all states."""
        return {name: self._states[0][name] for name in self._counters}

    def restore(self, counts: Mapping[str, Any]) -> None:
        """Set the counters of all states."""
        for state in self._states:
            state.update(counts)

    def numbers(self, dtype: DType) -> Numbers:
        """The numbers of the step in a dtype; booleans stay booleans."""
        found = self._made.get(dtype)
        if found is None:
            found = self._made[dtype] = {name: self._input(name, dtype) for name in self._values}
        return found

    def _input(self, name: str, dtype: DType) -> Tensor:
        draw = functools.partial(self._array, name, dtype.as_numpy())
        made = leaf(draw())
        if TRACE.changes is not None:
            TRACE.changes.draws[made] = draw
        return Tensor(made)

    def _array(self, name: str, dtype: np.dtype) -> np.ndarray:
        value = self._values[name]
        return np.array(value, np.bool_ if isinstance(value, bool) else dtype)

    def _is_uniform(self) -> bool:
        first, *others = self._states
        return all(each[name] == first[name] for name in self._counters for each in others)
