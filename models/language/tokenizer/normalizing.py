"""SentencePiece's normalization: characters replaced by a map, spaces joined, written as ``▁``, and put before the text.

Source: SentencePiece's Normalizer; llama.cpp's llm_tokenizer_ugm_session::normalize for GGUF vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....runtime.record import dataclass
from .charsmap import Charsmap
from .vocabulary import SPACE

SPACES = re.compile(" +")


@dataclass(frozen=True)
class Normalizer:
    """What is done to a text before it is cut into tokens.

    Attributes:
        charsmap: replacements of characters, None where there are none.
        prefixed: whether the text gets a space before it; suffixed: behind it instead.
        joined: whether several spaces become one, and those at the ends none.
        escaped: whether spaces become ``▁``.
        kept: texts that stay as they are.
        always_prefixed: whether a text of spaces alone gets one before it too (as SentencePiece has it, not llama.cpp).
    """

    charsmap: Charsmap | None = None
    prefixed: bool = True
    suffixed: bool = False
    joined: bool = True
    escaped: bool = True
    kept: Sequence[str] = ()
    always_prefixed: bool = True

    def normalized(self, text: str) -> str:
        """The text as its tokens are written."""
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
        kept = {len(text[: match.start()].encode()): match[0].encode() for match in pattern.finditer(text)} if pattern else {}
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
    """Bytes of a character that begins so."""
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
