"""Numba's compiler as kernels use it: from a function to the optimized LLVM assembly of it and all that it calls.

By default Numba makes machine code of every function that it compiles, also of those that are only linked into others.
Here `linker` makes it, once for a whole kernel.
"""

# mypy: disable-error-code="misc,no-untyped-call,untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.registry import cpu_target
from numba.core.typed_passes import NativeLowering


class _Library(JITCodeLibrary):
    """Assembly that Numba's execution engine does not load."""

    def _finalize_final_module(self) -> None:
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    """Numba's lowering pass, into such a library."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        """Callers refer to the function by an object with an address, here 0, that only Python would call."""
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        lowered = state["cr"]
        name = make_function(lowered.fndesc.lookup_module(), "", "", 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(name, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=name)
        return True


class KernelCompiler(CompilerBase):
    """The compiler of kernels and of the functions that only kernels call."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, names: Any) -> None:
        flags.no_compile = True
        super().__init__(typing, target, library, args, result, flags, names)

    def define_pipelines(self) -> list[Any]:
        """Numba's passes, with `_Lowering` for its own."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(_Lowering if step is NativeLowering else step, said) for step, said in manager.passes]
        manager.finalize()
        return [manager]


def assembly(function: Callable[..., Any], signature: Any, options: dict[str, Any]) -> tuple[str, str]:
    """Optimized LLVM assembly of a function and all that it calls, and the function's name in it.

    Args:
        signature: Numba's signature of the arguments and the result; options: of ``numba.jit``.
    """
    flags, contexts = Flags(), (cpu_target.typing_context, cpu_target.target_context)
    cpu_target.options.parse_as_flags(flags, {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})
    with global_compiler_lock:
        compiled = compile_extra(
            *contexts, function, signature.args, signature.return_type, flags, {}, pipeline_class=KernelCompiler
        )
        compiled.library.finalize()
        return compiled.library.get_llvm_str(), compiled.fndesc.llvm_func_name
