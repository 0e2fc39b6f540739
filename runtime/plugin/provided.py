"""Lazy package attributes that a package above defines; loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Provided:
    """The provided names of one package, whose module-level ``__getattr__`` is `get`.

    Args:
        package: the package's name, for errors.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._loaders: dict[str, Callable[[], Any]] = {}
        self._searches: list[Callable[[str], Any]] = []
        self._lists: list[Callable[[], list[str]]] = []

    def provide(self, name: str, loader: Callable[[], Any]) -> None:
        """Give the package a name; `loader` returns the object."""
        self._loaders[name] = loader

    def provide_classes(self, search: Callable[[str], Any], listed: Callable[[], list[str]]) -> None:
        """Give the package classes; `search` returns that of a capitalized name, None for other names; `listed` returns
        the names."""
        self._searches.append(search)
        self._lists.append(listed)

    def names(self) -> list[str]:
        """All names, for ``dir``."""
        return sorted([*self._loaders, *(name for listed in self._lists for name in listed())])

    def get(self, name: str) -> Any:
        """The object of a name. Raises AttributeError for a name that was not provided."""
        if name in self._loaders:
            return self._loaders[name]()
        if name == "__all__":
            return self.names()
        for search in self._searches if name[:1].isupper() else ():
            found = search(name)
            if found is not None:
                return found
        raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
