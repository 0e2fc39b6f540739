"""Range kernels compiled by Numba: exact arithmetic options, and a disk cache keyed by source digest."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from . import numba_lazy, source_digest
from .code_cache import cache
from .kernel_arguments import Parameters, parameters_of
from .kernel_store import address_of

F = TypeVar("F", bound=Callable[..., Any])

EXACT = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""IEEE arithmetic as written: no reordering, no contraction, no exception on division by zero."""

INNER = {**EXACT, "no_cfunc_wrapper": True}
"""Of functions that only kernels call."""
_compiling = threading.RLock()


def inner(function: F) -> F:
    """Mark a function that kernels call; it stays a plain Python function outside of them."""
    return numba_lazy.jitable(function, **INNER)


def inlined(function: F) -> F:
    """As `inner`, but copied into its callers however long it is, so that their loops become vector code."""
    return numba_lazy.jitable(function, forceinline=True, **INNER)


class RangeKernel:
    """A function that computes one part of a step's output: its named arguments (see `arguments`), then part and parts.

    Its machine code is called by address with an argument block, part and parts. It is compiled, or loaded from the
    disk cache, when its address is first asked for.
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
            from .linker import loaded

            self._compiled = self._by_numba()
            self._engine, address = loaded(self._entry(f"inttoptr (i64 {_native_address(self._compiled)} to ptr)"))
        return address

    @functools.cached_property
    def parameters(self) -> Parameters:
        """Its named arguments."""
        return parameters_of(self.function)

    @functools.cached_property
    def call(self) -> Callable[[int, int, int], None]:
        """Runs the machine code from Python without the GIL: address of the argument block, part, parts."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.address)

    def block(self, **arguments: int) -> Any:
        """An argument block for `call`, whose fields are the arguments; for kernels that take numbers and addresses
        alone."""
        assert self.parameters.plain
        self.parameters.block(arguments)
        return self._block(**arguments)

    @functools.cached_property
    def _block(self) -> type[ctypes.Structure]:
        return type(
            self.name, (ctypes.Structure,), {"_fields_": [(name, ctypes.c_int64) for name in self.parameters.kinds]}
        )

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
        from .linker import OutsideError, joined, object_of

        compiled = self._compiled_now()
        text = compiled.inspect_llvm() + self._entry(f'@"{_native_name(compiled)}"')
        try:
            return joined(object_of(text, optimized=True))
        except (RuntimeError, OutsideError):
            return None

    def _entry(self, callee: str) -> str:
        from .linker import ENTRY

        return self.parameters.entry(ENTRY, callee)

    def _compiled_now(self, cache: bool = False) -> Any:
        """The function as Numba's ``CFunc``."""
        with _compiling:
            numba = numba_lazy.numba()
            return numba.cfunc(self.parameters.signature(numba.types), cache=cache, **{**EXACT, **self.options})(
                self.function
            )

    def _by_numba(self) -> Any:
        """The function by way of Numba's cache, in a folder for its sources, since Numba looks at one file only."""
        folder, config = cache_folder(self.function.__module__), numba_lazy.numba().config
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


def _native_name(compiled: Any) -> str:
    """The symbol of the function in a ``CFunc``, which its wrapper for C calls."""
    return str(compiled.native_name.removeprefix("cfunc."))


def _native_address(compiled: Any) -> int:
    return int(compiled._library.get_pointer_to_function(_native_name(compiled)))


def cache_folder(module: str) -> Path | None:
    """Where Numba keeps the machine code of a module's kernels, or None where that is not possible."""
    try:
        folder = cache() / "kernels" / source_digest.digest(module)[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, source_digest.ChangedError):
        return None
    return folder if os.access(folder, os.W_OK) else None
