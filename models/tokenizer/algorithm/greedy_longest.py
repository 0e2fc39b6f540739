"""RWKV's tokenizer: byte tokens, greedy longest match from left to right.

Source: RWKV's trie tokenizer; llama.cpp's llm_tokenizer_rwkv_session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.vocabulary import Vocabulary


class Longest:
    """Text to ids.

    Args:
        decode: the bytes of a token's text.
    """

    def __init__(self, vocabulary: Vocabulary, decode: Callable[[str], bytes]) -> None:
        pieces: Sequence[bytes] = [vocabulary.bytes_of(token, decode) for token in range(len(vocabulary))]
        self._ids = {piece: token for token, piece in enumerate(pieces) if piece}
        self._lengths: dict[bytes, list[int]] = {}
        for piece in self._ids:
            lengths = self._lengths.setdefault(piece[:2], [])
            if len(piece) not in lengths:
                lengths.append(len(piece))
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        self._unknown = vocabulary.roles.get("unk")

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        data, found, at = text.encode(), [], 0
        while at < len(data):
            length, token = self._at(data, at)
            if token is not None:
                found.append(token)
            at += length
        return found

    def _at(self, data: bytes, at: int) -> tuple[int, int | None]:
        for length in (*self._lengths.get(data[at : at + 2], ()), 1):
            token = self._ids.get(data[at : at + length])
            if token is not None and at + length <= len(data):
                return length, token
        return 1, self._unknown
