"""Registries: what exists is what has a module. Names come from file names, so that listing them imports nothing."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any


@functools.cache
def names(package: str) -> tuple[str, ...]:
    """Module names of a package of ours (``formats``), sub-packages left out, in alphabetical order."""
    root = importlib.import_module(f"..{package}", __package__)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(root.__path__) if not module.ispkg))


def load(package: str, name: str, constant: str) -> Any:
    """The constant that the module `name` of `package` defines."""
    return getattr(importlib.import_module(f"..{package}.{name}", __package__), constant)


def all_of(package: str, constant: str) -> tuple[Any, ...]:
    """That constant of every module."""
    return tuple(load(package, name, constant) for name in names(package))
