"""Modules that can be imported under a second name: ``from candle_convert.data import DataLoader``."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType


class SecondNames:
    """An entry of `sys.meta_path`.

    Args:
        names: full names of modules by the full names under which they can be imported, too.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The import specification of a module of one of the names."""
        if fullname not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """A new module."""

    def exec_module(self, module: ModuleType) -> None:
        """Give it the attributes of the module that it stands for."""
        real = importlib.import_module(self._names[module.__name__])
        vars(module).update({name: item for name, item in vars(real).items() if not name.startswith("__")})
        module.__doc__ = real.__doc__
        for name in ("__all__", "__getattr__", "__dir__"):
            if hasattr(real, name) and name in vars(real):
                setattr(module, name, getattr(real, name))


def provide_second_names(names: Mapping[str, str]) -> None:
    """Let modules be imported under second names from now on."""
    sys.meta_path.append(SecondNames(names))
