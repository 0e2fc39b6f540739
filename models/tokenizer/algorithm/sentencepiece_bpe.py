"""SentencePiece BPE: neighbours whose union has the best score are merged first; unknown symbols fall back to bytes.

Source: Kudo and Richardson, 2018; SentencePiece's bpe_model.cc; llama.cpp's llm_tokenizer_spm_session for GGUF
vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from ..core.vocabulary import NORMAL, SPACE, UNUSED, Vocabulary
from .merge_loop import merged

CHUNK = re.compile(rf"{SPACE}*[^{SPACE}]*")
CROSSING = re.compile(rf"[^{SPACE}]{SPACE}")
"""A token that holds a space after something else."""
CHUNKS_KEPT = 100_000
SHORT = 200
"""Characters of a text that is merged as a whole, without looking at all tokens for those that reach from one word into
the next."""


class SPM:
    """Text to ids.

    Args:
        strict: whether only normal tokens come of merges, as SentencePiece has it; else all, as llama.cpp has it.
            SentencePiece also takes unused tokens apart again, and joins unknown characters that stand together.
        fallback: whether characters outside the vocabulary become byte tokens if present, or else the unknown token.
    """

    def __init__(self, vocabulary: Vocabulary, *, strict: bool = False, fallback: bool = True) -> None:
        taken = (
            {text: token for text, token in vocabulary.ids.items() if vocabulary.kinds[token] in (NORMAL, UNUSED)}
            if strict
            else None
        )
        self._texts: Iterable[str] = vocabulary.texts if taken is None else taken
        self._getter = vocabulary.finder.getter if taken is None else lambda: taken.get
        self._scores = vocabulary.scores
        self._unused = (
            frozenset(vocabulary.texts[token] for token in vocabulary.of_kind(UNUSED)) if strict else frozenset()
        )
        self._unknown = vocabulary.roles.get("unk")
        self._bytes = [vocabulary.finder.get(f"<0x{byte:02X}>") for byte in range(256)] if fallback else [None] * 256
        self._joined = strict
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens.

        Where no token reaches from one word into the next, words are merged one by one, each of them once.
        """
        text = text.replace(" ", SPACE)
        if len(text) <= SHORT or not self._separable:
            return self._merge(text)
        found: list[int] = []
        for chunk in CHUNK.findall(text):
            known = self._known.get(chunk)
            if known is None:
                if len(self._known) >= CHUNKS_KEPT:
                    self._known.clear()
                known = self._known[chunk] = tuple(self._merge(chunk))
            if self._joined and found and known and found[-1] == known[0] == self._unknown:
                known = known[1:]
            found.extend(known)
        return found

    @cached_property
    def _separable(self) -> bool:
        return not any(CROSSING.search(text) for text in self._texts)

    def _merge(self, text: str) -> list[int]:
        find, found = self._getter(), list[int]()
        for symbol in self._symbols(text):
            token = find(symbol)
            tokens = [token] if token is not None else self._without_token(symbol)
            if not (self._joined and found and found[-1] == self._unknown and tokens == [self._unknown]):
                found.extend(tokens)
        return found

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """The pieces of a text, and whether each is a token; unknown symbols come one by one."""
        find = self._getter()
        return ((symbol, find(symbol) is not None) for symbol in self._symbols(text.replace(" ", SPACE)))

    def _symbols(self, text: str) -> Iterator[str]:
        """The merged symbols of a text; unused tokens are split again."""
        find, scores, unused = self._getter(), self._scores, self._unused
        halves: dict[str, tuple[str, str]] = {}

        def rank(one: str, other: str) -> float | None:
            if one + other in unused:
                halves[one + other] = one, other
            token = find(one + other)
            return None if token is None else -scores[token]

        stack = merged(list(text), rank)[::-1]
        while stack:
            symbol = stack.pop()
            if symbol in halves:
                stack.extend(reversed(halves[symbol]))
            else:
                yield symbol

    def _without_token(self, symbol: str) -> list[int]:
        known = [token for token in (self._bytes[byte] for byte in symbol.encode()) if token is not None]
        if len(known) == len(symbol.encode()):
            return known
        return [] if self._unknown is None else [self._unknown]
