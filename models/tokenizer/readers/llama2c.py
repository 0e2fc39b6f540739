"""llama2.c's tokenizer.bin: the longest token's length, then score, length and bytes of each token, with plain spaces.

Source: llama2.c's tokenizer.py and run.c.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ..algorithm.sentencepiece_bpe import SPM
from ..core.special_split import Leftmost
from ..core.tokenizer import ByteEngine, Tokenizer
from ..core.vocabulary import BYTE, BYTE_TEXT, CONTROL, NORMAL, SPACE, UNKNOWN, Vocabulary, spaced_bytes

CODE = "E-TOKENIZER-LLAMA2C"
FIRST = (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL))
ROW = struct.Struct("<fi")


def looks_like(data: bytes) -> bool:
    """Whether a file begins with the three special tokens of every such file."""
    return len(data) > 24 and data[12:17] == b"<unk>"


def from_llama2c(data: bytes, templates: Mapping[str, str], path: str | None = None) -> Tokenizer:
    """The tokenizer of a tokenizer.bin."""
    texts: list[str] = []
    kinds: list[int] = []
    scores: list[float] = []
    at = 4
    while at < len(data):
        if len(data) - at < ROW.size:
            raise FormatError(CODE, path, "the last token breaks off", at=at)
        score, length = ROW.unpack_from(data, at)
        if not 0 <= length <= len(data) - at - ROW.size:
            raise FormatError(
                CODE,
                path,
                f"token {len(texts)} has {counted(length, 'byte')}, {len(data) - at - ROW.size:,} are left",
                at=at,
            )
        text = data[at + ROW.size : at + ROW.size + length].decode("utf-8", "replace").replace(" ", SPACE)
        at += ROW.size + length
        first = FIRST[len(texts)] if len(texts) < len(FIRST) else None
        texts.append(first[0] if first else text)
        kinds.append(first[1] if first else BYTE if BYTE_TEXT.fullmatch(text) else NORMAL)
        scores.append(score)
    if len(texts) < len(FIRST):
        raise FormatError(CODE, path, "has fewer tokens than the three that every vocabulary begins with")
    vocabulary = Vocabulary(texts, kinds, scores, {"unk": 0, "bos": 1, "eos": 2}, frozenset((1, 2)))
    words = _Prefixed(SPM(vocabulary, strict=True))
    engine = ByteEngine(
        vocabulary,
        spaced_bytes,
        words,
        Leftmost([(text, token) for token, (text, _) in enumerate(FIRST)]),
        Leftmost(()),
        leading=True,
    )
    return Tokenizer(vocabulary, engine, opening=[1], templates=templates, origin="llama2.c")


class _Prefixed:
    """A space prefix for every text that is not empty."""

    def __init__(self, words: SPM) -> None:
        self._words = words

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self._words.encode(f" {text}") if text else []
