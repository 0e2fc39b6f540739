"""WordPiece: words split at white space and punctuation, then greedy longest match; GGUF marks word starts with ``▁``.

As llama.cpp has it, of a character that is composed only the first part stays where accents are stripped; transformers
keeps all parts except accents, which makes a difference for Korean and some scripts of India.

Source: Devlin et al., 2018; llama.cpp's llm_tokenizer_wpm_session.
"""

from __future__ import annotations

import re
import unicodedata

from ..core.vocabulary import SPACE, Vocabulary
from .regex_split import WHITE

CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""Characters that are words of their own."""
SPACES = frozenset("\t\n\v\f\r ") | WHITE
BETWEEN = re.compile(f"[{''.join(sorted(SPACES))}]+")
MAX_KNOWN, MAX_KNOWN_LENGTH = 1 << 15, 32
"""Maximum number of pieces between spaces that are remembered with their ids, and characters of the longest."""


class WordPiece:
    """Text to ids; `lowercase` and `stripped` (of accents) as the model was trained."""

    def __init__(self, vocabulary: Vocabulary, *, lowercase: bool, stripped: bool) -> None:
        self._ids = vocabulary.ids
        self._longest = max(map(len, vocabulary.texts), default=0)
        self._unknown = vocabulary.roles.get("unk")
        self._lowercase, self._stripped = lowercase, stripped
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        found: list[int] = []
        for piece in BETWEEN.split(text):
            ids = self._known.get(piece)
            if ids is None:
                ids = self._encoded(piece)
                if len(piece) <= MAX_KNOWN_LENGTH and len(self._known) < MAX_KNOWN:
                    self._known[piece] = ids
            found += ids
        return found

    def _encoded(self, text: str) -> list[int]:
        found: list[int] = []
        for word in self._words(text):
            pieces = self._pieces(SPACE + word)
            found += pieces or ([] if self._unknown is None else [self._unknown])
        return found

    def _pieces(self, word: str) -> list[int]:
        """Tokens of a word, or none if part of it is not in the vocabulary."""
        found, at = [], 0
        while at < len(word):
            for stop in range(min(len(word), at + self._longest), at, -1):
                token = self._ids.get(word[at:stop])
                if token is not None:
                    break
            else:
                return []
            found.append(token)
            at = stop
        return found

    def _words(self, text: str) -> list[str]:
        words = [""]
        for character in (unicodedata.normalize("NFD", composed)[0] for composed in text) if self._stripped else text:
            category = unicodedata.category(character)
            if character in SPACES:
                words.append("")
            elif (
                character in "\0\ufffd"
                or category in ("Cc", "Cf", "Co", "Cs")
                or (self._stripped and category[0] == "M")
            ):
                continue
            else:
                one = character.lower()[0] if self._lowercase else character
                alone = (
                    category[0] == "P"
                    or (character < "\x7f" and category[0] == "S")
                    or any(a <= ord(character) <= b for a, b in CHINESE)
                )
                if alone:
                    words += [one, ""]
                else:
                    words[-1] += one
        return [word for word in words if word]
