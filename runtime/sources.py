"""Sources: a digest of a module and of all that kernels in it are made of, so that machine code is used until one of these files changes."""

from __future__ import annotations

import functools
import os
import re
import sys
import time

from .digest import sha256

_PACKAGE = __package__.rpartition(".")[0]
_DEPTH = _PACKAGE.count(".") + 1
"""Words of the package's name."""
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RUNTIME = frozenset(
    f"{name}.py" for name in (
        "checksum_kernel", "compiler", "element", "emit", "flat", "fusion", "half_calls", "halves", "keeping",
        "kernel", "linking", "machine", "native", "paths", "scalar_math", "simd", "simd_types", "tiles", "vector",
    )
)
"""Modules of `runtime` that machine code is made of, or with."""
_TYPING = re.compile(rb"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)*", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*from (\.*)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_BEGAN = time.time_ns()


class ChangedError(Exception):
    """A source has changed since this process may have read it, so that its digest says nothing of the code that runs."""


@functools.cache
def digest(module: str) -> str:
    """Of a module's file, and of every file with code of kernels that it imports, itself or through others of these.

    Kernels are in ``ops/quants``, in files named ``*_kernel.py`` and in some of `runtime`, and call nothing outside these. A module of another
    package has those of its imports that are ours. Raises ChangedError, also for a module without a file.
    """
    first = _file_of(module)
    if first is None:
        raise ChangedError
    found, waiting = {}, [first]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path], imports = _read(path)
            waiting += imports
    return sha256("".join(sorted(found.values())).encode()).hexdigest()


def ours(module: str) -> bool:
    """Whether a module is part of this package."""
    return module.startswith(f"{_PACKAGE}.")


def _file_of(module: str) -> str | None:
    if ours(module):
        return _module_file(os.path.join(_ROOT, *module.split(".")[_DEPTH:]))
    return getattr(sys.modules.get(module), "__file__", None)


@functools.cache
def _module_file(place: str) -> str | None:
    return next((path for path in (f"{place}.py", os.path.join(place, "__init__.py")) if os.path.isfile(path)), None)


@functools.cache
def _read(path: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a file and its place in the package, and the files with code of kernels that it imports."""
    with open(path, "rb", buffering=0) as file:
        data = file.read()
    ours = path.startswith(_ROOT + os.sep)
    if ours and _BEGAN < os.stat(path).st_mtime_ns <= time.time_ns():
        raise ChangedError
    folder, name = os.path.split(path)
    place = os.path.relpath(path, _ROOT).replace(os.sep, "/") if ours else name
    imports = [_imported(folder if match[0] else "", len(match[0]), *match[1:]) for match in _IMPORT.findall(_TYPING.sub(b"", data))]
    return sha256(place.encode() + b"\0" + data).hexdigest(), tuple(other for each in imports for other in each)


def _holds_kernels(path: str) -> bool:
    parts = path[len(_ROOT) + 1 :].split(os.sep)
    if parts[0] == "ops":
        return parts[1] == "quants" or path.endswith("_kernel.py")
    return parts[0] == "runtime" and parts[-1] in _RUNTIME and len(parts) == 2


@functools.cache
def _imported(folder: str, dots: int, module: bytes, names: bytes) -> tuple[str, ...]:
    """The files of ours with code of kernels that ``from dots module import names`` in a file of a folder loads."""
    words = module.decode().split(".") if module else []
    if dots:
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
    elif words[:_DEPTH] == _PACKAGE.split("."):
        folder, words = _ROOT, words[_DEPTH:]
    else:
        return ()
    place = os.path.join(folder, *words)
    inside = [os.path.join(place, name) for name in re.findall(r"\w+", names.decode())] if os.path.isdir(place) else []
    files = (_module_file(each) for each in (place, *inside))
    return tuple(file for file in files if file is not None and file.startswith(_ROOT + os.sep) and _holds_kernels(file))
