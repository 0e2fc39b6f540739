"""Compiled kernels: the options that keep their arithmetic exact, and a disk cache that forgets what was compiled from other sources."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import types
from numba.extending import register_jitable

from . import sources
from .keeping import address_of
from .machine import cache

F = TypeVar("F", bound=Callable[..., Any])

EXACT = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""IEEE arithmetic as written: no reordering, no contraction, no exception on division by zero."""

RANGE_SIGNATURE = types.void(types.CPointer(types.int64), types.int64, types.int64)
"""Of range kernels: argument block, number of this part, number of parts."""

_compiling = threading.RLock()


def inner(function: F) -> F:
    """Mark a function that kernels call; it stays a plain Python function outside of them."""
    return register_jitable(**EXACT)(function)


def inlined(function: F) -> F:
    """As `inner`, but copied into its callers however long it is, so that their loops become vector code."""
    return register_jitable(forceinline=True, **EXACT)(function)


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
            self._compiled = self._cached()
        return int(self._compiled.address)

    @functools.cached_property
    def call(self) -> Callable[[int, int, int], None]:
        """Runs the kernel from Python without the GIL: address of the argument block, part, parts."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.address)

    def compiled(self) -> Any:
        """The function compiled anew, as Numba's ``CFunc``, for those who keep the machine code themselves."""
        with _compiling:
            return numba.cfunc(RANGE_SIGNATURE, **{**EXACT, **self.options})(self.function)

    def _cached(self) -> Any:
        """The function by way of Numba's cache, in a folder for its sources, since Numba looks at one file only."""
        folder = cache_folder(self.function.__module__)
        options = {**EXACT, **self.options, "cache": folder is not None}
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder or before)
        try:
            return numba.cfunc(RANGE_SIGNATURE, **options)(self.function)
        finally:
            numba.config.CACHE_DIR = before

    def __repr__(self) -> str:
        return self.function.__name__


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
