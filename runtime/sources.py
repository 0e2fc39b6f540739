"""Sources: a digest of a module and of all that kernels in it are made of, so that machine code is used until one of these files changes."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import time
from pathlib import Path

_PACKAGE = __package__.rpartition(".")[0]
_ROOT = Path(__file__).parents[1]
_RUNTIME = frozenset(
    _ROOT / "runtime" / f"{name}.py" for name in (
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
    return hashlib.sha256("".join(sorted(found.values())).encode()).hexdigest()


def ours(module: str) -> bool:
    """Whether a module is part of this package."""
    return module.startswith(f"{_PACKAGE}.")


def _file_of(module: str) -> Path | None:
    if ours(module):
        return _module_file(_ROOT.joinpath(*module.split(".")[_PACKAGE.count(".") + 1 :]))
    held = getattr(sys.modules.get(module), "__file__", None)
    return None if held is None else Path(held)


def _module_file(place: Path) -> Path | None:
    return next((path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.is_file()), None)


@functools.cache
def _read(path: Path) -> tuple[str, tuple[Path, ...]]:
    """The digest of a file and its place in the package, and the files with code of kernels that it imports."""
    data = path.read_bytes()
    ours = path.is_relative_to(_ROOT)
    if ours and _BEGAN < os.stat(path).st_mtime_ns <= time.time_ns():
        raise ChangedError
    place = path.relative_to(_ROOT).as_posix() if ours else path.name
    imports = (_imported(path, *match.groups()) for match in _IMPORT.finditer(_TYPING.sub(b"", data)))
    return hashlib.sha256(place.encode() + b"\0" + data).hexdigest(), tuple(other for each in imports for other in each if _holds_kernels(other))


def _holds_kernels(path: Path) -> bool:
    parts = path.relative_to(_ROOT).parts
    return path in _RUNTIME or parts[:2] == ("ops", "quants") or (parts[0] == "ops" and path.name.endswith("_kernel.py"))


def _imported(path: Path, dots: bytes, module: bytes, names: bytes) -> list[Path]:
    """The files of ours that ``from dots module import names`` in a file loads."""
    words = module.decode().split(".") if module else []
    if dots:
        base = path.parents[len(dots) - 1]
    elif words[: _PACKAGE.count(".") + 1] == _PACKAGE.split("."):
        base, words = _ROOT, words[_PACKAGE.count(".") + 1 :]
    else:
        return []
    place = base.joinpath(*words)
    inside = re.findall(r"\w+", names.decode()) if place.is_dir() else []
    return [file for each in (place, *(place / name for name in inside)) if (file := _module_file(each)) is not None and file.is_relative_to(_ROOT)]
