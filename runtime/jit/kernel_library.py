"""Kernel libraries: the LLVM module of each function that Numba lowers, linked for a kernel without optimizing it.

By default Numba optimizes and compiles a function's library, and again with each function that calls it. `linker`
optimizes and compiles a kernel with all that it calls, once.
"""

# mypy: disable-error-code="misc,no-untyped-call"
from __future__ import annotations

from typing import Any

from llvmlite import binding
from numba.core.cgutils import normalize_ir_text
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.runtime import rtsys

_REFERENCE_COUNTS = """
define linkonce_odr void @NRT_incref(ptr %memory) { ret void }
define linkonce_odr void @NRT_decref(ptr %memory) { ret void }
"""
"""Arrays in kernels are views of buffers that a plan holds: nothing counts references to them."""


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
