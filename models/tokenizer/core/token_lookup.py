"""Token lookup by string: by hash for a few, by dictionary for many, which takes five times as long to build."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from ....runtime.base.string_array import StringArray

LOOKUPS_BEFORE_DICT = 4096
"""Number of lookups before a dictionary is built."""
SLICE = 1 << 14
"""Strings hashed at a time."""
WORD = 8
FIRST, LAST, LENGTH = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
"""Multipliers of the first and the last eight bytes of a string, and of its length, in the hash."""


class Finder:
    """Ids of tokens by string; the last of duplicates wins.

    Args:
        ids: of all tokens, where a dictionary has them already.
    """

    def __init__(self, texts: Sequence[str], ids: Mapping[str, int] | None = None) -> None:
        self._texts = texts
        self._asked = 0
        if ids is not None:
            self.ids = ids

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The dictionary of all tokens."""
        return dict(zip(self._texts, range(len(self._texts)), strict=True))

    def getter(self) -> Callable[[str], int | None]:
        """The fastest lookup for a few more strings."""
        return self.ids.get if self._listed else self.get

    def get(self, text: str) -> int | None:
        """The id of a string, or None."""
        if self._listed:
            return self.ids.get(text)
        found = self._every(text)
        return found[-1] if found else None

    def every(self, strings: Collection[str]) -> list[int]:
        """The ids of all tokens with one of some strings, in order."""
        if isinstance(self._texts, StringArray):
            return sorted(token for text in strings for token in self._every(text))
        if len(self.ids) == len(self._texts):
            return sorted(self.ids[text] for text in strings if text in self.ids)
        return [token for token, text in enumerate(self._texts) if text in strings]

    @property
    def _listed(self) -> bool:
        return "ids" in vars(self) or self._asked > LOOKUPS_BEFORE_DICT or not isinstance(self._texts, StringArray)

    def _every(self, text: str) -> list[int]:
        texts, data = self._texts, text.encode("utf-8", "surrogatepass")
        assert isinstance(texts, StringArray)
        self._asked += 1
        mixed = (
            int.from_bytes(data[:WORD], "little") * FIRST
            + int.from_bytes(data[-WORD:], "little") * LAST
            + len(data) * LENGTH
        )
        low = mixed >> self._bits << self._bits & (1 << 64) - 1
        place = int(self._keys.searchsorted(np.uint64(low)))
        found: list[int] = []
        while place < len(self._keys) and (key := int(self._keys[place])) >> self._bits == low >> self._bits:
            token = key & (1 << self._bits) - 1
            if texts.raw(token) == data:
                found.append(token)
            place += 1
        return found

    @property
    def _bits(self) -> int:
        return len(self._texts).bit_length()

    @cached_property
    def _keys(self) -> np.ndarray:
        """u64, ascending: the upper bits of each string's hash above its id."""
        texts = self._texts
        assert isinstance(texts, StringArray)
        words = np.ndarray((len(texts.data) - WORD + 1,), "<u8", texts.data, strides=(1,))
        masks = np.array([(1 << 8 * count) - 1 for count in range(WORD + 1)], np.uint64)
        starts, bits = texts.starts, np.uint64(self._bits)
        keys = np.arange(len(texts), dtype=np.uint64)
        for begin in range(0, len(texts), SLICE):
            start, end = starts[begin : begin + SLICE], texts.ends[begin : begin + SLICE]
            length = end - start
            first = words[start] & masks[np.minimum(length, WORD)]
            last = np.where(length < WORD, first, words[np.maximum(end - WORD, 0)])
            mixed = first * np.uint64(FIRST) + last * np.uint64(LAST) + length.astype(np.uint64) * np.uint64(LENGTH)
            keys[begin : begin + SLICE] |= mixed >> bits << bits
        keys.sort()
        return keys
