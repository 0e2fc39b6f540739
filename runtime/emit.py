"""Range kernels that are written as LLVM instructions: compiled without Numba, and kept on the disk by their names."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding, ir

from . import sources
from .keeping import described
from .kernel import cache_folder

WORD = ir.IntType(64)
ENTRY = "kernel"
_lock = threading.RLock()
_engines: list[Any] = []


class EmittedKernel:
    """A range kernel ``(args, part, parts)`` whose instructions a function adds to a builder.

    Args:
        name: no two kernels have the same.
        write: gets an `ir.IRBuilder` and the values of the argument block's address, the part and the number of parts.
    """

    def __init__(self, name: str, write: Callable[[Any, Any, Any, Any], None]) -> None:
        self.name = name
        self.write = write

    @functools.cached_property
    def address(self) -> int:
        """Address of the machine code."""
        with _lock:
            return _placed(self._object())

    def _object(self) -> bytes:
        """The object file, from the disk where it was compiled before."""
        path = self._file
        held = _read(path)
        if held is not None:
            return held
        made = _compiled(self.text())
        if path is not None:
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(hashlib.sha256(made).digest() + made)
            os.replace(fresh, path)
        return made

    @property
    def _file(self) -> Path | None:
        folder = cache_folder(self.write.__module__)
        try:
            facts = f"{described(self.write)} {_platform()}"
        except sources.ChangedError:
            return None
        return None if folder is None else folder / f"{self.name}.{hashlib.sha256(facts.encode()).hexdigest()[:32]}.o"

    def text(self) -> str:
        """The kernel as LLVM assembly."""
        module = ir.Module(self.name)
        module.triple = binding.get_default_triple()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD.as_pointer(), WORD, WORD]), ENTRY)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.write(builder, *function.args)
        builder.ret_void()
        return str(module)

    def __repr__(self) -> str:
        return self.name


@functools.cache
def features() -> frozenset[str]:
    """What the processor has, by LLVM's names."""
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


@functools.cache
def _machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), opt=3, reloc="pic", codemodel="small")


def _compiled(text: str) -> bytes:
    """The object file of a module."""
    machine = _machine()
    module = binding.parse_assembly(text)
    module.verify()
    passes = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    return bytes(machine.emit_object(module))


@functools.cache
def _platform() -> str:
    facts = (llvmlite.__version__, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _read(path: Path | None) -> bytes | None:
    """An object file that is there and whole."""
    if path is None or not path.exists():
        return None
    data = path.read_bytes()
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def _placed(code: bytes) -> int:
    machine = _machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(ENTRY))
