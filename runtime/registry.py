"""Registries: what exists is what has a module. Names come from file names, so that listing them imports nothing."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .op import Op

_MADE = re.compile(rb'^(?:@\w+|\w+(?:: \w+)? = \w+)\(\s*"(\w+)"', re.MULTILINE)
"""What makes an operator of a name: ``@op("Relu", ...)``, ``relu = unary("Relu")``."""
_REGISTERS = re.compile(rb"^(?:@native|PLANNERS )", re.MULTILINE)
_IMPORT = re.compile(rb"^from (\..+)", re.MULTILINE)
_BY_ELEMENT = b"native_by_element"
_WORD = re.compile(rb"\w+")
_loaded: dict[tuple[str, str], Op] = {}


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
    for module in _modules():
        if not module.endswith("_kernel"):
            _take(module)
    return _loaded


def register(operator: Op) -> None:
    """Add an operator to the running process, in place of one of the same name and domain."""
    _loaded[operator.domain, operator.name] = operator


@functools.cache
def kernels() -> None:
    """Load the modules of ``ops`` that say how operators run natively."""
    for module in _modules():
        if module.endswith("_kernel"):
            importlib.import_module(module)


@functools.cache
def load_planners(operator: Op) -> None:
    """Load the modules that may say how an operator runs natively."""
    for module in planners(operator):
        importlib.import_module(module)


def planners(operator: Op) -> list[str]:
    """Modules of kernels that import something of a module that makes an operator of that name, and for scalar functions those for all of these."""
    homes = {module.rpartition(".")[2].encode() for module in _makers().get(operator.name.encode(), ())}
    return [module for module, words in _planners().items() if not homes.isdisjoint(words) or (operator.scalar is not None and _BY_ELEMENT in words)]


def operator(name: str, domain: str = "") -> Op | None:
    """The operator of that name; "ai.onnx" is the same domain as "". Only modules that make one of that name are loaded for it."""
    key = ("" if domain == "ai.onnx" else domain, name)
    if key not in _loaded:
        for module in _makers().get(name.encode(), ()):
            _take(module)
    return _loaded.get(key)


def _take(module: str) -> None:
    """The operators of a module; those that were registered stay."""
    from .op import Op

    for item in vars(importlib.import_module(module)).values():
        if isinstance(item, Op):
            _loaded.setdefault((item.domain, item.name), item)


@functools.cache
def _modules() -> dict[str, Path]:
    """The modules of ``ops`` but for block codecs and CUDA, with their files, in alphabetical order."""
    ops = importlib.import_module("..ops", __package__)
    found, waiting = {}, [(ops.__name__, ops.__path__[0])]
    while waiting:
        package, folder = waiting.pop()
        for entry in os.scandir(folder):
            stem, suffix = os.path.splitext(entry.name)
            if suffix == ".py" and stem != "__init__" and not stem.endswith("_cuda"):
                found[f"{package}.{stem}"] = Path(entry.path)
            elif not suffix and entry.name not in ("quants", "__pycache__") and entry.is_dir():
                waiting.append((f"{package}.{stem}", entry.path))
    return dict(sorted(found.items()))


@functools.cache
def _planners() -> dict[str, frozenset[bytes]]:
    """The modules that register planners, with the words of what they import from ours."""
    texts = {module: path.read_bytes() for module, path in _modules().items() if module.endswith("_kernel")}
    return {
        module: frozenset(word for line in _IMPORT.findall(text) for word in _WORD.findall(line))
        for module, text in texts.items() if _REGISTERS.search(text)
    }  # fmt: skip


@functools.cache
def _makers() -> dict[bytes, list[str]]:
    """For the name of each operator the modules that make one of that name, by their text."""
    found: dict[bytes, list[str]] = {}
    for module, path in _modules().items():
        if not module.endswith("_kernel"):
            for match in _MADE.finditer(path.read_bytes()):
                found.setdefault(match[1], []).append(module)
    return found
