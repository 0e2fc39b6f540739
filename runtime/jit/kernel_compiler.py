"""Numba's front end as kernels use it: from a function to the LLVM module of it and all that it calls.

Passes that kernels do not need are left out: those for closures, comprehensions, inlining on Numba's level, array
expressions, reference counting and annotations. Signatures of built-in functions are remembered: Numba tries dozens of
templates each time it types ``a + b``.

By default Numba optimizes and compiles a function's library, and again with each function that calls it. Here the
modules are linked unoptimized; `linker` optimizes and compiles a kernel with all that it calls, once.
"""

# mypy: disable-error-code="misc,no-untyped-call,untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding
from numba._dynfunc import make_function
from numba.core import typed_passes, types, untyped_passes
from numba.core.cgutils import normalize_ir_text
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.typing import Context

from ..base.process_cache import owned, process_cache
from . import compile_cost
from .lean_numba import lean_passes

_REFERENCE_COUNTS = """
define linkonce_odr void @NRT_incref(ptr %memory) { ret void }
define linkonce_odr void @NRT_decref(ptr %memory) { ret void }
"""
"""Arrays in kernels are views of buffers that a plan holds: nothing counts references to them."""
_signatures: dict[Any, Any] = owned({})


@process_cache
def kernel_typing(context: Any) -> Any:
    """The typing context of kernels that shares all state with a context of Numba's: one for each, since compiled
    functions are found by their context."""
    return _KernelTyping(context)


class _KernelTyping(Context):
    """Numba's typing context, with the signatures of built-in functions remembered by argument types."""

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a function for argument types."""
        key = func, tuple(args)
        try:
            signature = None if kws else _signatures.get(key)
        except TypeError:  # the types of literal slices cannot be hashed
            return super().resolve_function_type(func, args, kws)
        if signature is None:
            signature = super().resolve_function_type(func, args, kws)
            if not kws and _is_builtin(func, signature):
                _signatures[key] = signature
        return signature


def _is_builtin(function: Any, signature: Any) -> bool:
    """Whether the signature depends on argument types alone: those of functions that are compiled for a caller depend
    on its options, too."""
    return (
        signature is not None
        and isinstance(function, types.Function)
        and function.get_impl_key(signature) is function.typing_key
    )


@register_pass(mutates_CFG=True, analysis_only=False)
class BranchesOfAssignments(untyped_passes.DeadBranchPrune):
    """Dead branches of conditions on values that are assigned once, which SSA finds."""

    _name = "dead_branches_of_assignments"


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):
    """Numba's lowering pass, into a `KernelLibrary`."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        """Callers refer to the function by an object with an address, here 0, that only Python would call."""
        state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        lowered = state["cr"]
        name = make_function(lowered.fndesc.lookup_module(), "", "", 0, lowered.env, (state.library,))
        state.targetctx.insert_user_function(name, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=name)
        return True


PASSES = {
    untyped_passes.TranslateByteCode: "translate",
    untyped_passes.FixupArgs: "translate",
    untyped_passes.IRProcessing: "translate",
    untyped_passes.RewriteSemanticConstants: "translate",
    untyped_passes.DeadBranchPrune: "translate",
    untyped_passes.GenericRewrites: "translate",
    untyped_passes.ReconstructSSA: "translate",
    BranchesOfAssignments: "translate",
    typed_passes.NopythonTypeInference: "type",
    typed_passes.PreLowerStripPhis: "lower",
    _Lowering: "lower",
    typed_passes.NoPythonBackend: "lower",
}
"""Numba's passes for kernels, in order, and the stage of `compile_cost` that each belongs to."""


class _Passes(PassManager):
    """Passes without the events that Numba reports of each."""

    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:  # noqa: N802 (Numba's name)
        pss.analysis = self._analysis
        with compile_cost.stage(PASSES[type(pss)]):
            pss.run_pass(internal_state)


class KernelCompiler(CompilerBase):
    """The compiler of kernels and of the functions that only kernels call."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, names: Any) -> None:
        flags.no_compile, flags.nrt, flags.enable_pyobject = True, False, False
        super().__init__(kernel_typing(typing), target, library, args, result, flags, names)

    def define_pipelines(self) -> list[Any]:
        """`PASSES` alone."""
        manager = _Passes("kernel")
        for each in PASSES:
            manager.add_pass(each, each._name)
        manager.finalize()
        return [manager]


def lower(function: Callable[..., Any], signature: Any, options: dict[str, Any]) -> tuple[Any, str]:
    """An LLVM module of a function and all that it calls, not optimized, and the function's name in it.

    Args:
        signature: Numba's signature of the arguments and the result; options: of ``numba.jit``.
    """
    flags, contexts = Flags(), (cpu_target.typing_context, cpu_target.target_context)
    cpu_target.options.parse_as_flags(flags, {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})
    with global_compiler_lock, lean_passes():
        compiled = compile_extra(
            *contexts, function, signature.args, signature.return_type, flags, {}, pipeline_class=KernelCompiler
        )
        with compile_cost.stage("parse and link"):
            return compiled.library.linked(), compiled.fndesc.llvm_func_name


class KernelLibrary(JITCodeLibrary):
    """The LLVM assembly of one function, and the libraries of the functions that it calls."""

    def __init__(self, codegen: Any, name: str) -> None:
        CodeLibrary.__init__(self, codegen, name)
        self._callees: list[CodeLibrary] = []
        self._texts: list[str] = []
        self._module: Any = None

    def add_ir_module(self, ir_module: Any) -> None:
        """Keep the text of a module."""
        self._texts.append(normalize_ir_text(str(ir_module)))

    def add_linking_library(self, library: CodeLibrary) -> None:
        """Keep a callee's library; Numba's reference counting is left out."""
        if library is not getattr(rtsys, "_library", None):
            self._callees.append(library)

    def finalize(self) -> None:
        """Kernels are optimized after linking."""
        self._finalized = True

    def linked(self) -> Any:
        """A new module of the function and all that it calls."""
        linked, pending, seen = binding.parse_assembly(_REFERENCE_COUNTS), [self], {self}
        while pending:
            library = pending.pop()
            ours = isinstance(library, KernelLibrary)
            linked.link_in(library._parsed() if ours else library._get_module_for_linking(), preserve=True)
            callees = dict.fromkeys(library._callees if ours else ()).keys() - seen
            seen |= callees
            pending += callees
        return linked

    def _parsed(self) -> Any:
        """The function's module, kept for the next kernel that calls it."""
        if self._module is None:
            self._module, *others = map(binding.parse_assembly, self._texts)
            for other in others:
                self._module.link_in(other)
        return self._module

    def _get_module_for_linking(self) -> Any:
        """For Numba's own libraries that call the function."""
        linked = self.linked()
        for function in linked.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
        return linked
