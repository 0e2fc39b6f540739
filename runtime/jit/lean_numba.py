"""Numba without what kernels never use: its compile contexts load fewer modules, and its passes skip analyses.

Contexts are reduced in processes that compile kernels and end (`import_lean`), since code of users may need all of
Numba. Analyses are skipped while a kernel is compiled (`lean_passes`), under Numba's compiler lock.
"""

# mypy: disable-error-code="misc,no-untyped-call"
from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

UNUSED = ("scipy", "yaml", "colorama")
"""Packages that Numba imports if they are there: for linear algebra, a configuration file, and colors of messages that
it writes while it types, whether it shows them or not."""
IMPLEMENTATIONS = (
    "cpython.builtins",
    "cpython.iterators",
    "cpython.numbers",
    "cpython.rangeobj",
    "cpython.slicing",
    "cpython.tupleobj",
    "core.optional",
    "misc.literal",
    "np.arrayobj",
)
"""Modules of Numba that implement what kernels are written in."""
REGISTRIES = ("cpython.mathimpl", "np.npyimpl")
TYPINGS = ("core.typing.mathdecl", "core.typing.npydecl", "core.typing.enumdecl")


def import_lean() -> None:
    """Import what kernels need of Numba into this process, which only compiles kernels; nothing if it has Numba."""
    if "numba" in sys.modules:
        return
    for name in UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    from numba.core import cpu, entrypoints, fastmathpass, typing

    def load_implementations(context: Any) -> None:
        for name in IMPLEMENTATIONS:
            importlib.import_module(f"numba.{name}")
        for name in REGISTRIES:
            context.install_registry(importlib.import_module(f"numba.{name}").registry)

    def load_types(context: Any) -> None:
        for name in TYPINGS:
            context.install_registry(importlib.import_module(f"numba.{name}").registry)

    def post_lowering(context: Any, module: Any, library: Any) -> None:
        if context.fastmath:
            fastmathpass.rewrite_module(module, context.fastmath)

    entrypoints._already_initialized = True
    cpu.CPUContext.load_additional_registries = load_implementations
    cpu.CPUContext.post_lowering = post_lowering  # does not link Numba's runtime, which is not compiled then
    typing.Context.load_additional_registries = load_types


@contextlib.contextmanager
def lean_passes() -> Iterator[None]:
    """Skip the analysis of live variables, which only generators and reference counting need, look up whether a
    function takes a location without making its signature, and let functions return arrays that nothing counts, such as
    those of ``carray``."""
    from numba.core import base, postproc, typed_passes

    if not hasattr(base, "_has_loc") or not hasattr(postproc, "VariableLifetime"):  # another version of Numba
        yield
        return
    whole, has_loc = postproc.PostProcessor.run, base._has_loc
    inference = typed_passes.NopythonTypeInference.run_pass

    def infer(self: Any, state: Any) -> Any:
        before, state.targetctx.enable_nrt = state.targetctx.enable_nrt, True
        try:
            return inference(self, state)
        finally:
            state.targetctx.enable_nrt = before

    def run(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        if emit_dels or self.func_ir.is_generator:
            whole(self, emit_dels, extend_lifetimes)
            return
        self.func_ir.blocks = postproc.transforms.canonicalize_cfg(self.func_ir.blocks)
        self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
        self.func_ir.generator_info = None

    def takes_location(function: Callable[..., Any]) -> bool:
        if type(function) is not FunctionType or hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):
            return bool(has_loc(function))
        code = function.__code__
        return "loc" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    postproc.PostProcessor.run, base._has_loc = run, takes_location
    typed_passes.NopythonTypeInference.run_pass = infer
    try:
        yield
    finally:
        postproc.PostProcessor.run, base._has_loc = whole, has_loc
        typed_passes.NopythonTypeInference.run_pass = inference
