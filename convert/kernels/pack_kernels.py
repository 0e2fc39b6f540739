"""Kernel packs: compile the kernels of common models for every machine of some ISA levels, for a wheel.

    python -m candle_convert.convert.kernels.pack_kernels LEVEL[,LEVEL] FILE

Each variant of a level is compiled by a process of its own, with a cache of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...runtime.base.errors import UsageError
from ...runtime.jit import isa, kernel_pack
from ...runtime.jit.code_cache import packed_name, supported

WARM = "from candle_convert.convert.kernels.kernel_cache import warm_library; warm_library(None)"


def variants(levels: Sequence[str]) -> list[isa.Variant]:
    """The variants of ISA levels. UsageError for a level that does not exist or that this machine lacks: the programs
    that compile code also use its instructions."""
    offered = [level.name for level in isa.available_levels()]
    for name in levels:
        if not supported() or name not in offered:
            why = f"kernels of level {name!r} cannot be compiled on this machine"
            raise UsageError("E-CPU-LACKING", None, why, expected=" or ".join(offered))
    return [variant for variant in isa.VARIANTS if variant.level.name in levels]


def compiled(variant: isa.Variant, program: str = WARM) -> Iterator[tuple[str, str, bytes]]:
    """Variant, name and code of each kernel that a program needs."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != isa.VARIABLE}
        environment |= {isa.VARIANT_VARIABLE: variant.name, "XDG_CACHE_HOME": folder}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        yield from cached(Path(folder), variant)


def cached(folder: Path, variant: isa.Variant) -> Iterator[tuple[str, str, bytes]]:
    """Variant, name and code of each kernel in the cache of a process that ran with XDG_CACHE_HOME and one variant."""
    for path in sorted(Path(folder, "candle-convert", "kernels").glob("*-*")):
        yield variant.name, packed_name(path.name), path.read_bytes()


def main(arguments: Sequence[str]) -> None:
    """Write the pack of some levels to a file."""
    levels, file = arguments
    kernel_pack.write(Path(file), [kernel for each in variants(levels.split(",")) for kernel in compiled(each)])


if __name__ == "__main__":
    main(sys.argv[1:])
