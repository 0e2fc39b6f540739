"""Compiled kernels: the options that keep their arithmetic exact, and a disk cache that forgets what was compiled from other sources."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from . import compiler, sources
from .keeping import address_of
from .machine import cache

F = TypeVar("F", bound=Callable[..., Any])

EXACT = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""IEEE arithmetic as written: no reordering, no contraction, no exception on division by zero."""

INNER = {**EXACT, "no_cfunc_wrapper": True}
"""Of functions that only kernels call."""
_ENTRY = """
define void @{entry}(ptr %args, i64 %part, i64 %parts) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @"{kernel}"(ptr %result, ptr %error, ptr %args, i64 %part, i64 %parts)
  ret void
}}
"""
"""Calls what Numba compiles, which gives a status that no kernel uses."""
_compiling = threading.RLock()


def inner(function: F) -> F:
    """Mark a function that kernels call; it stays a plain Python function outside of them."""
    return compiler.jitable(function, **INNER)


def inlined(function: F) -> F:
    """As `inner`, but copied into its callers however long it is, so that their loops become vector code."""
    return compiler.jitable(function, forceinline=True, **INNER)


class RangeKernel:
    """A function ``(args, part, parts)`` that computes one part of a step's output, to be called by address.

    It is compiled, or loaded from the disk cache, when its address is first asked for.
    """

    def __init__(self, function: Callable[..., None], options: dict[str, Any]) -> None:
        self.function = function
        self.options = options
        self.__doc__ = function.__doc__

    @functools.cached_property
    def address(self) -> int:
        """Address of the machine code."""
        with _compiling:
            kept = address_of(self)
            if kept is not None:
                return kept
            self._compiled = self._by_numba()
        return int(self._compiled.address)

    @functools.cached_property
    def call(self) -> Callable[[int, int, int], None]:
        """Runs the kernel from Python without the GIL: address of the argument block, part, parts."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.address)

    @property
    def name(self) -> str:
        """The function's."""
        return self.function.__name__

    @property
    def made_of(self) -> tuple[Any, ...]:
        """What its code depends on."""
        return (self.function, self.options)

    def code(self) -> bytes | None:
        """Its code as `linking.joined` gives it, None where it needs something from outside."""
        from .linking import ENTRY, OutsideError, joined, object_of

        compiled = self._compiled_now()
        text = compiled.inspect_llvm() + _ENTRY.format(entry=ENTRY, kernel=compiled.native_name.removeprefix("cfunc."))
        try:
            return joined(object_of(text, optimized=True))
        except (RuntimeError, OutsideError):
            return None

    def _compiled_now(self, cache: bool = False) -> Any:
        """The function as Numba's ``CFunc``."""
        with _compiling:
            numba = compiler.numba()
            address = numba.types.CPointer(numba.types.int64)
            signature = numba.types.void(address, numba.types.int64, numba.types.int64)  # argument block, number of this part, number of parts
            return numba.cfunc(signature, cache=cache, **{**EXACT, **self.options})(self.function)

    def _by_numba(self) -> Any:
        """The function by way of Numba's cache, in a folder for its sources, since Numba looks at one file only."""
        folder, config = cache_folder(self.function.__module__), compiler.numba().config
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder or before)
        try:
            return self._compiled_now(cache=folder is not None)
        finally:
            config.CACHE_DIR = before

    def __repr__(self) -> str:
        return self.name


def range_kernel(function: Callable[..., None] | None = None, **options: Any) -> Any:
    """Make a range kernel; options replace those of `EXACT`, ``fastmath={"contract"}`` for one."""
    return RangeKernel(function, options) if function is not None else lambda inner: RangeKernel(inner, options)


def cache_folder(module: str) -> Path | None:
    """Where Numba keeps the machine code of a module's kernels, or None where that is not possible."""
    try:
        folder = cache() / "kernels" / sources.digest(module)[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, sources.ChangedError):
        return None
    return folder if os.access(folder, os.W_OK) else None
