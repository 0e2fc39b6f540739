"""Machine code on the disk: range kernels that a later process calls without importing Numba, which takes a third of a second.

A file holds one kernel: a digest, the place of its entry, and code that runs wherever it is put: what it calls of the C library is filled in
when it is put there, and nothing else in it points outside (`linking.linked`). Folders are named for the sources, the compiler and the
processor. Only files of this user that nobody else can write are read.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import importlib.util
import mmap
import os
import stat
import struct
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel import RangeKernel

LARGEST = 1 << 24
DIGEST = 32
WORD = 8
CALL = 32
"""Bytes of the name of a function that code calls and of the place of its address."""
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_ROOT = Path(__file__).parents[1]
_SOURCES = tuple(f"runtime/{name}.py" for name in ("kernel", "simd", "machine", "linking", "flat", "checksum_kernel", "halves"))
_SOURCE_FOLDERS = ("ops/quants", "ops/quants/encoders", "ops/quants/layout")
"""Files that the kernels kept here are made of."""
_CPU_FACTS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
_loading = threading.RLock()
_held: list[Any] = []


class Stored:
    """A range kernel of a module that is only imported where its machine code is not on the disk.

    Calling it with the words of its argument block runs it without the GIL, and gives the block as the kernel left it.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    @property
    def stored(self) -> bool:
        """Whether this machine has compiled the kernel from these sources."""
        return "_function" in vars(self) or read_code(self._file) is not None

    @functools.cached_property
    def _function(self) -> Any:
        with _loading:
            held = read_code(self._file)
            address = placed(held) if held is not None else None
            return _PROTOTYPE(self._compiled() if address is None else address)

    @property
    def _file(self) -> Path | None:
        folder = _folder()
        return None if folder is None else folder / f"{self.module}.{self.name}"

    def _compiled(self) -> int:
        from . import linking

        kernel: RangeKernel = getattr(importlib.import_module(f"..{self.module}", __package__), self.name)
        code = linking.linked(kernel) if supported() else None
        address = None if code is None else placed(code)
        if code is None or address is None:
            return kernel.address
        if self._file is not None:
            write_code(self._file, code)
        return address

    def load(self) -> None:
        """Compile the kernel if this machine has not yet."""
        _ = self._function

    def __call__(self, *words: int) -> ctypes.Array[ctypes.c_int64]:
        block = (ctypes.c_int64 * len(words))(*words)
        self._function(block, 0, 1)
        return block


def supported() -> bool:
    return sys.platform == "linux" and os.uname().machine == "x86_64"


@functools.cache
def _folder() -> Path | None:
    """The folder for these sources on this processor, None where there is none that is safe."""
    if not supported():
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "candle-convert" / "machine"
    folder = base / _digest()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        safe = all(_ours(os.lstat(place), stat.S_ISDIR) for place in (base, folder))
    except OSError:
        return None
    return folder if safe else None


def _ours(status: os.stat_result, kind: Any) -> bool:
    """Whether something is what it should be and only this user can write to it."""
    return bool(kind(status.st_mode)) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _digest() -> str:
    digest = hashlib.sha256(repr((sys.version_info[:2], processor())).encode())
    compiler = [spec.origin for name in ("numba", "llvmlite") if (spec := importlib.util.find_spec(name)) is not None and spec.origin is not None]
    ours = (path for folder in _SOURCE_FOLDERS for path in sorted((_ROOT / folder).glob("*.py")))
    for path in (*(Path(origin).with_name("_version.py") for origin in compiler), *(_ROOT / name for name in _SOURCES), *ours):
        data = path.read_bytes()
        digest.update(f"{path.name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def processor() -> list[bytes]:
    """What Linux says of the first processor that does not change while it runs."""
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        lines = file.read(1 << 14).partition(b"\n\n")[0].splitlines()
    return [line for line in lines if line.partition(b":")[0].strip().decode() in _CPU_FACTS]


def read_code(path: Path | None) -> bytes | None:
    """Entry and code from a file, None where it is missing, damaged, or not this user's alone."""
    if path is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not _ours(status, stat.S_ISREG) or not DIGEST + WORD < status.st_size <= LARGEST:
            return None
        data = file.read()
    return data[DIGEST:] if hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST] else None


def write_code(path: Path, code: bytes) -> None:
    """Keep code; without room on the disk it is compiled again next time."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)


def placed(code: bytes) -> int | None:
    """The address of the entry of code that was put into memory to be run; None where the system does not allow that."""
    entry, calls = struct.unpack_from("<II", code)
    size = len(code) - WORD - CALL * calls
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[:] = code[WORD : WORD + size]
    for name, place in struct.iter_unpack("<24sQ", code[WORD + size :]):
        function = getattr(ctypes.CDLL(None), name.rstrip(b"\0").decode())
        struct.pack_into("<Q", memory, place, ctypes.cast(function, ctypes.c_void_p).value)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    _held.append(memory)
    return address + entry
