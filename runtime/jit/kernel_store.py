"""Kernel store: machine code of range kernels on disk; later processes neither compile nor import Numba.

A kernel is identified by its name, the sources of its module, and its closure. Code with external references is left to
Numba's cache; a marker file records that.
"""

from __future__ import annotations

import functools
import types
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..base.compile_progress import compile_time
from . import code_cache, compile_cost, source_digest

OUTSIDE = bytes(code_cache.WORD) + b"outside!"
"""Content of the marker file of a kernel with external references."""


class UnknownError(source_digest.ChangedError):
    """A closure value without a description that is stable across processes."""


class Kernel(Protocol):
    """A source of machine code: `RangeKernel` or `EmittedKernel`.

    Attributes:
        fingerprint_parts: what the code depends on, besides the sources of functions in it.
    """

    @property
    def name(self) -> str: ...

    @property
    def fingerprint_parts(self) -> tuple[Any, ...]: ...

    def code(self) -> bytes | None:
        """The position-independent code; slow. None if it has external references."""


def address_of(kernel: Kernel) -> int | None:
    """The address of a kernel's code, which is compiled and stored if necessary; None if it cannot be stored."""
    code = code_cache.read_code(path_of(kernel)) or store(kernel)
    return None if code is None or code == OUTSIDE else code_cache.map_code(code)


def store(kernel: Kernel) -> bytes | None:
    """Compile a kernel, store and return its code; None if it cannot be stored."""
    path = path_of(kernel)
    if path is None:
        return None
    with compile_time(1), compile_cost.kernel(kernel.name, path.name) as record:
        code = kernel.code() or OUTSIDE
        record(code)
    code_cache.write_code(path, code)
    return code


def path_of(kernel: Kernel) -> Path | None:
    """The file of a kernel's code, None if it cannot be stored."""
    return code_cache.cache_file(kernel.name, lambda: fingerprint(kernel.fingerprint_parts))


def fingerprint(value: Any) -> str:
    """A string that is equal in every process for equal values; functions are described by their source and closure.
    Recursion depth is small."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.dtype):
        return repr(value)
    if isinstance(value, np.generic):
        return f"{value.dtype}:{value!r}"
    if isinstance(value, tuple | list | set | frozenset):
        items = [repr(item) if type(item) is int else fingerprint(item) for item in value]
        return f"{type(value).__name__}({', '.join(sorted(items) if isinstance(value, set | frozenset) else items)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{fingerprint(key)}: {fingerprint(item)}' for key, item in value.items())}}}"
    if isinstance(value, types.FunctionType):
        cells = [fingerprint(cell.cell_contents) for cell in value.__closure__ or ()]
        source = f"{value.__module__}.{value.__qualname__} {source_digest.digest(value.__module__)}"
        return f"{source} ({', '.join(cells)}; {fingerprint(value.__defaults__)})"
    if isinstance(value, functools.partial):
        return f"partial({fingerprint(value.func)}, {fingerprint(value.args)}, {fingerprint(value.keywords)})"
    if isinstance(value, types.BuiltinFunctionType) and value.__module__ is not None:
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, type):
        digest = source_digest.digest(value.__module__) if source_digest.ours(value.__module__) else ""
        return f"{value.__module__}.{value.__qualname__} {digest}"
    if source_digest.ours(type(value).__module__):
        return f"{fingerprint(type(value))}({fingerprint(vars(value))})"
    raise UnknownError
