"""Kernel store: machine code of range kernels for later processes, which then neither compile nor import Numba.

A kernel is known by its name, the sources of its module, and what it closes over. What needs something from outside its
own code is left to Numba's cache, and a note of that is kept.
"""

from __future__ import annotations

import functools
import types
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import code_cache, source_digest

OUTSIDE = bytes(code_cache.WORD) + b"outside!"
"""Stands in a file for the code of a kernel that needs something from outside."""


class UnknownError(source_digest.ChangedError):
    """A value that has no description that another process would give too."""


class Kernel(Protocol):
    """What makes machine code.

    Attributes:
        made_of: what its code depends on, besides the sources of functions in it.
    """

    @property
    def name(self) -> str: ...

    @property
    def made_of(self) -> tuple[Any, ...]: ...

    def code(self) -> bytes | None:
        """The code, which takes long; None where it needs something from outside."""


def address_of(kernel: Kernel) -> int | None:
    """The address of a kernel's code, which is compiled and kept where this machine has not done so; None where it
    cannot be kept."""
    code = code_cache.read_code(path_of(kernel)) or store(kernel)
    return None if code is None or code == OUTSIDE else code_cache.placed(code)


def store(kernel: Kernel) -> bytes | None:
    """Compile a kernel, store and return its code; None if it cannot be stored."""
    path = path_of(kernel)
    if path is None:
        return None
    code = kernel.code() or OUTSIDE
    code_cache.write_code(path, code)
    return code


def path_of(kernel: Kernel) -> Path | None:
    """The file of a kernel's code, None where it cannot be kept."""
    return code_cache.file_of(kernel.name, lambda: described(kernel.made_of))


def described(value: Any) -> str:
    """A text that is the same for the same value in every process, for functions with what they close over. What is
    nested is small."""
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
        source = f"{value.__module__}.{value.__qualname__} {source_digest.digest(value.__module__)}"
        return f"{source} ({', '.join(cells)}; {described(value.__defaults__)})"
    if isinstance(value, functools.partial):
        return f"partial({described(value.func)}, {described(value.args)}, {described(value.keywords)})"
    if isinstance(value, types.BuiltinFunctionType) and value.__module__ is not None:
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, type):
        digest = source_digest.digest(value.__module__) if source_digest.ours(value.__module__) else ""
        return f"{value.__module__}.{value.__qualname__} {digest}"
    if source_digest.ours(type(value).__module__):
        return f"{described(type(value))}({described(vars(value))})"
    raise UnknownError
