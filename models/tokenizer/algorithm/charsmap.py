"""Precompiled character maps: SentencePiece's normalization (NFKC and the like) as a trie of replacements.

Four bytes tell the size of a double-array trie of 32-bit units, which stands after them; then come the replacements,
ended by zeros each. A unit holds the offset of its children in bits 10 to 30 (bit 9: times 256), its label in bits 0 to
7, in bit 8 whether a key ends here.

Source: SentencePiece's normalizer; Darts-clone for the units.
"""

from __future__ import annotations

import struct

import numpy as np

from ....runtime.base.errors import FormatError

LABEL = (1 << 31) | 0xFF
VALUE = (1 << 31) - 1


class Charsmap:
    """Longest-match replacements in UTF-8 bytes.

    Raises FormatError for a map that is cut short or leads out of itself.
    """

    def __init__(self, data: bytes, path: str | None = None) -> None:
        self._path = path
        size = struct.unpack_from("<I", data)[0] if len(data) >= 4 else 0
        if len(data) < 4 or size % 4 or size < 4 or 4 + size >= len(data):
            raise self._broken("its trie does not fit into it")
        self._units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.uint32).data
        self._replacements = data[4 + size :]

    def match(self, text: bytes, at: int) -> tuple[bytes, int] | None:
        """The replacement for the longest key that begins at `at`, and the length of that key; None where none does."""
        found: tuple[int, int] | None = None
        node = _children(self._unit(0))
        for index in range(at, len(text)):
            label = text[index]
            if not label:
                break
            node ^= label
            unit = self._unit(node)
            if unit & LABEL != label:
                break
            node ^= _children(unit)
            if unit >> 8 & 1:
                found = self._unit(node) & VALUE, index + 1 - at
        return None if found is None else (self._replacement(found[0]), found[1])

    def _unit(self, node: int) -> int:
        if node >= len(self._units):
            raise self._broken("its trie leads out of itself")
        return self._units[node]

    def _replacement(self, start: int) -> bytes:
        stop = self._replacements.find(b"\0", start)
        if start >= len(self._replacements) or stop < 0:
            raise self._broken("a replacement lies outside of it")
        return self._replacements[start:stop]

    def _broken(self, why: str) -> FormatError:
        return FormatError("E-TOKENIZER-CHARSMAP", self._path, f"the character map of the tokenizer is damaged: {why}")


def _children(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)
