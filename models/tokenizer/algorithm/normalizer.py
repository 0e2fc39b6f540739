"""SentencePiece normalization: character map, whitespace collapsing, ``▁`` escapes and the dummy prefix.

Source: SentencePiece's Normalizer; llama.cpp's llm_tokenizer_ugm_session::normalize for GGUF vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....runtime.base.dataclass import dataclass
from ..core.vocabulary import SPACE
from .charsmap import Charsmap

SPACES = re.compile(" +")


@dataclass(frozen=True)
class Normalizer:
    """Text normalization before tokenization.

    Attributes:
        charsmap: precompiled character map or None.
        prefixed: whether a space is added before the text; suffixed: after it instead.
        joined: whether runs of spaces collapse, and those at the ends are removed.
        escaped: whether spaces become ``▁``.
        kept: strings that are left unchanged.
        always_prefixed: whether text of only spaces gets the prefix too (as in SentencePiece, not llama.cpp).
    """

    charsmap: Charsmap | None = None
    prefixed: bool = True
    suffixed: bool = False
    joined: bool = True
    escaped: bool = True
    kept: Sequence[str] = ()
    always_prefixed: bool = True

    def normalized(self, text: str) -> str:
        """The normalized text."""
        if not text:
            return ""
        text = self._mapped(text) if self.charsmap is not None else text
        if self.joined:
            text = SPACES.sub(" ", text).strip(" ")
            if not text:
                return ""
        if self.prefixed and (self.always_prefixed or text.strip(" ")):
            text = f"{text} " if self.suffixed else f" {text}"
        return text.replace(" ", SPACE) if self.escaped else text

    def _mapped(self, text: str) -> str:
        assert self.charsmap is not None
        pattern = re.compile("|".join(map(re.escape, sorted(self.kept, key=len, reverse=True)))) if self.kept else None
        data, parts, at = text.encode(), [], 0
        kept = (
            {len(text[: match.start()].encode()): match[0].encode() for match in pattern.finditer(text)}
            if pattern
            else {}
        )
        while at < len(data):
            if at in kept:
                parts.append(kept[at])
                at += len(kept[at])
                continue
            found = self.charsmap.match(data, at)
            if found is None:
                length = _length(data[at])
                parts.append(data[at : at + length])
                at += length
            else:
                parts.append(found[0])
                at += found[1]
        return b"".join(parts).decode("utf-8", "replace")


def _length(lead: int) -> int:
    """Length of the UTF-8 character with this first byte."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
