"""Kernel pack: machine code that the wheel carries, for the machines of some variants (`isa.Variant`).

The pack is one file next to this module: an index of text lines ``VARIANT/NAME OFFSET SIZE``, then the code, each as a
file of the cache has it. Names hold a digest of the kernel's sources, so that code of other sources is never found.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..base.process_cache import process_cache
from ..base.sha256 import sha256
from . import isa

FILE = Path(__file__).with_name("kernels.pack")
MAGIC = b"candle-kernels-1"
_HEAD = struct.Struct("<16sI")
LARGEST_INDEX = 1 << 24


def code(name: str) -> bytes | None:
    """A kernel's code for this process by its name, with its digest before it; None where the pack lacks it."""
    place = _index().get(name)
    if place is None:
        return None
    offset, size = place
    with open(FILE, "rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def count() -> int:
    """Number of kernels that the pack has for this process."""
    return len(_index())


def holds(name: str) -> bool:
    """Whether the pack has a kernel for this process."""
    return name in _index()


@process_cache
def _index() -> Mapping[str, tuple[int, int]]:
    """Offset and size of the code of each kernel for this process; empty without a pack."""
    try:
        with open(FILE, "rb", buffering=0) as file:
            magic, length = _HEAD.unpack(file.read(_HEAD.size))
            if magic != MAGIC or length > LARGEST_INDEX:
                return {}
            lines = file.read(length).decode().splitlines()
            start = _HEAD.size + length
    except (OSError, struct.error, UnicodeDecodeError):
        return {}
    wanted = f"{isa.variant().name}/"
    rows = (line.removeprefix(wanted).rsplit(" ", 2) for line in lines if line.startswith(wanted))
    return {name: (start + int(offset), int(size)) for name, offset, size in rows}


def write(path: Path, kernels: Iterable[tuple[str, str, bytes]]) -> None:
    """Write a pack of (variant, name, code); equal code is stored once."""
    rows = sorted(kernels)
    places: dict[bytes, int] = {}
    body = bytearray()
    for _, _, held in rows:
        digest = sha256(held).digest()
        if digest not in places:
            places[digest] = len(body)
            body += held
    lines = [(f"{variant}/{name}", places[sha256(held).digest()], len(held)) for variant, name, held in rows]
    index = "".join(f"{name} {offset} {size}\n" for name, offset, size in lines).encode()
    path.write_bytes(_HEAD.pack(MAGIC, len(index)) + index + body)
