"""Linker: turns the object code of a range kernel into position-independent bytes.

LLVM compiles Numba's optimized code for one kernel to an ELF object file. The linker concatenates its sections and
applies the relocations between them. Source: System V ABI, AMD64 supplement, relocation types.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import itertools
import struct
from typing import Any

from ..base.dataclass import dataclass
from ..base.process_cache import process_cache
from . import compile_cost, half_libcalls, isa
from .numba_lazy import binding

ENTRY = "candle_entry"
_ALIGN = 64
_JUMP = bytes.fromhex("ff2500000000")  # jmp [rip + 0], to the address that follows
_MATHEMATICS = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "fmod",
    "ldexp",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "pow",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "tgamma",
)
_INSTRUCTIONS = ("ceil", "floor", "fma", "nearbyint", "rint", "round", "roundeven", "trunc")
"""Functions that are instructions of processors with SSE4.1 and FMA."""
FUNCTIONS = frozenset(
    name.encode()
    for name in (
        "memcpy",
        "memmove",
        "memset",
        *(f"{name}{kind}" for name in (*_MATHEMATICS, *_INSTRUCTIONS) for kind in ("", "f")),
    )
)
"""C library functions that kernels may call."""
_MESSAGES = b".data.rel.ro"
LARGE = 700
"""LLVM instructions beyond which a function is called, not inlined, where loops are not unrolled: LLVM would optimize
it again as a part of each function that calls it, and once more as a part of the kernel."""
_WRITE, _ALLOC = 1, 2
_SYMTAB, _RELA, _NOBITS = 2, 4, 8
_PC32, _PLT32 = 2, 4


class OutsideError(Exception):
    """The code references a symbol outside of itself."""


def compile_object(text: str) -> bytes:
    """Optimize LLVM assembly with a function `ENTRY` and compile it to an object file without unused functions."""
    with compile_cost.stage("parse and link"):
        module = binding.parse_assembly(text)
    return compile_module(module, speed_level=2)


def compile_module(module: Any, speed_level: int = 3, unroll: bool = True) -> bytes:
    """Optimize an LLVM module with a function `ENTRY` and compile it to an object file without unused functions.
    Without `unroll`, loops are not unrolled and `LARGE` functions not inlined."""
    machine = target()
    if not unroll:
        _call_large_functions(module)
    for function in module.functions:
        if not function.is_declaration and function.name != ENTRY:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration and variable.linkage.name != "private":
            variable.linkage = "internal"
    options = binding.create_pipeline_tuning_options(speed_level)
    options.loop_unrolling = unroll
    builder = binding.create_pass_builder(machine, options)
    compile_cost.optimize(builder.getModulePassManager(), builder, module)
    if "f16c" not in isa.features():
        half_libcalls.link_into(module)
    with compile_cost.stage("emit"):
        return bytes(machine.emit_object(module))


def _call_large_functions(module: Any) -> None:
    for function in module.functions:
        instructions = (each for block in function.blocks for each in block.instructions)
        large = next(itertools.islice(instructions, LARGE, None), None) is not None
        if large and not any(b"alwaysinline" in each for each in function.attributes):
            function.add_function_attribute("noinline")


def load_assembly(text: str) -> tuple[Any, int]:
    """Load LLVM assembly with a function `ENTRY` into this process: the engine that owns the code, and the address."""
    object_file = binding.ObjectFileRef.from_data(compile_object(text))
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine())
    engine.add_object_file(object_file)
    engine.finalize_object()
    return engine, int(engine.get_function_address(ENTRY))


@process_cache
def target() -> Any:
    """LLVM target machine for position-independent code at the ISA level of this process."""
    return _target_machine()


def _target_machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    cpu, features = isa.target()
    return binding.Target.from_default_triple().create_target_machine(
        cpu, features, opt=3, reloc="pic", codemodel="small"
    )


@dataclass
class _Section:
    """A section of an ELF file; `place` is its offset in the linked code, -1 if it is left out."""

    name: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    place: int = -1
    messages: bool = False
    """Whether a section only holds Numba's exception messages: kernels store their addresses, and callers never read
    them."""


def link(data: bytes) -> bytes:
    """Link an object file: its loaded sections, concatenated and relocated.

    The result starts with the offset of the entry and the number of called functions, 4 bytes each; then follow the
    code and, for each function, its name (24 bytes) and the offset of its address (8 bytes).

    Raises:
        OutsideError: the code references other external symbols.
    """
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = [_Section(*struct.unpack_from("<IIQ8xQQIIQ", data, table + 64 * number)) for number in range(count)]
    names = sections[struct.unpack_from("<H", data, 62)[0]].offset
    code = bytearray()
    for section in sections:
        section.messages = data.startswith(_MESSAGES, names + section.name)
        if section.flags & _ALLOC and section.kind == 1 and section.size:
            code += bytes(-len(code) % max(_ALIGN, section.align))
            section.place = len(code)
            code += data[section.offset : section.offset + section.size]
    entry, calls = None, _Calls(code)
    for section in sections:
        if section.kind == _RELA and sections[section.info].place >= 0 and not sections[section.info].messages:
            _relocate(data, sections, section, code, calls)
        elif section.kind == _SYMTAB:
            entry = _place_of(data, sections, section, ENTRY.encode())
    if entry is None:
        raise OutsideError
    return struct.pack("<II", entry, len(calls.places)) + code + calls.table()


class _Calls:
    """Jump stubs for C library functions, appended to the code; `map_code` fills in the addresses."""

    def __init__(self, code: bytearray) -> None:
        self.code = code
        self.places: dict[bytes, int] = {}

    def place(self, name: bytes) -> int:
        """Offset of the jump stub of a function."""
        if name not in FUNCTIONS:
            raise OutsideError
        if name not in self.places:
            self.code += bytes(-len(self.code) % 16)
            self.places[name] = len(self.code)
            self.code += _JUMP + bytes(8)
        return self.places[name]

    def table(self) -> bytes:
        """Names of the functions and offsets of their addresses."""
        return b"".join(struct.pack("<24sQ", name, place + len(_JUMP)) for name, place in self.places.items())


def _relocate(data: bytes, sections: list[_Section], relocations: _Section, code: bytearray, calls: _Calls) -> None:
    base, symbols = sections[relocations.info].place, sections[relocations.link]
    for at in range(relocations.offset, relocations.offset + relocations.size, 24):
        offset, kind, symbol, addend = struct.unpack_from("<QIIq", data, at)
        name, target = _symbol(data, sections, symbols, symbol)
        if target is None and kind == _PLT32:
            target = calls.place(data[name : data.index(0, name)])
        if kind not in (_PC32, _PLT32) or target is None:
            raise OutsideError
        struct.pack_into("<i", code, base + offset, target + addend - (base + offset))


def _symbol(data: bytes, sections: list[_Section], symbols: _Section, number: int) -> tuple[int, int | None]:
    """Offset of a symbol's name, and the symbol's offset in the linked code, None if it is external."""
    name, index, value = struct.unpack_from("<I2xHQ", data, symbols.offset + 24 * number)
    inside = 0 < index < len(sections) and sections[index].place >= 0 and _fixed(sections[index])
    return sections[symbols.link].offset + name, sections[index].place + value if inside else None


def _fixed(section: _Section) -> bool:
    """Whether a section is constant at run time, and so is the memory that its addresses point to."""
    return section.messages or not section.flags & _WRITE


def _place_of(data: bytes, sections: list[_Section], symbols: _Section, name: bytes) -> int | None:
    for number in range(symbols.size // 24):
        at, place = _symbol(data, sections, symbols, number)
        if data[at : at + len(name) + 1] == name + b"\0":
            return place
    return None
