"""Lazy Numba: imported only for compilation; intrinsics are declared then.

A process whose machine code is cached never imports it. ``llvmlite.ir`` is small and pure Python, and is imported
directly.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from ..base.errors import UsageError
from ..base.process_cache import PROCESS, owned
from . import half_libcalls, isa

F = TypeVar("F", bound=Callable[..., Any])


class _Deferred:
    """A module that is imported on first attribute access."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def __getattr__(self, item: str) -> Any:
        return getattr(self._load(), item)


def _deferred(name: str) -> _Deferred:
    return _Deferred(lambda: importlib.import_module(name))


types, cgutils, binding = _deferred("numba.types"), _deferred("numba.core.cgutils"), _deferred("llvmlite.binding")
arrays = _deferred("numba.np.arrayobj")
_pending: list[Callable[[], object]] = owned([], PROCESS)
_compiles_only = False


def compile_only() -> None:
    """Import Numba without what kernels do not use, in a process that compiles kernels and then ends."""
    global _compiles_only
    _compiles_only = True


def declaring(load: Callable[[], ModuleType]) -> Any:
    """A module that declares Numba types: imported on first attribute access, and before any compilation."""
    _pending.append(load)
    return _Deferred(load)


class Intrinsic:
    """A function of kernels that is emitted as LLVM instructions.

    Attributes:
        typed: takes a typing context and the argument types; returns the signature and a function that emits the
            instructions.
        literal: whether constant arguments are passed as literal types.
    """

    def __init__(self, typed: Callable[..., Any], literal: bool = False) -> None:
        self.typed = typed
        self.literal = literal
        functools.update_wrapper(self, typed)
        _pending.append(self._declare)

    def _declare(self) -> None:
        from numba.core.typing.templates import infer, infer_global, make_intrinsic_template

        template = make_intrinsic_template(self, self.typed, self.typed.__name__, prefer_literal=self.literal)
        infer(template)
        infer_global(self, types.Function(template))

    def __call__(self, *args: Any) -> Any:
        """A placeholder; only kernels can call it."""
        raise TypeError(f"{self.typed.__name__} can only be called in kernels")


def intrinsic(typed: Callable[..., Any]) -> Any:
    """Decorator that makes an `Intrinsic`."""
    return Intrinsic(typed)


def emitted(signature: Callable[[], Any]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of an `Intrinsic` whose argument types are fixed: the function emits its instructions with an IR
    builder, from the values of the arguments. It returns the result, or None for an intrinsic that is void."""

    def made(emit: Callable[..., Any]) -> Any:
        def typed(typing: Any, *arguments: Any) -> Any:
            def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                result = emit(builder, *args)
                return context.get_dummy_value() if result is None else result

            return signature(), lower

        return Intrinsic(functools.update_wrapper(typed, emit))

    return made


def intrinsic_of_literals(typed: Callable[..., Any]) -> Any:
    """Decorator that makes an `Intrinsic` with literal argument types."""
    return Intrinsic(typed, literal=True)


def jitable(function: F, **options: Any) -> F:
    """Decorator of functions that kernels call."""

    def declare() -> None:
        from numba.extending import register_jitable

        from .kernel_compiler import KernelCompiler

        register_jitable(**options, pipeline_class=KernelCompiler)(function)

    _pending.append(declare)
    return function


def numba() -> Any:
    """The numba module, after all functions of loaded modules have been declared to it. UsageError where variables of
    the environment keep it from compiling."""
    try:
        if _compiles_only:
            from .lean_numba import import_lean

            import_lean()
        compiler = importlib.import_module("numba")
    except ValueError as error:
        raise _unusable(f"Numba cannot be imported: {str(error).rstrip('.')}") from error
    if compiler.config.DISABLE_JIT:
        raise _unusable("NUMBA_DISABLE_JIT is set, and kernels have to be compiled")
    compiler.config.CPU_NAME, compiler.config.CPU_FEATURES = isa.target()
    binding.initialize_native_asmparser()  # for tiles, whose instructions are assembly
    if "f16c" not in isa.features():
        half_libcalls.install()
    while _pending:
        _pending.pop(0)()
    return compiler


def _unusable(why: str) -> UsageError:
    chosen = sorted(name for name in os.environ if name.startswith("NUMBA_"))
    return UsageError("E-NUMBA", None, why, hint=f"Unset {' and '.join(chosen)}" if chosen else None)
