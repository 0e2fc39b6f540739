"""Operator registry: finds operators by name and loads only the modules that define or extend them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from ..plugin.discovery import OPERATORS, ROOT, index
from ..plugin.module_index import Call
from .op import Op, op

_loaded: dict[tuple[str, str], Op] = {}


@functools.cache
def operators() -> dict[tuple[str, str], Op]:
    """Every operator in the modules of ``ops``, by domain ("" is ai.onnx) and name."""
    for module in sorted({module for modules in _makers().values() for module in modules}):
        _take(module)
    return _loaded


def register(operator: Op) -> None:
    """Add an operator to the running process, in place of one of the same name and domain."""
    _loaded[operator.domain, operator.name] = operator


def operator(name: str, domain: str = "") -> Op | None:
    """The operator of that name; "ai.onnx" is the same domain as "". Only modules that make one of that name are loaded
    for it."""
    key = ("" if domain == "ai.onnx" else domain, name)
    if key not in _loaded:
        for module in _makers().get(name, ()):
            _take(module)
    return _loaded.get(key)


def makers(name: str) -> list[str]:
    """The modules that make an operator of that name, in some domain."""
    return _makers().get(name, [])


def registering(*functions: Callable[..., Any], operator: Op | None = None) -> list[str]:
    """The modules that call one of these functions at their top level, for an operator those that call it for something
    of a module that makes an operator of that name.
    """
    modules = None if operator is None else set(makers(operator.name))
    found = {
        module
        for function in functions
        for module, call in _calls().get(_name(function), ())
        if modules is None or _concerns(call, modules)
    }
    return sorted(found)


def load(modules: Iterable[str]) -> None:
    """Import modules of ours, which register what they have."""
    for module in modules:
        importlib.import_module(f"{ROOT}.{module}")


def _concerns(call: Call, modules: set[str]) -> bool:
    return any(argument in modules or argument.rpartition(".")[0] in modules for argument in call.arguments)


def _take(module: str) -> None:
    """The operators of a module; those that were registered stay."""
    for name, item in vars(importlib.import_module(f"{ROOT}.{module}")).items():
        if isinstance(item, Op) and not name.startswith("_"):
            _loaded.setdefault((item.domain, item.name), item)


def _name(function: Callable[..., Any]) -> str:
    """A function of ours as the index names it."""
    return f"{function.__module__}.{function.__qualname__}".removeprefix(f"{ROOT}.")


@functools.cache
def _calls() -> dict[str, list[tuple[str, Call]]]:
    """By function: the modules that call it, and how."""
    found: dict[str, list[tuple[str, Call]]] = {}
    for module, entry in index(OPERATORS).items():
        for call in entry.calls:
            found.setdefault(call.function, []).append((module, call))
    return found


@functools.cache
def _makers() -> dict[str, list[str]]:
    """By name of an operator: the modules that call ``op`` or ``Op``, or a function of ``ops`` that may call these,
    with that name."""
    made_by = (_name(op), _name(Op))
    found: dict[str, list[str]] = {}
    for module, entry in index(OPERATORS).items():
        for call in entry.calls:
            if call.text and (call.function in made_by or call.function.startswith(f"{OPERATORS}.")):
                found.setdefault(call.text, []).append(module)
    return found
