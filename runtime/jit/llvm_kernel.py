"""Range kernels emitted as LLVM IR: compiled without Numba, cached like Numba's kernels."""

from __future__ import annotations

import functools
import threading
from typing import Any

from llvmlite import ir

from ..base.compile_progress import compile_time
from . import compile_cost
from .kernel_arguments import Address, Parameters
from .kernel_store import address_of
from .numba_lazy import binding

WORD = ir.IntType(64)
_compiling = threading.RLock()


class EmittedKernel:
    """A range kernel whose instructions a function emits.

    Args:
        name: says what it is, together with what `write` closes over.
        write: gets an `ir.IRBuilder`, the values of the part and the number of parts, and those of the kernel's
            arguments, each a word: by keyword, or as one `arguments`.
        arguments: the class of a NamedTuple, None for keywords.
    """

    def __init__(self, name: str, write: Any, arguments: Any = None) -> None:
        self.name = name
        self.write = write
        self.arguments = arguments

    @property
    def fingerprint_parts(self) -> tuple[Any, ...]:
        """The inputs of the source digest."""
        return (self.name, self.write)

    @functools.cached_property
    def address(self) -> int:
        """Address of the machine code."""
        with _compiling:
            kept = address_of(self)
            if kept is not None:
                return kept
            from .linker import load_assembly

            with compile_time():
                self._engine, address = load_assembly(self.text())
            return address

    @functools.cached_property
    def parameters(self) -> Parameters:
        """Its named arguments."""
        if self.arguments is not None:
            return Parameters(self.name, dict.fromkeys(self.arguments._fields, Address))
        code = self.write.__code__
        return Parameters(
            self.name,
            dict.fromkeys(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount], Address),
        )

    def code(self) -> bytes | None:
        """The code from `linker.link`, None if it has external references."""
        from .linker import OutsideError, compile_object, link

        try:
            with compile_cost.stage("lower"):
                text = self.text()
            code = compile_object(text)
            with compile_cost.stage("relocate"):
                return link(code)
        except OutsideError:
            return None

    def text(self) -> str:
        """The kernel as LLVM assembly."""
        from .linker import ENTRY

        module = ir.Module(self.name)
        module.triple = binding.get_default_triple()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD.as_pointer(), WORD, WORD]), ENTRY)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        block, part, parts = function.args
        places = (builder.gep(block, [WORD(position)]) for position in range(len(self.parameters.kinds)))
        words = {name: builder.load(place) for name, place in zip(self.parameters.kinds, places, strict=True)}
        if self.arguments is not None:
            self.write(builder, part, parts, self.arguments(**words))
        else:
            self.write(builder, part, parts, **words)
        builder.ret_void()
        return str(module)

    def __repr__(self) -> str:
        return self.name
