"""Keeping: machine code of range kernels for later processes, which then neither compile nor load Numba's own files.

A kernel is known by its name, the sources of its module, and what it closes over. What needs something from outside its own code is left to
Numba's cache, and a note of that is kept.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from . import machine, sources

if TYPE_CHECKING:
    from .kernel import RangeKernel

OUTSIDE = bytes(machine.WORD) + b"outside!"
"""Stands in a file for the code of a kernel that needs something from outside."""


class UnknownError(sources.ChangedError):
    """A value that has no description that another process would give too."""


def address_of(kernel: RangeKernel) -> int | None:
    """The address of a kernel's code, which is compiled and kept where this machine has not done so; None where it cannot be kept."""
    path = machine.file_of(kernel.function.__name__, lambda: f"{described(kernel.function)} {described(kernel.options)}")
    if path is None:
        return None
    code = machine.read_code(path)
    if code is None:
        from .linking import linked

        code = linked(kernel) or OUTSIDE
        machine.write_code(path, code)
    return None if code == OUTSIDE else machine.placed(code)


def described(value: Any) -> str:
    """A text that is the same for the same value in every process, for functions with what they close over. What is nested is small."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.dtype):
        return repr(value)
    if isinstance(value, np.generic):
        return f"{value.dtype}:{value!r}"
    if isinstance(value, tuple | list | set | frozenset):
        items = [described(item) for item in value]
        return f"{type(value).__name__}({', '.join(sorted(items) if isinstance(value, set | frozenset) else items)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{described(key)}: {described(item)}' for key, item in value.items())}}}"
    if isinstance(value, types.FunctionType):
        cells = [described(cell.cell_contents) for cell in value.__closure__ or ()]
        return f"{value.__module__}.{value.__qualname__} {sources.digest(value.__module__)} ({', '.join(cells)}; {described(value.__defaults__)})"
    if isinstance(value, numba.types.Type):
        return f"{type(value).__module__}.{value}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {sources.digest(value.__module__) if sources.ours(value.__module__) else ''}"
    inner = getattr(value, "_defn", None) or getattr(value, "py_func", None)
    if inner is not None:
        return f"{type(value).__name__} {described(inner)}"
    if sources.ours(type(value).__module__):
        return f"{described(type(value))}({described(vars(value))})"
    raise UnknownError
