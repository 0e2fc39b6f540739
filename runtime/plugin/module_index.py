"""Module index: cached declarations and registrations of all modules, read without importing them.

Parsing takes a millisecond per module. The index is cached on disk; only changed files are parsed again.
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
Stamped = dict[str, tuple[tuple[int, int], "Described"]]
"""By module: size and modification time of its file, and its entry."""


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
    for module, path in files.items():
        stamp = _stamp(path)
        held = kept.get(module)
        found[module] = held if held is not None and held[0] == stamp else (stamp, _parsed(module, path))
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


def _keep(place: Path, found: Stamped) -> None:
    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        code_cache.write_code(place, marshal.dumps(found))
