"""Trial read of an HDF5 file in a process of its own: with some damaged files the HDF5 library crashes, or loops."""

from __future__ import annotations

import os
import subprocess
import sys

from ....runtime.base.errors import FormatError

SECONDS, BYTES_PER_SECOND = 5, 1 << 25
"""Processor seconds that any file may take, and bytes that earn it another one."""
WALL = 20
"""Times as many seconds on the clock, for busy machines."""
PROGRAM = """
import io, resource, sys
sys.path[:] = sys.argv[4:]
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import h5py
def read(name, item):
    for attribute in item.attrs:
        item.attrs[attribute]
    if isinstance(item, h5py.Dataset) and item.chunks and not item.is_virtual:
        if item.nbytes <= int(sys.argv[3]) * (1 + item.id.get_storage_size()):
            item[()]
with h5py.File(sys.argv[1] or io.BytesIO(sys.stdin.buffer.read()), "r") as file:
    read("", file)
    file.visititems(read)
"""


def refuse_crashing(source: str | os.PathLike[str] | bytes, title: str, expansion: int) -> None:
    """FormatError for a file, or its bytes, with which the HDF5 library does not come to an end. What it raises does
    not count.

    Args:
        expansion: bytes of an array for each byte stored, up to which compressed arrays are read.
    """
    held, path = (source, "") if isinstance(source, bytes) else (b"", os.path.abspath(source))
    seconds = SECONDS + (len(held) if held else os.path.getsize(path)) // BYTES_PER_SECOND
    words = [path, str(seconds), str(expansion), *filter(None, sys.path)]
    try:
        code = subprocess.run(
            [sys.executable, "-I", "-c", PROGRAM, *words], input=held, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=WALL * seconds, check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        code = -1
    except (OSError, ValueError):  # no further process, or no interpreter: without a trial
        return
    if code < 0:
        why = "damaged: the HDF5 library does not read it to its end"
        raise FormatError("E-KERAS-HDF5", title, why, hint="Save the model again")
