"""Special-token splitting: text divided into special tokens and the text between them.

Source: llama.cpp's tokenizer_st_partition for GGUF vocabularies; SentencePiece's PrefixMatcher for its own files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Fragment = str | int
"""A piece of text, or the id of a special token in it."""


class LongestFirst:
    """Finds all occurrences of the longest token, then of the next longest in the remaining text, and so on.

    Args:
        tokens: strings and ids.
        trim_left, trim_right: ids of tokens that absorb the white space before or after them.
    """

    def __init__(
        self,
        tokens: Sequence[tuple[str, int]],
        trim_left: frozenset[int] = frozenset(),
        trim_right: frozenset[int] = frozenset(),
    ) -> None:
        self._tokens = sorted(tokens, key=lambda token: -len(token[0].encode()))
        self._left, self._right = trim_left, trim_right

    def split(self, text: str) -> list[Fragment]:
        """Text and ids in order, without empty text."""
        fragments: list[Fragment] = [text] if text else []
        for special, token in self._tokens:
            if special in text:
                fragments = [part for fragment in fragments for part in self._around(fragment, special, token)]
        return fragments

    def _around(self, fragment: Fragment, special: str, token: int) -> list[Fragment]:
        if isinstance(fragment, int) or special not in fragment:
            return [fragment]
        found: list[Fragment] = []
        at = 0
        while (place := fragment.find(special, at)) >= 0:
            before = fragment[at:place]
            found += [before.rstrip(WHITE) if token in self._left else before, token]
            at = place + len(special)
            if token in self._right:
                at = len(fragment) - len(fragment[at:].lstrip(WHITE))
        return [part for part in (*found, fragment[at:]) if part != ""]


WHITE = " \t\n\r\v\f"


class Leftmost:
    """Finds tokens from left to right, the longest at each position."""

    def __init__(self, tokens: Sequence[tuple[str, int]]) -> None:
        self._ids = dict(tokens)
        ordered = sorted(self._ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def split(self, text: str) -> list[Fragment]:
        """Text and ids in order, without empty text."""
        found: list[Fragment] = []
        at = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            found += [text[at : match.start()], self._ids[match[0]]]
            at = match.end()
        return [part for part in (*found, text[at:]) if part != ""]
