"""Operator registry: finds operators by name and loads only the modules that define or extend them.

Code about one operator compares objects, ``node.op is onnx.Conv``; code about operators of a kind reads `Op.traits`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..base.process_cache import FILES, PROCESS, owned, process_cache
from ..plugin.discovery import OPERATORS, ROOT, index
from ..plugin.module_index import Call
from .domain import CANDLE, MICROSOFT
from .op import Op, op

_loaded: dict[tuple[str, str], Op] = owned({}, PROCESS)


class Operators:
    """The operators of a domain as attributes, to compare with those of nodes: ``node.op is onnx.Conv``.

    Reading an attribute imports nothing: no node has an operator whose module is not imported, and the attribute is a
    placeholder then. So it is read at each comparison and never kept.
    """

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def __getattr__(self, name: str) -> Op:
        placeholder, modules = _unloaded(name, self._domain)
        for module in modules:
            if f"{ROOT}.{module}" in sys.modules:
                _take(module)
        return _loaded.get((self._domain, name), placeholder)


@process_cache(kept=FILES)
def _unloaded(name: str, domain: str) -> tuple[Op, list[str]]:
    """What stands for an operator whose module is not imported, and the modules that define operators of its name."""
    modules = makers(name)
    if not modules:
        raise AttributeError(f"no operator named {name!r}")
    return Op(name, domain), modules


onnx, candle, microsoft = Operators(""), Operators(CANDLE), Operators(MICROSOFT)
_domains = {"": onnx, CANDLE: candle, MICROSOFT: microsoft}


@process_cache(kept=FILES)
def operators() -> dict[tuple[str, str], Op]:
    """Every operator in the modules of ``ops``, by domain ("" is ai.onnx) and name."""
    for module in sorted({module for modules in _makers().values() for module in modules}):
        _take(module)
    return _loaded


def register(operator: Op) -> None:
    """Add an operator to the running process, in place of one of the same name and domain."""
    _loaded[operator.domain, operator.name] = operator
    if operator.domain in _domains:
        setattr(_domains[operator.domain], operator.name, operator)


def operator(name: str, domain: str = "") -> Op | None:
    """Find an operator by name and domain ("" and "ai.onnx" are the same); loads only the modules that define it."""
    key = ("" if domain == "ai.onnx" else domain, name)
    if key not in _loaded:
        for module in _makers().get(name, ()):
            _take(module)
    return _loaded.get(key)


def makers(name: str) -> list[str]:
    """The modules that define an operator of that name, in any domain."""
    return _makers().get(name, [])


def registering(*functions: Callable[..., Any], operator: Op | None = None) -> list[str]:
    """The modules that call one of these functions at top level; with an operator, only calls whose argument is
    imported from a module that defines it."""
    modules = None if operator is None else set(makers(operator.name))
    found = {
        module
        for function in functions
        for module, call in _calls().get(_name(function), ())
        if modules is None or _concerns(call, modules)
    }
    return sorted(found)


def load(modules: Iterable[str]) -> None:
    """Import modules of the package, which register their definitions."""
    for module in modules:
        importlib.import_module(f"{ROOT}.{module}")


def _concerns(call: Call, modules: set[str]) -> bool:
    return any(argument in modules or argument.rpartition(".")[0] in modules for argument in call.arguments)


def _take(module: str) -> None:
    """The operators that a module defines; already registered ones stay."""
    for name, item in vars(importlib.import_module(f"{ROOT}.{module}")).items():
        if isinstance(item, Op) and not name.startswith("_") and (item.domain, item.name) not in _loaded:
            register(item)


def _name(function: Callable[..., Any]) -> str:
    """A function's qualified name as the module index stores it."""
    return f"{function.__module__}.{function.__qualname__}".removeprefix(f"{ROOT}.")


@process_cache(kept=FILES)
def _calls() -> dict[str, list[tuple[str, Call]]]:
    """The modules that call each function, with their calls."""
    found: dict[str, list[tuple[str, Call]]] = {}
    for module, entry in index(OPERATORS).items():
        for call in entry.calls:
            found.setdefault(call.function, []).append((module, call))
    return found


@process_cache(kept=FILES)
def _makers() -> dict[str, list[str]]:
    """For each operator name the modules that define it: by ``op`` or ``Op``, or by a function of ``ops`` that may
    call these."""
    made_by = (_name(op), _name(Op))
    found: dict[str, list[str]] = {}
    for module, entry in index(OPERATORS).items():
        for call in entry.calls:
            if call.text and (call.function in made_by or call.function.startswith(f"{OPERATORS}.")):
                found.setdefault(call.text, []).append(module)
    return found
