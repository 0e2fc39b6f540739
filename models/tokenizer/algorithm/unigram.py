"""Unigram language model: the segmentation of a text with the highest total score (Viterbi).

Source: Kudo, 2018; SentencePiece's EncodeOptimized; llama.cpp's llm_tokenizer_ugm_session for GGUF vocabularies.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from ..core.vocabulary import NORMAL, UNUSED, USER_DEFINED, Vocabulary
from .normalizer import Normalizer
from .sentencepiece_bpe import CHUNK, CHUNKS_KEPT, CROSSING

PENALTY = 10.0
"""Penalty of an unknown character below the worst token's score."""


class Unigram:
    """Text to ids.

    Args:
        own_score: of a user-defined token, by its text and the best score of a normal one.
        unused: whether tokens that are marked as unused are taken too.
        fallback: whether unknown characters become tokens of bytes.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        normalizer: Normalizer,
        own_score: Callable[[str, float], float],
        *,
        unused: bool,
        fallback: bool,
    ) -> None:
        normal = [score for kind, score in zip(vocabulary.kinds, vocabulary.scores, strict=True) if kind == NORMAL]
        best, worst = max(normal, default=0.0), min(normal, default=0.0)
        taken = (NORMAL, USER_DEFINED, UNUSED) if unused else (NORMAL, USER_DEFINED)
        self._ids = {
            text: token
            for token, (text, kind) in enumerate(zip(vocabulary.texts, vocabulary.kinds, strict=True))
            if kind in taken and text
        }
        self._scores = array("d", vocabulary.scores)
        for text, token in self._ids.items():
            if vocabulary.kinds[token] == USER_DEFINED:
                self._scores[token] = own_score(text, best)
        self._longest: dict[str, int] = {}
        for text in self._ids:
            self._longest[text[0]] = max(self._longest.get(text[0], 0), len(text))
        self._unknown_score = worst - PENALTY
        self._unknown = vocabulary.roles.get("unk", 0)
        self._bytes = (
            [token for byte in range(256) for token in _ids(vocabulary, f"<0x{byte:02X}>")] if fallback else []
        )
        self._normalizer = normalizer
        self._separable = not any(CROSSING.search(text) for text in self._ids)
        self._known: dict[str, list[tuple[str, int]]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        found: list[int] = []
        after_unknown = False
        for piece, token in self._tokens(text):
            if token >= 0:
                found.append(token)
            elif len(self._bytes) == 256:
                found += [self._bytes[byte] for byte in piece.encode()]
            elif not after_unknown:
                found.append(self._unknown)
            after_unknown = token < 0
        return found

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """The pieces of the normalized text, and whether each is a token; unknown characters come one by one."""
        return ((piece, token >= 0) for piece, token in self._tokens(text))

    def _tokens(self, text: str) -> Iterator[tuple[str, int]]:
        text = self._normalizer.normalized(text)
        for chunk in CHUNK.findall(text) if self._separable else (text,):
            yield from self._chunk(chunk)

    def _chunk(self, chunk: str) -> list[tuple[str, int]]:
        """The tokens of a part of a text into which no token reaches from outside, each part worked out once."""
        known = self._known.get(chunk)
        if known is None:
            if len(self._known) >= CHUNKS_KEPT:
                self._known.clear()
            known = self._known[chunk] = [(chunk[start:stop], token) for start, stop, token in self._cuts(chunk)]
        return known

    def _cuts(self, text: str) -> list[tuple[int, int, int]]:
        """Start, stop and id of every token of the best way, -1 for an unknown character."""
        ids, scores, longest = self._ids, self._scores, self._longest
        best = [float("-inf")] * (len(text) + 1)
        best[0] = 0.0
        ways: list[tuple[int, int]] = [(0, -1)] * (len(text) + 1)
        for start, first in enumerate(text):
            so_far = best[start]
            known = False
            for stop in range(start + 1, min(len(text), start + longest.get(first, 0)) + 1):
                token = ids.get(text[start:stop])
                if token is not None:
                    known = known or stop == start + 1
                    score = so_far + scores[token]
                    if score > best[stop]:
                        best[stop], ways[stop] = score, (start, token)
            if not known and so_far + self._unknown_score > best[start + 1]:
                best[start + 1], ways[start + 1] = so_far + self._unknown_score, (start, -1)
        found, stop = [], len(text)
        while stop > 0:
            start, token_id = ways[stop]
            found.append((start, stop, token_id))
            stop = start
        return found[::-1]


def _ids(vocabulary: Vocabulary, text: str) -> list[int]:
    return [token for token in (vocabulary.ids.get(text),) if token is not None]
