"""SentencePiece's byte-pair encoding: the neighbours whose union has the best score are joined first; what is no token becomes bytes.

Source: Kudo and Richardson, 2018; llama.cpp's llm_tokenizer_spm_session for GGUF vocabularies.
"""

from __future__ import annotations

import re

from .merging import merged
from .vocabulary import SPACE, Vocabulary

CHUNK = re.compile(rf"{SPACE}*[^{SPACE}]*")
CROSSING = re.compile(rf"[^{SPACE}]{SPACE}")
"""A token that holds a space behind something else."""
CHUNKS_KEPT = 100_000


class SPM:
    """Text whose spaces are `SPACE` to ids."""

    def __init__(self, vocabulary: Vocabulary, mergeable: frozenset[int] | None = None, unknown: int | None = None) -> None:
        self._ids = {text: token for token, text in enumerate(vocabulary.texts)}
        self._order = {
            text: -vocabulary.scores[token] for text, token in self._ids.items() if mergeable is None or token in mergeable
        }
        self._separable = not any(CROSSING.search(text) for text in self._order)
        self._unknown = unknown
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens, its spaces being `SPACE` already.

        Where no token reaches from one word into the next, words are merged one by one, each of them once.
        """
        if not self._separable:
            return self._merge(text)
        found: list[int] = []
        for chunk in CHUNK.findall(text):
            known = self._known.get(chunk)
            if known is None:
                if len(self._known) >= CHUNKS_KEPT:
                    self._known.clear()
                known = self._known[chunk] = tuple(self._merge(chunk))
            found.extend(known)
        return found

    def _merge(self, text: str) -> list[int]:
        order = self._order
        found: list[int] = []
        for symbol in merged(list(text), lambda one, other: order.get(one + other)):
            token = self._ids.get(symbol)
            found.extend((token,) if token is not None else self._bytes(symbol))
        return found

    def _bytes(self, symbol: str) -> list[int]:
        tokens = [self._ids.get(f"<0x{byte:02X}>") for byte in symbol.encode()]
        known = [token for token in tokens if token is not None]
        if len(known) == len(tokens):
            return known
        return [] if self._unknown is None else [self._unknown]
