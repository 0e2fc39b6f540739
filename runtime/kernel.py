"""Compiled kernels: the options that keep their arithmetic exact, and a disk cache that forgets what was compiled from other sources."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import types
from numba.extending import register_jitable

from .keeping import address_of

F = TypeVar("F", bound=Callable[..., Any])

EXACT = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""IEEE arithmetic as written: no reordering, no contraction, no exception on division by zero."""

RANGE_SIGNATURE = types.void(types.CPointer(types.int64), types.int64, types.int64)
"""Of range kernels: argument block, number of this part, number of parts."""

_SHARED = ("kernel", "simd", "native", "machine", "linking", "keeping", "emit", "vector", "scalar_math", "element", "fusion")
"""Modules of `runtime` that machine code is made of, or with."""
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
            kept = address_of(self, cache_folder())
            if kept is not None:
                return kept
            self._compiled = _cached(lambda **options: numba.cfunc(RANGE_SIGNATURE, **{**options, **self.options})(self.function))
        return int(self._compiled.address)

    @functools.cached_property
    def call(self) -> Callable[[int, int, int], None]:
        """Runs the kernel from Python without the GIL: address of the argument block, part, parts."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.address)

    def compiled(self) -> Any:
        """The function compiled anew, as Numba's ``CFunc``, for those who keep the machine code themselves."""
        with _compiling:
            return numba.cfunc(RANGE_SIGNATURE, **{**EXACT, **self.options})(self.function)

    def __repr__(self) -> str:
        return self.function.__name__


def range_kernel(function: Callable[..., None] | None = None, **options: Any) -> Any:
    """Make a range kernel; options replace those of `EXACT`, ``fastmath={"contract"}`` for one."""
    return RangeKernel(function, options) if function is not None else lambda inner: RangeKernel(inner, options)


def _cached(compiled: Callable[..., Any]) -> Any:
    folder = cache_folder()
    if folder is None:
        return compiled(**EXACT)
    with _compiling:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder)
        try:
            return compiled(cache=True, **EXACT)
        finally:
            numba.config.CACHE_DIR = before


@functools.cache
def cache_folder() -> Path | None:
    """Where machine code is kept: a folder for the very sources that kernels can call, since Numba looks at one file only.

    None where it cannot be written. Kernels are in ``ops/quants`` and in files named ``*_kernel.py``, and call nothing outside these and `runtime`.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(base) / "candle-convert" / "kernels" / _sources()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _sources() -> str:
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    shared = [root / "runtime" / f"{name}.py" for name in _SHARED]
    for path in (*shared, *sorted((root / "ops" / "quants").rglob("*.py")), *sorted((root / "ops").rglob("*_kernel.py"))):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
