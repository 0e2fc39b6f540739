"""ISA levels (generic, avx2, avx512, amx) and the instructions that each kernel family uses on this processor.

``CANDLE_CPU=generic|avx2|avx512|amx`` forces one. `PATHS` says what each kind of kernel does with the instructions of
the level. Kernels choose by `KERNEL_FEATURES` alone, so that a level and those features name all machines that run the
same kernels: a `Variant`. ``CANDLE_CPU_VARIANT`` compiles for all machines of a variant, not for this one.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys

from ..base.dataclass import dataclass
from ..base.errors import UsageError
from ..base.process_cache import process_cache

VARIABLE = "CANDLE_CPU"
VARIANT_VARIABLE = "CANDLE_CPU_VARIANT"
VECTOR_LANES = 16
"""Vector lanes that kernels are written for at every level; LLVM splits vectors for narrower registers."""
_ARCH_PRCTL, _REQUEST, _TILES = 158, 0x1023, 18
"""Linux x86-64 system call arch_prctl, its permission request, and the AMX tile data feature. Source:
Documentation/arch/x86/xstate.rst."""


@dataclass(frozen=True)
class Level:
    """An ISA level.

    Attributes:
        needs: required processor features, by LLVM's names.
        excluded: name prefixes of features that kernels of the level do not use.
        cpu: LLVM's processor name to compile for if the machine has more features, None for the machine's own.
    """

    name: str
    needs: frozenset[str]
    excluded: tuple[str, ...]
    cpu: str | None


@dataclass(frozen=True)
class KernelPath:
    """The instruction variants of a kernel family.

    Attributes:
        variants: name and required features of each variant, best first.
    """

    kernels: str
    variants: tuple[tuple[str, frozenset[str]], ...]

    def selected(self) -> str:
        """The best variant that the level supports."""
        return next(name for name, needs in self.variants if needs <= features())


_AVX2 = frozenset(("ssse3", "avx2", "fma", "f16c"))
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
_VNNI = _AVX512 | {"avx512vnni"}
_AMX = _VNNI | {"amx-tile", "amx-int8"}
_AMX_BF16 = _AMX | {"amx-bf16"}

LEVELS = (
    Level("generic", frozenset(), ("",), "x86-64"),
    Level("avx2", _AVX2, ("avx512", "amx", "avx10"), "x86-64-v3"),
    Level("avx512", _AVX512, ("amx",), None),
    Level("amx", _AMX, (), None),
)

KERNEL_FEATURES = _AMX_BF16 | {"avxvnni", "avx512vbmi", "avx512bf16"}
"""Features by which kernels are chosen and generated."""

_NARROW: tuple[tuple[str, frozenset[str]], ...] = (
    ("VNNI", _VNNI),
    ("AVX-VNNI", _AVX2 | {"avxvnni"}),
    ("16-bit pairs", _AVX2),
)
DENSE = KernelPath(
    "dense products of f32, convolutions", (("512-bit FMA", _AVX512), ("FMA", _AVX2), ("vectors", frozenset()))
)
BLOCKS = KernelPath("few rows with blocks", (*_NARROW[:2], ("FMA", _AVX2), ("vectors", frozenset())))
PROMPTS = KernelPath("many rows of 8 bits with blocks", (("AMX", _AMX), *_NARROW, ("vectors", frozenset())))
F16_ROWS = KernelPath("many rows with f16", (("AMX", _AMX_BF16), *_NARROW, ("vectors", frozenset())))
BF16_ROWS = KernelPath(
    "many rows with bf16", (("AMX", _AMX_BF16), ("BF16", _AVX512 | {"avx512bf16"}), *_NARROW, ("vectors", frozenset()))
)
INTEGERS = KernelPath("quantized ONNX operators", (("AMX", _AMX), *_NARROW, ("16-bit products", frozenset())))
PATHS = (DENSE, BLOCKS, PROMPTS, F16_ROWS, BF16_ROWS, INTEGERS)


@dataclass(frozen=True)
class Variant:
    """The machines that run the same kernels.

    Attributes:
        extras: `KERNEL_FEATURES` besides those that the level needs.
    """

    level: Level
    extras: frozenset[str]

    @property
    def name(self) -> str:
        """Such as ``avx2+avxvnni``."""
        return "+".join((self.level.name, *sorted(self.extras)))

    @property
    def features(self) -> frozenset[str]:
        """Every feature that kernels may use."""
        return self.level.needs | self.extras


_CPUS = {"generic": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4", "amx": "x86-64-v4"}
"""LLVM's names of processors with only the features that a level needs."""
_ICE_LAKE = frozenset(("avx512vnni", "avx512vbmi"))
VARIANTS = tuple(
    Variant(LEVELS[index], frozenset(extras))
    for index, extras in (
        (0, ()),
        (1, ()),
        (1, ("avxvnni",)),
        (2, _ICE_LAKE),
        (2, _ICE_LAKE | {"avx512bf16"}),
        (2, _ICE_LAKE | {"avx512bf16", "avxvnni"}),
        (3, {"avx512vbmi", "avx512bf16", "amx-bf16", "avxvnni"}),
    )
)
"""Variants for which machine code is compiled ahead: no vectors, AVX2 alone, Alder Lake, Ice Lake, Zen 4, Zen 5,
Sapphire Rapids."""


def available_levels() -> list[Level]:
    """The levels that this machine supports; `amx` also needs the system's permission to use tiles."""
    return [level for level in LEVELS if level.needs <= present() and (level.name != "amx" or tiles_granted())]


@process_cache
def level() -> Level:
    """The level of this process. UsageError if `VARIABLE` is unknown or unsupported by the machine."""
    chosen = assumed_variant()
    if chosen is not None:
        return chosen.level
    wanted, found = os.environ.get(VARIABLE, ""), available_levels()
    if not wanted:
        return found[-1]
    names = [each.name for each in LEVELS]
    if wanted not in names:
        raise UsageError(
            "E-CPU-LEVEL", None, f"{VARIABLE}={wanted!r} is not an instruction level", expected=" or ".join(names)
        )
    named = LEVELS[names.index(wanted)]
    if named not in found:
        lacking = ", ".join(sorted(named.needs - present())) or "the system's permission to use tiles"
        have = ", ".join(each.name for each in found)
        raise UsageError(
            "E-CPU-LACKING", None, f"{VARIABLE}={wanted}: this machine lacks {lacking}", hint=f"It has {have}"
        )
    return named


@process_cache
def assumed_variant() -> Variant | None:
    """The variant that `VARIANT_VARIABLE` names, None where this process compiles for its own machine. UsageError for
    an unknown one."""
    wanted, known = os.environ.get(VARIANT_VARIABLE, ""), {each.name: each for each in VARIANTS}
    if wanted and wanted not in known:
        why = f"{VARIANT_VARIABLE}={wanted!r} is not a variant of an instruction level"
        raise UsageError("E-CPU-LEVEL", None, why, expected=" or ".join(known))
    return known.get(wanted)


@process_cache
def variant() -> Variant:
    """The variant of this process."""
    return Variant(level(), features() - level().needs)


@process_cache
def features() -> frozenset[str]:
    """The `KERNEL_FEATURES` that kernels may use."""
    chosen = assumed_variant()
    return chosen.features if chosen else frozenset(name for name in present() & KERNEL_FEATURES if not _left(name))


def _left(name: str) -> bool:
    return _x86() and name.startswith(level().excluded)


@process_cache
def target() -> tuple[str, str]:
    """Processor name and feature string for LLVM."""
    from llvmlite import binding

    chosen = assumed_variant()
    if chosen is not None:
        return _CPUS[chosen.level.name], ",".join(f"+{name}" for name in sorted(chosen.features))
    known = binding.get_host_cpu_features()
    if not _x86() or not any(known[name] and _left(name) for name in known):
        return binding.get_host_cpu_name(), known.flatten()
    own = level().cpu
    flags = [
        f"{'-' if _left(name) or not there else '+'}{name}"
        for name, there in sorted(known.items())
        if own is None or not _left(name)
    ]
    return own or binding.get_host_cpu_name(), ",".join(flags)


@process_cache
def present() -> frozenset[str]:
    """Features of the processor, by LLVM's names."""
    if not _x86() or sys.platform != "linux":
        from llvmlite import binding

        return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        line = re.search(rb"^flags\s*:(.*)$", file.read(1 << 14), re.MULTILINE)
    flags = line[1].decode().split() if line is not None else []
    return frozenset(name.replace("_", "-" if name.startswith("amx") else "") for name in flags)


@process_cache
def tiles_granted() -> bool:
    """Request the use of AMX tiles from the system; returns whether it is granted."""
    if not _x86() or sys.platform != "linux" or not present() >= _AMX:
        return False
    return ctypes.CDLL(None, use_errno=True).syscall(_ARCH_PRCTL, _REQUEST, _TILES) == 0


def _x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")
