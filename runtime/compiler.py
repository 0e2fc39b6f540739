"""Compiler: Numba, which is only imported when something is compiled, and what modules of kernels have for it by then.

A process that finds its machine code in the cache never needs it. ``llvmlite.ir`` is plain Python and small; these modules use it as it is.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from . import half_calls, paths

F = TypeVar("F", bound=Callable[..., Any])


class _Later:
    """A module that is imported when something in it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, item: str) -> Any:
        return getattr(importlib.import_module(self._name, __package__), item)


types, cgutils, binding = _Later("numba.types"), _Later("numba.core.cgutils"), _Later("llvmlite.binding")
arrays, simd_types = _Later("numba.np.arrayobj"), _Later(".simd_types")
_waiting: list[Callable[[], None]] = []


class Intrinsic:
    """A function of kernels that is written as instructions.

    Attributes:
        typed: gets a typing context and the types of the arguments, and gives the signature and a function that adds the instructions.
        literal: whether arguments that are constants in the text come as such.
    """

    def __init__(self, typed: Callable[..., Any], literal: bool = False) -> None:
        self.typed = typed
        self.literal = literal
        functools.update_wrapper(self, typed)
        _waiting.append(self._declare)

    def _declare(self) -> None:
        from numba.core.typing.templates import infer, infer_global, make_intrinsic_template

        template = make_intrinsic_template(self, self.typed, self.typed.__name__, prefer_literal=self.literal)
        infer(template)
        infer_global(self, types.Function(template))

    def __call__(self, *args: Any) -> Any:
        """Only there for kernels, which do not call it as Python does."""
        raise TypeError(f"{self.typed.__name__} can only be called in kernels")


def intrinsic(typed: Callable[..., Any]) -> Any:
    """Make an `Intrinsic`."""
    return Intrinsic(typed)


def intrinsic_of_literals(typed: Callable[..., Any]) -> Any:
    """Make an `Intrinsic` that gets constants as such."""
    return Intrinsic(typed, literal=True)


def jitable(function: F, **options: Any) -> F:
    """Mark a function that kernels call."""

    def declare() -> None:
        from numba.extending import register_jitable

        register_jitable(**options)(function)

    _waiting.append(declare)
    return function


def numba() -> Any:
    """Numba, which then knows all functions that modules loaded so far have for kernels."""
    compiler = importlib.import_module("numba")
    compiler.config.CPU_NAME, compiler.config.CPU_FEATURES = paths.target()
    if "f16c" not in paths.features():
        half_calls.install()
    importlib.import_module(".simd_types", __package__)
    while _waiting:
        _waiting.pop(0)()
    return compiler
