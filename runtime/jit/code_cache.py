"""Code cache: machine code on disk, so that later processes call kernels without importing Numba (0.3 s).

A file holds one kernel: a digest, the offset of its entry, position-independent code, and the C library functions that
it calls, whose addresses are filled in when the code is mapped (`linker.link`). The file name is a digest of the
kernel's sources, and one of the compiler and the processor. Files are read only if they belong to this user and nobody
else can write to them. What the cache lacks comes from the wheel (`kernel_pack`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib
import importlib.util
import mmap
import os
import shutil
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ..base.compile_progress import compile_time
from ..base.process_cache import PROCESS, process_cache
from ..base.sha256 import sha256
from . import isa, kernel_pack, source_digest

LARGEST = 1 << 24
DIGEST = 32
WORD = 8
PLACES = 24
"""Hexadecimal digits of a digest in a name."""
CALL = 32
"""Bytes of a called function's name and of the offset of its address."""
NOWHERE = Path(os.devnull)
"""Folder of kernels without a cache folder: nothing can be written there."""
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_CPU_FACTS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
_loading = threading.RLock()


class _Kernel(Protocol):
    """The kernel object that a `CachedKernel` names."""

    @property
    def address(self) -> int: ...

    def code(self) -> bytes | None: ...


class CachedKernel:
    """A range kernel of this package whose module is imported only if its machine code is not cached.

    Calling it with the words of its arguments (integers and addresses, in the order of the parameters) runs it without
    the GIL.

    Args:
        module: full name of the module; name: of the kernel in it.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    @property
    def is_cached(self) -> bool:
        """Whether the code cache holds the kernel for its current sources."""
        return "_function" in vars(self) or read_code(self._file) is not None

    @functools.cached_property
    def _function(self) -> Any:
        with _loading:
            held = read_code(self._file)
            address = map_code(held) if held is not None else None
            return _PROTOTYPE(self._compiled() if address is None else address)

    @property
    def _file(self) -> Path | None:
        return cache_file(f"{self.module}.{self.name}", lambda: source_digest.digest(self.module))

    def _compiled(self) -> int:
        kernel: _Kernel = getattr(importlib.import_module(self.module), self.name)
        with compile_time(1):
            code = kernel.code() if supported() else None
        address = None if code is None else map_code(code)
        if code is None or address is None:
            return kernel.address
        if self._file is not None:
            write_code(self._file, code)
        return address

    def load(self) -> None:
        """Load the kernel's machine code; compile and cache it first if necessary."""
        _ = self._function

    def __call__(self, *words: int) -> None:
        self._function((ctypes.c_int64 * len(words))(*words), 0, 1)


def supported() -> bool:
    return sys.platform == "linux" and os.uname().machine == "x86_64"


@process_cache
def folder() -> Path | None:
    """The folder of machine code, None if no folder is safe from other users."""
    if not supported():
        return None
    found = cache() / "kernels"
    try:
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        return found if _ours(os.lstat(found), stat.S_ISDIR) else None
    except OSError:
        return None


def cache() -> Path:
    """The user's cache folder. A relative XDG_CACHE_HOME does not count, as its standard says."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return Path(chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache")) / "candle-convert"


@process_cache(kept=PROCESS)
def temporary_folder() -> Path:
    """A folder for what the user's cache cannot hold, until this process ends."""
    found = Path(tempfile.mkdtemp(prefix="candle-convert-"))
    atexit.register(_remove, found, os.getpid())
    return found


def _remove(found: Path, process: int) -> None:
    if os.getpid() == process:  # and not in a process that was forked from it
        shutil.rmtree(found, ignore_errors=True)


def cache_file(name: str, fingerprint: Callable[[], str]) -> Path | None:
    """The cache file of a kernel. `fingerprint` describes what its code depends on, and tells kernels of one name
    apart. None if the kernel cannot be cached."""
    if not supported():
        return None
    try:
        sources = sha256(fingerprint().encode()).hexdigest()[:PLACES]
        file = f"{name}.{sources}-{platform()[:PLACES]}"
    except source_digest.ChangedError:
        return None
    place = folder()
    return place / file if place is not None else NOWHERE / file if kernel_pack.holds(packed_name(file)) else None


def packed_name(file: str) -> str:
    """The name of a kernel in the wheel, by that of its file in the cache."""
    return file.rpartition("-")[0]


def holds(path: Path) -> bool:
    """Whether the cache or the wheel has a kernel."""
    return path.exists() or kernel_pack.holds(packed_name(path.name))


def _ours(status: os.stat_result, kind: Any) -> bool:
    """Whether a path is of the expected kind and only this user can write to it."""
    return bool(kind(status.st_mode)) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


@process_cache
def platform() -> str:
    """Digest of the interpreter, the compiler, the processor and the ISA level."""
    facts = isa.assumed_variant() or (processor(), isa.level().name)
    digest = sha256(repr((sys.version_info[:2], facts)).encode())
    for name in ("numba", "llvmlite"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            digest.update(Path(spec.origin).with_name("_version.py").read_bytes())
    return digest.hexdigest()


def processor() -> list[bytes]:
    """The constant lines of ``/proc/cpuinfo`` for the first processor."""
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        lines = file.read(1 << 14).partition(b"\n\n")[0].splitlines()
    return [line for line in lines if line.partition(b":")[0].strip().decode() in _CPU_FACTS]


def read_code(path: Path | None) -> bytes | None:
    """Entry offset and code of a kernel, from a file or from the wheel; None if it is in neither, damaged, or writable
    by others."""
    if path is None:
        return None
    held = _verified(read_cached(path, LARGEST))
    return _verified(kernel_pack.code(packed_name(path.name))) if held is None else held


def _verified(data: bytes | None) -> bytes | None:
    """The content that follows a digest, if the digest is right."""
    if data is None or len(data) <= DIGEST + WORD:
        return None
    return data[DIGEST:] if sha256(data[DIGEST:]).digest() == data[:DIGEST] else None


def read_cached(path: Path, largest: int) -> bytes | None:
    """The content of a file of the cache; None without a regular file of this user's of at most `largest`
    bytes. A pipe is not waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not _ours(status, stat.S_ISREG) or status.st_size > largest:
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read(largest)
    except OSError:
        return None
    finally:
        os.close(handle)


def unfinished(path: Path) -> Path:
    """The temporary path to which this thread writes a file before renaming it."""
    return path.with_name(f"{path.name}.{os.getpid()}.{threading.get_native_id()}.partial")


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: readers see the old or the new content, also with concurrent writers."""
    data = text.encode()
    if read_cached(path, len(data)) != data:
        fresh = unfinished(path)
        fresh.write_bytes(data)
        fresh.replace(path)


def write_code(path: Path, code: bytes) -> None:
    """Write code to the cache; errors such as a full disk are ignored."""
    fresh = unfinished(path)
    with contextlib.suppress(OSError):
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(sha256(code).digest() + code)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)


def map_code(code: bytes) -> int | None:
    """Map code into executable memory; returns the address of its entry, None if the system forbids it."""
    entry, calls = struct.unpack_from("<II", code)
    size = len(code) - WORD - CALL * calls
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
    memory[:] = code[WORD : WORD + size]
    for name, place in struct.iter_unpack("<24sQ", code[WORD + size :]):
        function = getattr(ctypes.CDLL(None), name.rstrip(b"\0").decode())
        struct.pack_into("<Q", memory, place, ctypes.cast(function, ctypes.c_void_p).value)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None, use_errno=True).mprotect(
        ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC
    ):
        return None
    # held for ever: threads may still run this code while the interpreter ends
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return address + entry
