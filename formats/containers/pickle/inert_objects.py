"""Inert objects: placeholders for the imports, calls and external references of a pickle."""

from __future__ import annotations

from typing import Any

from ....runtime.base.dataclass import dataclass

ALIASES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "numpy._core.multiarray": "numpy.core.multiarray",
    "numpy._core.numeric": "numpy.core.numeric",
    "pathlib._local": "pathlib",
    "torch.tensor": "torch._tensor",
}
"""Modules that other versions of Python, numpy or torch name differently."""
Value = Any
"""Values of a pickle: plain Python values and containers, and `Span`, `Global`, `Record` and `Persistent`."""


@dataclass(frozen=True)
class Global:
    """A name that Python would import: module, qualified name, and offset."""

    module: str
    qualname: str
    at: int

    @property
    def name(self) -> str:
        """Dotted name, with current module names."""
        return f"{ALIASES.get(self.module, self.module)}.{self.qualname}"


class Record:
    """A call that was recorded instead of executed: target, arguments, the state set on the result, items and pairs
    added to it."""

    __slots__ = ("arguments", "at", "items", "keywords", "pairs", "state", "target")

    def __init__(
        self, target: Global | Record | Persistent, arguments: tuple[Value, ...], keywords: dict[str, Value], at: int
    ) -> None:
        self.target = target
        self.arguments = arguments
        self.keywords = keywords
        self.at = at
        self.state: Value = None
        self.items: list[Value] = []
        self.pairs: list[tuple[Value, Value]] = []

    @property
    def name(self) -> str:
        """Dotted name of the target, "" if it is not a name. Old torch files wrap classes in a persistent id."""
        target = self.target
        if isinstance(target, Persistent) and isinstance(target.id, tuple) and len(target.id) > 1:
            target = target.id[1]
        return target.name if isinstance(target, Global) else ""


@dataclass(frozen=True, eq=False)
class Persistent:
    """A reference to something outside the pickle."""

    id: Value
    at: int
