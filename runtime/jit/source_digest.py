"""Source digest: SHA-256 over every file of the package that a kernel's module imports."""

from __future__ import annotations

import contextlib
import marshal
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from ..base.process_cache import FILES, PROCESS, owned, process_cache
from ..base.sha256 import sha256

_PACKAGE = __package__.partition(".")[0]
_ROOT = os.path.abspath(sys.modules[_PACKAGE].__path__[0])
_TYPING = re.compile(rb"\nif TYPE_CHECKING:\n(?:[ \t].*\n|\n)*")
_FROM = re.compile(rb"\n[ \t]*from (\.+|%s\b\.?)([\w.]*) import (\([^)]*\)|.*)" % _PACKAGE.encode())
_PLAIN = re.compile(rb"\n[ \t]*import %s\.([\w.]+)" % _PACKAGE.encode())
_NAME = re.compile(r"(\w+)(?: +as +\w+)?")
_BEGAN = time.time_ns()
TEXTS: dict[str, bytes] = owned({}, PROCESS)
"""Sources of generated modules that no file holds, by the ``__file__`` of the module."""
PACKED = "sources.index"
"""The file next to this module with the digests of sources, of a copy of the package whose sources are not changed."""


class ChangedError(Exception):
    """A source file changed after this process may have read it, so its digest does not identify the code that runs."""


@process_cache(kept=FILES)
def digest(module: str) -> str:
    """SHA-256 of the sources of a module and of every module of this package that it imports, directly or indirectly.

    All imports count, deferred ones included, except those under ``if TYPE_CHECKING``. Modules outside of the package
    count only if they are the module itself or are imported relatively.

    Raises:
        ChangedError: a file changed since it may have been imported, or the module has no file.
    """
    first = _file_of(module)
    if first is None:
        raise ChangedError
    found, pending, digests = {first}, [first], []
    while pending:
        own, imports = _read(pending.pop())
        digests.append(own)
        new = imports - found
        found |= new
        pending += new
    return sha256(b"".join(sorted(digests))).hexdigest()


def ours(module: str) -> bool:
    """Whether a module is part of this package."""
    return module.startswith(f"{_PACKAGE}.")


def imported(path: str) -> frozenset[str]:
    """The files that a source file imports directly: the named modules, and the ``__init__.py`` of its package."""
    with open(path, "rb", buffering=0) as file:
        return _imports(path, file.read())


def write_packed(files: Iterable[str], package: Path) -> None:
    """Write the digests of files of this package into a copy of it."""
    found = {}
    for path in files:
        with contextlib.suppress(ChangedError):
            own, imports = _read(path)
            found[_inside(path)] = own, tuple(map(_inside, imports))
    (package / "runtime" / "jit" / PACKED).write_bytes(marshal.dumps(found))


@process_cache(kept=FILES)
def _packed() -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """The digests that this copy of the package carries: by file, its own and the files that it imports."""
    try:
        with open(os.path.join(os.path.dirname(__file__), PACKED), "rb") as file:
            found: dict[str, tuple[bytes, tuple[str, ...]]] = marshal.load(file)
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    return found


def _inside(path: str) -> str:
    return path[len(_ROOT) + 1 :]


def _file_of(module: str) -> str | None:
    if ours(module):
        return _module_file(os.path.join(_ROOT, *module.split(".")[1:]))
    return getattr(sys.modules.get(module), "__file__", None)


@process_cache(kept=FILES)
def _module_file(place: str) -> str | None:
    """The file of the module or package at a path without suffix."""
    return next((path for path in (f"{place}.py", os.path.join(place, "__init__.py")) if os.path.isfile(path)), None)


@process_cache(kept=FILES)
def _read(path: str) -> tuple[bytes, frozenset[str]]:
    """The digest of a file and its path in the package, and the files that it imports."""
    if path in TEXTS:
        return sha256(os.path.basename(path).encode() + b"\0" + TEXTS[path]).digest(), _imports(path, TEXTS[path])
    inside = path.startswith(_ROOT + os.sep)
    held = _packed().get(_inside(path)) if inside else None
    if held is not None:
        return held[0], frozenset(os.path.join(_ROOT, name) for name in held[1])
    with open(path, "rb", buffering=0) as file:
        data, status = file.read(), os.fstat(file.fileno())
    if inside and _BEGAN < status.st_mtime_ns <= time.time_ns():
        raise ChangedError
    place = os.path.relpath(path, _ROOT).replace(os.sep, "/") if inside else os.path.basename(path)
    return sha256(place.encode() + b"\0" + data).digest(), _imports(path, data)


def _imports(path: str, data: bytes) -> frozenset[str]:
    folder, name = os.path.split(path)
    text = _TYPING.sub(b"\n", b"\n" + data)
    statements = [*_FROM.findall(text), *((b"", module, b"") for module in _PLAIN.findall(text))]
    package = _package_file(os.path.dirname(folder) if name == "__init__.py" else folder)
    return package.union(*(_loaded(folder, *statement) for statement in statements)) - {path}


@process_cache(kept=FILES)
def _package_file(folder: str) -> frozenset[str]:
    """The ``__init__.py`` of a folder that is a package."""
    path = os.path.join(folder, "__init__.py")
    return frozenset((path,) if os.path.isfile(path) else ())


@process_cache(kept=FILES)
def _loaded(folder: str, start: bytes, module: bytes, names: bytes) -> frozenset[str]:
    """The files that ``from {start}{module} import {names}`` loads: the module and, for a package, its named
    modules."""
    words = module.decode().split(".") if module else []
    place = os.path.join(
        os.path.abspath(os.path.join(folder, *[os.pardir] * (len(start) - 1))) if start[:1] == b"." else _ROOT, *words
    )
    file = _module_file(place)
    if file is None:
        return frozenset()
    inside = _NAME.findall(names.decode()) if os.path.basename(file) == "__init__.py" else ()
    return frozenset((file, *filter(None, (_module_file(os.path.join(place, name)) for name in inside))))
