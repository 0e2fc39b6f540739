"""Atomic words that the threads of a kernel share, and loops in which they wait for each other."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import ctypes
import sys
from typing import Any

from llvmlite import ir

from .numba_lazy import cgutils, intrinsic, types
from .range_kernel import inner

WORD = ir.IntType(64)
SPIN_LIMIT = 2000
"""Iterations of a spin loop before the thread yields its core."""


@intrinsic
def atomic_add(typing: Any, address: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], WORD.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), lower


@intrinsic
def atomic_load(typing: Any, address: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), lower


@intrinsic
def atomic_store(typing: Any, address: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store_atomic(args[1], builder.inttoptr(args[0], WORD.as_pointer()), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), lower


@intrinsic
def swapped(typing: Any, address: Any, expected: Any, value: Any) -> Any:
    """Put `value` in place of `expected`; whether it was there."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pair = builder.cmpxchg(builder.inttoptr(args[0], WORD.as_pointer()), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), lower


@intrinsic
def _pause(typing: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if builder.module.triple.startswith("x86_64"):
            builder.call(
                cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
                ),
                [],
            )
        return context.get_dummy_value()

    return types.void(), lower


@intrinsic
def call_system(typing: Any, function: Any, first: Any, second: Any) -> Any:
    """Call a function of the system by address with an int and an address; one that takes none leaves them alone."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), WORD])
        build = builder
        build.call(build.inttoptr(args[0], kind.as_pointer()), [build.trunc(args[1], ir.IntType(32)), args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), lower


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
