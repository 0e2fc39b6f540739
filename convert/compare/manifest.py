"""Manifests: text files of ``sha256  name`` lines, as sha256sum writes them, for tensors or files."""

from __future__ import annotations

import os
import re

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.tensor.file import Source

_LINE = re.compile(r"(?P<escaped>\\?)(?P<sha256>[0-9a-f]{64}) [ *](?P<name>.+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_UNESCAPED = {escape: character for character, escape in _ESCAPES.items()}


@dataclass(frozen=True)
class Verdict:
    """The result for one name: Ok, Changed, Missing (only the manifest has it) or New (only the model has it)."""

    name: str
    status: str


def write(hashes: dict[str, str]) -> str:
    """The text of a manifest; a name with a backslash or a line break is escaped, and its line begins with a
    backslash."""
    lines = []
    for name, sha256 in hashes.items():
        escaped = "".join(_ESCAPES.get(character, character) for character in name)
        lines.append(f"{'' if escaped == name else chr(92)}{sha256}  {escaped}\n")
    return "".join(lines)


def read(path: str | os.PathLike[str]) -> dict[str, str]:
    """The hashes by name of a manifest file; empty lines and lines that begin with ``#`` do not count."""
    source = Source(path)
    source.budget.charge(source.size, "the manifest")
    try:
        text = source.read(0, source.size).decode("utf-8", "surrogateescape")
    finally:
        source.close()
    hashes: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.removesuffix("\r"))
        if match is None:
            why = f"line {number} is not of the form 'sha256  name'"
            raise FormatError("E-MANIFEST", path, why, hint="Made by candle-convert hash --write")
        name = (
            re.sub(r"\\[\\nr]", lambda escape: _UNESCAPED[escape[0]], match["name"])
            if match["escaped"]
            else match["name"]
        )
        if name in hashes:
            raise FormatError("E-MANIFEST", path, f"line {number} names {name!r} again")
        hashes[name] = match["sha256"]
    return hashes


def compare(manifest: dict[str, str], found: dict[str, str]) -> list[Verdict]:
    """A verdict on every name, in the manifest's order, then the new ones."""
    verdicts = [
        Verdict(name, "Missing" if name not in found else "Ok" if found[name] == wanted else "Changed")
        for name, wanted in manifest.items()
    ]
    return verdicts + [Verdict(name, "New") for name in found if name not in manifest]
