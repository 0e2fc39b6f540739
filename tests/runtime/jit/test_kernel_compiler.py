"""Kernels through Numba's front end: modules that hold what a kernel calls, and no machine code by Numba."""

from __future__ import annotations

from candle_convert.runtime.jit import numba_lazy
from candle_convert.runtime.jit.address import f32, share
from candle_convert.runtime.jit.kernel_arguments import Address
from candle_convert.runtime.jit.kernel_compiler import lower
from candle_convert.runtime.jit.range_kernel import inner, range_kernel


@inner
def three_more(x):
    return x + 3


@range_kernel
def add_three(x: Address, count: int, part: int, parts: int) -> None:
    x = f32(x)
    first, last = share(count, part, parts)
    for index in range(first, last):
        x[index] = three_more(x[index])


def test_the_module_is_whole_and_nothing_else_is_compiled():
    from numba.core.registry import cpu_target

    signature = add_three.parameters.signature(numba_lazy.numba().types)
    known = cpu_target.target_context.codegen()._engine._defined_symbols
    before = set(known)
    module, name = lower(add_three.function, signature, {})
    defined = {function.name for function in module.functions if not function.is_declaration}
    assert name in defined
    assert any("three_more" in symbol for symbol in defined)
    assert not {symbol for symbol in known - before if "three" in symbol}
    assert add_three.code() is not None
