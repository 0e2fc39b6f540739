"""Registries: what exists is what has a module. Names come from file names, so that listing them imports nothing."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .op import Op


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


@functools.cache
def mentioning(package: str, word: str) -> tuple[str, ...]:
    """Modules of a package whose text has a word in quotes: where to look first for what is known by that name."""
    folder = Path(__file__).parents[1].joinpath(*package.split("."))
    return tuple(name for name in names(package) if f'"{word}"' in (folder / f"{name}.py").read_text())


@functools.cache
def operators() -> dict[tuple[str, str], Op]:
    """Every operator in the modules of ``ops``, by domain ("" is ai.onnx) and name. Block codecs (``ops.quants``) are no operators."""
    from .op import Op

    package = importlib.import_module("..ops", __package__)
    found = {}
    for module in sorted(pkgutil.walk_packages(package.__path__, f"{package.__name__}."), key=lambda module: module.name):
        if not module.ispkg and ".quants." not in module.name and not module.name.endswith(("_kernel", "_cuda")):
            made = vars(importlib.import_module(module.name)).values()
            found.update({(item.domain, item.name): item for item in made if isinstance(item, Op)})
    return found


def register(operator: Op) -> None:
    """Add an operator to the running process, in place of one of the same name and domain."""
    operators()[operator.domain, operator.name] = operator


@functools.cache
def kernels() -> None:
    """Load the modules of ``ops`` that say how operators run natively."""
    package = importlib.import_module("..ops", __package__)
    for module in sorted(pkgutil.walk_packages(package.__path__, f"{package.__name__}."), key=lambda module: module.name):
        if module.name.endswith("_kernel"):
            importlib.import_module(module.name)


def operator(name: str, domain: str = "") -> Op | None:
    """The operator of that name; "ai.onnx" is the same domain as ""."""
    return operators().get(("" if domain == "ai.onnx" else domain, name))
