"""Keeping: machine code of range kernels for later processes, which then neither compile nor load Numba's own files.

A kernel is known by its module, its name and what it closes over; its file lies in the folder for all sources that kernels are made of. What
needs something from outside its own code is left to Numba's cache, and a note of that is kept.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from . import machine

if TYPE_CHECKING:
    from .kernel import RangeKernel

OUTSIDE = bytes(machine.WORD) + b"outside!"
"""Stands in a file for the code of a kernel that needs something from outside."""


class _UnknownError(Exception):
    """A value that has no description that another process would give too."""


def address_of(kernel: RangeKernel, folder: Path | None) -> int | None:
    """The address of a kernel's code, which is compiled and kept where this machine has not done so; None where it cannot be kept."""
    path = None if folder is None or not machine.supported() else _file(kernel, folder)
    if path is None:
        return None
    code = machine.read_code(path)
    if code is None:
        from .linking import linked

        code = linked(kernel) or OUTSIDE
        machine.write_code(path, code)
    return None if code == OUTSIDE else machine.placed(code)


def _file(kernel: RangeKernel, folder: Path) -> Path | None:
    try:
        text = f"{_described(kernel.function)} {_described(kernel.options)} {_platform()}"
    except _UnknownError:
        return None
    return folder / f"{kernel.function.__name__}.{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@functools.cache
def _platform() -> str:
    return repr((sys.version_info[:2], numba.__version__, machine.processor()))


def _described(value: Any) -> str:
    """A text that is the same for the same value in every process, for functions with what they close over. What is nested is small."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.dtype):
        return repr(value)
    if isinstance(value, np.generic):
        return f"{value.dtype}:{value!r}"
    if isinstance(value, tuple | list | set | frozenset):
        items = [_described(item) for item in value]
        return f"{type(value).__name__}({', '.join(sorted(items) if isinstance(value, set | frozenset) else items)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_described(key)}: {_described(item)}' for key, item in value.items())}}}"
    if isinstance(value, types.FunctionType):
        cells = [_described(cell.cell_contents) for cell in value.__closure__ or ()]
        return f"{value.__module__}.{value.__qualname__}({', '.join(cells)}; {_described(value.__defaults__)})"
    if isinstance(value, numba.types.Type):
        return f"{type(value).__module__}.{value}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    inner = getattr(value, "_defn", None) or getattr(value, "py_func", None)
    if inner is not None:
        return f"{type(value).__name__} {_described(inner)}"
    raise _UnknownError
