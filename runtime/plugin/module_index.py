"""Module index: cached declarations and registrations of all modules, read without importing them.

Parsing takes a millisecond per module. The index is cached on disk; only changed files are parsed again. A copy of the
package that is not written to, such as a bundle's, carries an index, whose entries hold the digest of their files.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..base.sha256 import sha256
from ..jit import code_cache

if TYPE_CHECKING:
    from .module_syntax import Described

SYNTAX = os.path.join(os.path.dirname(__file__), "module_syntax.py")
"""The source file that defines the entries; its digest is the version of the index."""
PACKED = "modules.index"
"""The file of an index that a copy of the package carries, beside this module."""
Stamped = dict[str, tuple[tuple[int, int], "Described"]]
"""Module -> size and modification time of its file, and its entry."""


class Call(NamedTuple):
    """A decorator, or a call whose result has a name or is dropped: ``@native(conv)`` of a module that imports both.

    Attributes:
        function: where it comes from: ``"runtime.plan.kernel_api.native"``.
        text: the first argument where that is a string and the result has a public name, as in ``@op("Relu", ...)``;
            else "".
        arguments: where those come from that are names: ``("ops.conv.conv.conv",)``.
    """

    function: str
    text: str
    arguments: tuple[str, ...]


class Entry(NamedTuple):
    """Top-level declarations of a module.

    Attributes:
        constants: upper-case names that it assigns, or defines as functions.
        calls: calls of functions of `runtime`, and of other package functions whose arguments are strings or names.
    """

    constants: tuple[str, ...]
    calls: tuple[Call, ...]


def entries(files: Mapping[str, str]) -> dict[str, Entry]:
    """The entries of modules, given by their names relative to the root package, with their files."""
    place = _place(files)
    kept = _kept(place)
    found: Stamped = {}
    packed = _packed() if not kept else {}
    for module, path in files.items():
        stamp = _stamp(path)
        held = kept.get(module)
        if held is None or held[0] != stamp:
            digest, entry = packed.get(module, (b"", None))
            held = stamp, entry if entry is not None and _digest(path) == digest else _parsed(module, path)
        found[module] = held
    if place is not None and found != kept:
        _keep(place, found)
    return {
        module: Entry(constants, tuple(Call(*call) for call in calls))
        for module, (_, (constants, calls)) in found.items()
    }


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _parsed(module: str, path: str) -> Described:
    from .module_syntax import described

    with open(path, "rb") as file:
        return described(file.read(), module)


def _place(files: Mapping[str, str]) -> Path | None:
    """The path of the index for these modules, one per copy of the package; None if it cannot be cached."""
    if os.name != "posix" or not files:
        return None
    made_by = *sys.version_info[:2], *_stamp(SYNTAX)
    name = sha256(repr((made_by, min(files.values()))).encode()).hexdigest()[:32]
    return code_cache.cache() / "modules" / name


def _kept(place: Path | None) -> Stamped:
    data = code_cache.read_code(place)
    found: Stamped = {} if data is None else marshal.loads(data)
    return found


def _digest(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return sha256(file.read()).digest()


def _packed() -> dict[str, tuple[bytes, Described]]:
    """The index that this copy of the package carries, empty without one for this version of Python."""
    try:
        with open(os.path.join(os.path.dirname(__file__), PACKED), "rb") as file:
            version, found = marshal.load(file)
    except (OSError, ValueError, EOFError, TypeError):
        return {}
    held: dict[str, tuple[bytes, Described]] = found if version == sys.version_info[:2] else {}
    return held


def write_packed(package: Path) -> None:
    """Write the index that a copy of the package carries."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        words = path.relative_to(package).with_suffix("").parts
        module = ".".join(words[:-1] if words[-1] == "__init__" else words)
        found[module] = _digest(str(path)), _parsed(module, str(path))
    place = package / "runtime" / "plugin" / PACKED
    place.write_bytes(marshal.dumps((sys.version_info[:2], found)))


def _keep(place: Path, found: Stamped) -> None:
    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        code_cache.write_code(place, marshal.dumps(found))
