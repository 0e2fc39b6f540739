"""What a pickle leaves where Python would import, call or fetch something: inert objects that only tell what was asked."""

from __future__ import annotations

from typing import Any

from ...runtime.record import dataclass
from .pickle_values import ALIASES

Value = Any
"""What a pickle can hold: plain Python values and containers, and `Span`, `Global`, `Record` and `Persistent`."""


@dataclass(frozen=True)
class Global:
    """A name that Python would import: module and qualified name, and where it stands."""

    module: str
    qualname: str
    at: int

    @property
    def name(self) -> str:
        """Dotted, modules under the names they have today."""
        return f"{ALIASES.get(self.module, self.module)}.{self.qualname}"


class Record:
    """What calling something would have made: the call as it stands, the state set on it, the items and pairs added to it."""

    __slots__ = ("arguments", "at", "items", "keywords", "pairs", "state", "target")

    def __init__(self, target: Global | Record | Persistent, arguments: tuple[Value, ...], keywords: dict[str, Value], at: int) -> None:
        self.target = target
        self.arguments = arguments
        self.keywords = keywords
        self.at = at
        self.state: Value = None
        self.items: list[Value] = []
        self.pairs: list[tuple[Value, Value]] = []

    @property
    def name(self) -> str:
        """The dotted name of what was called, "" when that was no name. Old torch files wrap classes in a persistent id."""
        target = self.target
        if isinstance(target, Persistent) and isinstance(target.id, tuple) and len(target.id) > 1:
            target = target.id[1]
        return target.name if isinstance(target, Global) else ""


@dataclass(frozen=True, eq=False)
class Persistent:
    """A reference to something outside the pickle."""

    id: Value
    at: int
