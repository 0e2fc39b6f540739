"""Atomic words that the threads of a kernel share, and loops in which they wait for each other."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import ctypes
import sys
from typing import Any

from llvmlite import ir

from .numba_lazy import cgutils, emitted, types
from .range_kernel import inner

WORD = ir.IntType(64)
SPIN_LIMIT = 2000
"""Iterations of a spin loop before the thread yields its core."""


@emitted(lambda: types.int64(types.int64, types.int64))
def atomic_add(build: Any, address: Any, value: Any) -> Any:
    return build.atomic_rmw("add", build.inttoptr(address, WORD.as_pointer()), value, "seq_cst")


@emitted(lambda: types.int64(types.int64))
def atomic_load(build: Any, address: Any) -> Any:
    return build.load_atomic(build.inttoptr(address, WORD.as_pointer()), "seq_cst", 8)


@emitted(lambda: types.void(types.int64, types.int64))
def atomic_store(build: Any, address: Any, value: Any) -> Any:
    build.store_atomic(value, build.inttoptr(address, WORD.as_pointer()), "seq_cst", 8)


@emitted(lambda: types.boolean(types.int64, types.int64, types.int64))
def swapped(build: Any, address: Any, expected: Any, value: Any) -> Any:
    """Put `value` in place of `expected`; whether it was there."""
    pair = build.cmpxchg(build.inttoptr(address, WORD.as_pointer()), expected, value, "seq_cst", "seq_cst")
    return build.extract_value(pair, 1)


@emitted(lambda: types.void())
def _pause(build: Any) -> Any:
    if build.module.triple.startswith("x86_64"):
        build.call(
            cgutils.get_or_insert_function(build.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), []
        )


@emitted(lambda: types.void(types.int64, types.int64, types.int64))
def call_system(build: Any, function: Any, first: Any, second: Any) -> Any:
    """Call a function of the system by address with an int and an address; one that takes none leaves them alone."""
    kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), WORD])
    build.call(build.inttoptr(function, kind.as_pointer()), [build.trunc(first, ir.IntType(32)), second])


def system_address(name: str) -> int:
    """The address of a C library or Windows function, 0 if it does not exist."""
    library = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 if hasattr(library, name) else 0


GIVE_WAY = system_address("SwitchToThread" if sys.platform == "win32" else "sched_yield")
"""The address of the function by which a thread yields its core, an argument of kernels that wait."""


@inner
def spin(turn: int, give_way: int) -> int:
    """One turn of a loop that waits for another thread; the number of the next one."""
    if turn < SPIN_LIMIT:
        _pause()
    else:
        call_system(give_way, 0, 0)
    return turn + 1
