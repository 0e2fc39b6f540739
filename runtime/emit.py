"""Range kernels that are written as LLVM instructions: compiled without Numba, and kept on the disk as those are that Numba compiles."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .compiler import binding
from .keeping import address_of

WORD = ir.IntType(64)
_compiling = threading.RLock()


class EmittedKernel:
    """A range kernel ``(args, part, parts)`` whose instructions a function adds to a builder.

    Args:
        name: says what it is, together with what `write` closes over.
        write: gets an `ir.IRBuilder` and the values of the argument block's address, the part and the number of parts.
    """

    def __init__(self, name: str, write: Callable[[Any, Any, Any, Any], None]) -> None:
        self.name = name
        self.write = write

    @property
    def made_of(self) -> tuple[Any, ...]:
        """What its code depends on."""
        return (self.name, self.write)

    @functools.cached_property
    def address(self) -> int:
        """Address of the machine code."""
        with _compiling:
            kept = address_of(self)
            if kept is not None:
                return kept
            from .linking import ENTRY, object_of, target

            self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target())
            self._engine.add_object_file(binding.ObjectFileRef.from_data(object_of(self.text())))
            self._engine.finalize_object()
            return int(self._engine.get_function_address(ENTRY))

    def code(self) -> bytes | None:
        """Its code as `linking.joined` gives it, None where it needs something from outside."""
        from .linking import OutsideError, joined, object_of

        try:
            return joined(object_of(self.text()))
        except OutsideError:
            return None

    def text(self) -> str:
        """The kernel as LLVM assembly."""
        from .linking import ENTRY

        module = ir.Module(self.name)
        module.triple = binding.get_default_triple()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD.as_pointer(), WORD, WORD]), ENTRY)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.write(builder, *function.args)
        builder.ret_void()
        return str(module)

    def __repr__(self) -> str:
        return self.name
