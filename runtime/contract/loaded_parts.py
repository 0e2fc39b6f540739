"""Parts of a model in files of their own, loaded when they are first used."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..ir.graph import Graph


class LoadedParts(Mapping[str, Any]):
    """The runnable parts of a model by name.

    Args:
        graphs: what was opened of each part.
        load: makes a part runnable, for the task `task` if one is named.
    """

    def __init__(self, graphs: Mapping[str, Graph], load: Callable[..., Any]) -> None:
        self._graphs, self._load = graphs, load
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self.loaded(name)

    def __contains__(self, name: object) -> bool:
        return name in self._graphs

    def __iter__(self) -> Iterator[str]:
        return iter(self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def loaded(self, name: str, task: str | None = None) -> Any:
        """A part, for a task. KeyError for a part that the model lacks."""
        if name not in self._loaded:
            self._loaded[name] = self._load(self._graphs[name], task=task)
        return self._loaded[name]

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the parts that are loaded."""
        return tuple(self._loaded)

    def drop(self, name: str) -> None:
        """Let go of a part and free its memory, which cycles of references hold; it is loaded again when it is used."""
        if self._loaded.pop(name, None) is not None:
            gc.collect()
