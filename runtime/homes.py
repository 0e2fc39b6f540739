"""Homes: where a planner finds each value, in memory or among a run's objects, and which values lie in the same memory."""

from __future__ import annotations

from collections.abc import Iterable

from .graph import Value
from .launch import Buffer, Room


class Homes(dict[Value, Buffer | Value]):
    """Where values are found, and which of them lie in a room."""

    def __init__(self) -> None:
        super().__init__()
        self._tenants: dict[Room, dict[Value, None]] = {}

    def __setitem__(self, value: Value, home: Buffer | Value) -> None:
        self._leave(value)
        super().__setitem__(value, home)
        if isinstance(home, Buffer):
            self._tenants.setdefault(home.room, {})[value] = None

    def __delitem__(self, value: Value) -> None:
        self._leave(value)
        super().__delitem__(value)

    def _leave(self, value: Value) -> None:
        home = self.get(value)
        if isinstance(home, Buffer):
            del self._tenants[home.room][value]

    def update(self, pairs: Iterable[tuple[Value, Buffer | Value]]) -> None:  # type: ignore[override]
        """Several values at once."""
        for value, home in pairs:
            self[value] = home

    def tenant(self, room: Room) -> Value | None:
        """The value that lies in a room alone, None where there is none or there are several."""
        tenants = self._tenants.get(room, {})
        return next(iter(tenants)) if len(tenants) == 1 else None
