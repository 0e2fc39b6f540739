"""Byte-pair encoding (BPE): pre-tokenized words in the byte alphabet, joined by ranked merges.

Source: Sennrich, Haddow and Birch, 2016; GPT-2's encoder; llama.cpp's llm_tokenizer_bpe_session for GGUF vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..core.vocabulary import SPACE, Vocabulary, byte_level
from .merge_loop import merged
from .pre_tokenizer import Splitting
from .regex_split import WHITE

WORDS_KEPT = 100_000
BETWEEN = re.compile(rf"[ \t-\r{''.join(sorted(WHITE))}]+")
"""White space."""


class BPE:
    """Words to ids.

    Args:
        merges: the two sides of every merge, in order of rank.
        splitting: the pre-tokenizer.
    """

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], splitting: Splitting) -> None:
        self._ids = vocabulary.ids
        ranks: dict[tuple[str, str], int] = {}
        for rank, pair in enumerate(merges):
            ranks.setdefault(pair, rank)
        self._ranks = ranks
        self._splitting = splitting
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        text = text.replace(" ", SPACE) if self._splitting.spaced else text
        found: list[int] = []
        for word in self._splitting.words(text):
            found.extend(self._word(byte_level(word) if self._splitting.byte_level else word))
        return found

    def _word(self, word: str) -> tuple[int, ...]:
        known = self._known.get(word)
        if known is None:
            if len(self._known) >= WORDS_KEPT:
                self._known.clear()
            known = self._known[word] = tuple(self._merge(word))
        return known

    def _merge(self, word: str) -> list[int]:
        whole = self._ids.get(word)
        if whole is not None and (self._splitting.whole_words or (self._splitting.newlines and not word.strip("\n"))):
            return [whole]
        ranks = self._ranks
        found = []
        for symbol in merged(list(word), lambda one, other: ranks.get((one, other))):
            token = self._ids.get(symbol)
            if token is not None:
                found.append(token)
            else:
                found.extend(part for part in map(self._ids.get, self._bytes(symbol)) if part is not None)
        return found

    def _bytes(self, symbol: str) -> list[str]:
        """Byte tokens of a symbol outside the vocabulary; bytes without a token are skipped."""
        return list(symbol) if self._splitting.byte_level else [f"<0x{byte:02X}>" for byte in symbol.encode()]


class Apart:
    """Words to ids, regardless of the white space between them.

    Args:
        lowercase: whether capitals count as small letters.
    """

    def __init__(self, words: BPE, lowercase: bool) -> None:
        self._words, self._lowercase = words, lowercase

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        text = (
            "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)
            if self._lowercase
            else text
        )
        return [token for word in BETWEEN.split(text) if word for token in self._words.encode(word)]
