"""Compiled kernels: the options that keep their arithmetic exact, and a disk cache that forgets what was compiled from other sources."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., Any])

EXACT = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""IEEE arithmetic as written: no reordering, no contraction, no exception on division by zero."""


def kernel(function: F) -> F:
    """Compile a function on its first call, without the GIL; the machine code is kept in the user's cache folder."""
    folder = cache_folder()
    if folder is None:
        return numba.njit(nogil=True, **EXACT)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        return numba.njit(nogil=True, cache=True, **EXACT)(function)
    finally:
        numba.config.CACHE_DIR = before


def inner(function: F) -> F:
    """Mark a function that kernels call; it stays a plain Python function outside of them."""
    return register_jitable(**EXACT)(function)


def inlined(function: F) -> F:
    """As `inner`, but copied into its callers however long it is, so that their loops become vector code."""
    return register_jitable(forceinline=True, **EXACT)(function)


@functools.cache
def cache_folder() -> Path | None:
    """Where machine code is kept: a folder for the very sources that kernels can call, since Numba looks at one file only.

    None where it cannot be written. Kernels call nothing outside `ops/`, this module and `simd`.
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
    for path in (root / "runtime" / "kernel.py", root / "runtime" / "simd.py", *sorted((root / "ops").rglob("*.py"))):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
