"""Vocabulary: string, type and score of every token, special roles, and the bytes that tokens decode to.

Source: the ``tokenizer.ggml`` keys of the GGUF specification; llama.cpp's llama-vocab.cpp for what each type means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from ....runtime.base.dataclass import dataclass
from .token_lookup import Finder

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Token types, by GGUF's numbers."""
KINDS = {
    NORMAL: "normal",
    UNKNOWN: "unknown",
    CONTROL: "control",
    USER_DEFINED: "user-defined",
    UNUSED: "unused",
    BYTE: "byte",
}
SPACE = "▁"
"""U+2581, which represents a space in SentencePiece tokens."""
BYTE_TEXT = re.compile(r"<0x([0-9A-Fa-f]{2})>")
ROLES = (
    "bos",
    "eos",
    "eot",
    "eom",
    "unk",
    "sep",
    "pad",
    "cls",
    "mask",
    "fim_pre",
    "fim_suf",
    "fim_mid",
    "fim_pad",
    "fim_rep",
    "fim_sep",
)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id.

    Attributes:
        texts: of every token as its file has it: ``▁the`` (SentencePiece), ``Ġthe`` (byte level), ``\\\\n`` (RWKV).
        kinds: type of every token, one of `KINDS`.
        scores: of every token, empty if the vocabulary has no scores.
        roles: ids by their role, one of `ROLES`.
        ends: ids that end a generation.
    """

    texts: Sequence[str]
    kinds: Sequence[int]
    scores: Sequence[float] = ()
    roles: Mapping[str, int] = field(default_factory=dict)
    ends: frozenset[int] = frozenset()

    @cached_property
    def finder(self) -> Finder:
        """Lookup of ids by string."""
        return Finder(self.texts)

    @property
    def ids(self) -> Mapping[str, int]:
        """Ids by string."""
        return self.finder.ids

    def found_by(self, ids: Mapping[str, int]) -> Vocabulary:
        """The same tokens, looked up in a dictionary that has all of them."""
        made = replace(self)
        vars(made)["finder"] = Finder(self.texts, ids)
        return made

    def changed(self, kinds: Sequence[int], ends: frozenset[int]) -> Vocabulary:
        """The same tokens with other types and end ids."""
        made = replace(self, kinds=kinds, ends=ends)
        vars(made)["finder"] = self.finder
        return made

    def __len__(self) -> int:
        return len(self.texts)

    def of_kind(self, *kinds: int) -> list[int]:
        """Ids of tokens of the given types."""
        return [match.start() for match in re.finditer(b"[%b]" % re.escape(bytes(kinds)), bytes(self.kinds))]

    def is_special(self, token: int) -> bool:
        """Whether a token is a marker without text, or the unknown token."""
        return self.kinds[token] in (CONTROL, UNKNOWN)

    def bytes_of(self, token: int, decode: Callable[[str], bytes]) -> bytes:
        """The bytes of a token; `decode` maps a normal token's string to bytes."""
        text, kind = self.texts[token], self.kinds[token]
        byte = BYTE_TEXT.fullmatch(text) if kind == BYTE else None
        if byte:
            return bytes.fromhex(byte[1])
        return decode(text) if kind in (NORMAL, UNUSED, BYTE) else text.encode()


def _byte_alphabet() -> dict[int, str]:
    """The printable character for each byte that byte-level vocabularies are written in."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}


BYTE_LETTERS = _byte_alphabet()
LETTER_BYTES = {letter: byte for byte, letter in BYTE_LETTERS.items()}
BYTES_AS_TEXT = {byte: ord(letter) for byte, letter in BYTE_LETTERS.items()}


def byte_level(text: str) -> str:
    """Text in the alphabet of byte-level vocabularies."""
    return written(text.encode())


def written(data: bytes) -> str:
    """Bytes in that alphabet."""
    return data.decode("latin-1").translate(BYTES_AS_TEXT)


def letters_bytes(text: str) -> bytes:
    """The bytes that letters of that alphabet stand for; other characters stand for themselves."""
    return b"".join(bytes((LETTER_BYTES[letter],)) if letter in LETTER_BYTES else letter.encode() for letter in text)


def spaced_bytes(text: str) -> bytes:
    """The bytes of a token of SentencePiece."""
    return text.replace(SPACE, " ").encode()


def plain_bytes(text: str) -> bytes:
    """The bytes of a token that is written as it is."""
    return text.encode()


ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
ESCAPED = {"t": b"\t", "n": b"\n", "r": b"\r"}


def escaped_bytes(text: str) -> bytes:
    """The bytes of an RWKV token in GGUF, which escapes bytes that are not text as ``\\\\x00``."""
    parts, at = [], 0
    for match in ESCAPE.finditer(text):
        parts.append(text[at : match.start()].encode())
        parts.append(bytes.fromhex(match[1]) if match[1] else ESCAPED.get(match[2], match[2].encode()))
        at = match.end()
    return b"".join([*parts, text[at:].encode()])


def escaped(data: bytes) -> str:
    """Bytes as GGUF files write the tokens of RWKV: what is not printable ASCII by its number."""
    return repr(data)[2:-1]
