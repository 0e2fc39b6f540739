"""Range kernels compiled by Numba: exact arithmetic options, and a disk cache keyed by source digest."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

from ..base.compile_progress import compile_time
from . import compile_cost, numba_lazy, source_digest
from .code_cache import cache
from .kernel_arguments import Parameters, parameters_of
from .kernel_store import address_of

F = TypeVar("F", bound=Callable[..., Any])

EXACT = {"error_model": "numpy", "boundscheck": False, "fastmath": False}
"""IEEE arithmetic as written: no reordering, no contraction, no exception on division by zero."""

INNER = {**EXACT, "no_cfunc_wrapper": True}
"""Options of functions that only kernels call."""
_compiling = threading.RLock()


def inner(function: F) -> F:
    """Decorator of functions that kernels call; from Python they stay plain functions."""
    return numba_lazy.jitable(function, **INNER)


def inlined(function: F) -> F:
    """As `inner`, but always inlined, so that loops of the caller can be vectorized."""
    return numba_lazy.jitable(function, forceinline=True, **INNER)


class RangeKernel:
    """A function that computes one part of a step's output from its named arguments (see `kernel_arguments`), part and
    parts.

    The machine code is called by address with a native block, part and parts. It is compiled, or loaded from the disk
    cache, on first use of the address.
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
            from .linker import load_assembly

            with compile_time():
                self._compiled = self._by_numba()
                self._engine, address = load_assembly(
                    self._entry(f"inttoptr (i64 {_native_address(self._compiled)} to ptr)")
                )
        return address

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The named arguments."""
        return parameters_of(self.function)

    @functools.cached_property
    def call(self) -> Callable[[int, int, int], None]:
        """Call the machine code from Python without the GIL: address of the native block, part, parts."""
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self.address)

    def block(self, **arguments: int) -> Any:
        """A native block for `call`; for kernels whose arguments are integers and addresses."""
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
        """The function's name."""
        return self.function.__name__

    @property
    def fingerprint_parts(self) -> tuple[Any, ...]:
        """The inputs of the source digest."""
        return (self.function, self.options)

    def code(self) -> bytes | None:
        """The code from `linker.link`, None if it has external references."""
        from .linker import OutsideError, compile_module, link

        with _compiling:
            with compile_cost.stage("import"):
                signature = self.parameters.signature(numba_lazy.numba().types)
                from .kernel_compiler import lower

            module, callee = lower(self.function, signature, {**EXACT, **self._numba_options})
        try:
            module.link_in(numba_lazy.binding.parse_assembly(self._entry(f'@"{callee}"')))
            code = compile_module(module, unroll=self.options.get("unroll", True))
            with compile_cost.stage("relocate"):
                return link(code)
        except (RuntimeError, OutsideError):
            return None

    @property
    def _numba_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name != "unroll"}

    def _entry(self, callee: str) -> str:
        from .linker import ENTRY

        return self.parameters.entry(ENTRY, callee)

    def _by_numba(self) -> Any:
        """The function as Numba's ``CFunc``, compiled through Numba's disk cache, in a folder per source digest:
        Numba's own key is a single file."""
        on_disk = os.path.isfile(self.function.__code__.co_filename)  # Numba dates its entries by the source's file
        folder = cache_folder(self.function.__module__) if on_disk else None
        numba = numba_lazy.numba()
        config, signature = numba.config, self.parameters.signature(numba.types)
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder or before)
        try:
            options = {**EXACT, **self._numba_options}
            return numba.cfunc(signature, cache=folder is not None, **options)(self.function)
        finally:
            config.CACHE_DIR = before

    def __repr__(self) -> str:
        return self.name


@overload
def range_kernel(function: Callable[..., None]) -> Any: ...
@overload
def range_kernel(**options: Any) -> Callable[[Callable[..., None]], Any]: ...
def range_kernel(function: Callable[..., None] | None = None, **options: Any) -> Any:
    """Make a range kernel; options override `EXACT`, for example ``fastmath={"contract"}``. Without ``unroll`` LLVM
    unrolls no loops and inlines no large functions: half the code, and a third of the time to compile it, of kernels
    whose inner loops are emitted as they shall be."""
    return RangeKernel(function, options) if function is not None else lambda inner: RangeKernel(inner, options)


def _native_address(compiled: Any) -> int:
    """The address of the compiled function that a ``CFunc`` wraps."""
    return int(compiled._library.get_pointer_to_function(compiled.native_name.removeprefix("cfunc.")))


def cache_folder(module: str) -> Path | None:
    """The folder of Numba's cache for a module's kernels, None if it cannot be cached."""
    try:
        folder = cache() / "kernels" / source_digest.digest(module)[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, source_digest.ChangedError):
        return None
    return folder if os.access(folder, os.W_OK) else None
