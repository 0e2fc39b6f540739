"""Darknet ``.cfg`` files as sections of ``key=value`` lines, one for the network and one per layer; for the reader of
weights and the family that builds the graph."""

from __future__ import annotations

import re

from ..base.dataclass import dataclass
from ..base.errors import FormatError, LimitError
from ..base.units import counted

MAX_CFG = 1 << 18
"""Limit of the bytes of a configuration."""
MAX_SIZE = 1 << 24
"""Limit of every size in a configuration."""
_INTEGER = re.compile(r"[-+]?\d{1,9}")
_REAL = re.compile(r"[-+]?(\d{1,9}(\.\d{0,9})?|\.\d{1,9})")


@dataclass(frozen=True)
class Section:
    """A section: its layer type, its options, the number of its first line, and the file."""

    kind: str
    options: dict[str, str]
    line: int
    path: str | None

    def malformed(self, why: str) -> FormatError:
        """A FormatError about the section."""
        return FormatError("E-DARKNET-CFG", self.path, f"[{self.kind}] in line {self.line:,} {why}")

    def integer(self, key: str, default: int, minimum: int = 0, maximum: int = MAX_SIZE) -> int:
        """The value of an option."""
        text = self.options.get(key, str(default))
        if _INTEGER.fullmatch(text) is None or not minimum <= int(text) <= maximum:
            raise self.malformed(f"has {key}={text[:40]}, which is not an integer from {minimum} to {maximum}")
        return int(text)

    def reals(self, key: str, default: tuple[float, ...] = ()) -> tuple[float, ...]:
        """The finite numbers of an option, separated by commas."""
        if key not in self.options:
            return default
        words = self.options[key].removesuffix(",").split(",")
        if not all(_REAL.fullmatch(word) for word in words):
            raise self.malformed(f"has {key}={self.options[key][:40]}, which are not numbers")
        return tuple(float(word) for word in words)

    def layers(self, key: str, index: int) -> list[int]:
        """Indices of earlier layers that an option names; negative ones count back from layer `index`."""
        found = []
        for word in self.options.get(key, "").removesuffix(",").split(","):
            number = int(word) if _INTEGER.fullmatch(word) else index
            number += index if number < 0 else 0
            if not 0 <= number < index:
                raise self.malformed(
                    f"has {key}={self.options.get(key, '')[:40]}, which does not name an earlier layer"
                )
            found.append(number)
        return found


def check_length(nbytes: int, path: str | None) -> None:
    """LimitError for a configuration of more than `MAX_CFG` bytes."""
    if nbytes > MAX_CFG:
        why = f"is a configuration of {counted(nbytes, 'byte')}"
        raise LimitError("E-LIMIT-HEADER", path, why, expected=f"at most {MAX_CFG:,}")


def sections_of(text: str, path: str | None) -> list[Section]:
    """The sections of a configuration; FormatError for text that is none."""
    check_length(len(text), path)
    sections: list[Section] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = "".join(line.partition("#")[0].split())
        if not stripped or stripped[0] == ";":
            continue
        key, equals, value = stripped.partition("=")
        if stripped[0] == "[" and stripped[-1] == "]":
            sections.append(Section(stripped[1:-1].lower(), {}, number, path))
        elif sections and key and equals:
            sections[-1].options.setdefault(key, value)
        else:
            why = f"line {number:,} is neither [section] nor key=value: {line.strip()[:60]!r}"
            raise FormatError("E-DARKNET-CFG", path, why)
    if not sections or sections[0].kind not in ("net", "network"):
        hint = "Move it away to read the weights as one flat tensor"
        raise FormatError("E-DARKNET-CFG", path, "does not begin with [net]", hint=hint)
    return sections
