"""Calls when another package is imported, if it ever is: how this one meets it without importing it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Calling:
    """The loader of a module, which calls a function with it once it is there."""

    def __init__(self, loader: Any, call: Callable[[ModuleType], object]) -> None:
        self._loader, self._call = loader, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module as its own loader does, then the function."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._call(module)


class _Finder:
    """An entry of `sys.meta_path` for one module."""

    def __init__(self, name: str, call: Callable[[ModuleType], object]) -> None:
        self._name, self._call = name, call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec with a loader that calls the function."""
        if fullname != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Calling(spec.loader, self._call)  # type: ignore[assignment]
        return spec


def after_import(name: str, call: Callable[[ModuleType], object]) -> None:
    """Call a function with a module of another package: now if it is imported, else when it is."""
    module = sys.modules.get(name)
    if module is not None:
        call(module)
    else:
        sys.meta_path.insert(0, _Finder(name, call))
