"""Value locations: the arena buffer or Python slot that holds each value of a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..ir.graph import Value
from .kernel_api import Allocation, Buffer

L = TypeVar("L", bound=Buffer | Value)


class ValueLocations(dict[Value, L]):
    """The location of each value, and the values of each allocation."""

    def __init__(self) -> None:
        super().__init__()
        self._occupants: dict[Allocation, dict[Value, None]] = {}

    def __setitem__(self, value: Value, location: L) -> None:
        self._remove_occupant(value)
        super().__setitem__(value, location)
        if isinstance(location, Buffer):
            self._occupants.setdefault(location.allocation, {})[value] = None

    def __delitem__(self, value: Value) -> None:
        self._remove_occupant(value)
        super().__delitem__(value)

    def _remove_occupant(self, value: Value) -> None:
        location = self.get(value)
        if isinstance(location, Buffer):
            del self._occupants[location.allocation][value]

    def update(self, pairs: Iterable[tuple[Value, L]]) -> None:  # type: ignore[override]
        """Several values at once."""
        for value, location in pairs:
            self[value] = location

    def sole_occupant(self, allocation: Allocation) -> Value | None:
        """The only live value of an allocation; None unless exactly one lives."""
        occupants = self._occupants.get(allocation, {})
        return next(iter(occupants)) if len(occupants) == 1 else None
