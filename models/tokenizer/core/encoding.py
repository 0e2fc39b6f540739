"""Encodings: texts and pairs of texts with special tokens and segments, cut to a length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....runtime.base.dataclass import dataclass

Text = str | tuple[str, str]
"""A text, or a pair of texts that a model reads as one."""
DOUBLE_CLOSING = "</s>"
"""The separator that stands twice between the texts of a pair (RoBERTa's)."""


class Encoding(Protocol):
    """The tokens of a text or pair. Encodings of the tokenizers library have more: the characters of each token.

    Attributes:
        ids: with special tokens.
        type_ids: segment of each token: 0, and 1 for the second text where the template says so.
    """

    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def type_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class PlainEncoding:
    """The tokens of a text or pair."""

    ids: Sequence[int]
    type_ids: Sequence[int]


def kept(first: int, second: int, most: int) -> tuple[int, int]:
    """Tokens that are kept of each text of a pair so that they are `most` together: the longer one is cut first, as
    the tokenizers library does (``longest_first``)."""
    if first + second <= most:
        return first, second
    short, long = sorted((first, second))
    long = short if short > most else max(short, most - short)
    if short + long > most:
        short, long = most // 2, most - most // 2
    return (long, short) if first > second else (short, long)


@dataclass(frozen=True)
class Around:
    """The special tokens around texts, of tokenizers without a template of their own.

    Attributes:
        opening, closing: ids before a text or pair, and after each text.
        doubled: whether the closing tokens stand twice between two texts, which are one segment then.
    """

    opening: Sequence[int]
    closing: Sequence[int]
    doubled: bool

    def joined(self, parts: Sequence[Sequence[int]], limit: int | None) -> tuple[PlainEncoding, int]:
        """The tokens of a text, or of two as a pair, cut to `limit`, and how many they are uncut."""
        between = [*self.closing, *self.closing] if self.doubled else self.closing
        special = len(self.opening) + len(self.closing) + (len(between) if len(parts) > 1 else 0)
        lengths = [len(part) for part in parts]
        count = sum(lengths) + special
        if limit is not None and count > limit:
            room = max(limit - special, 0)
            lengths = [room] if len(parts) == 1 else list(kept(lengths[0], lengths[1], room))
        first, *others = (part[:length] for part, length in zip(parts, lengths, strict=True))
        if not others:
            ids = [*self.opening, *first, *self.closing]
            return PlainEncoding(ids, [0] * len(ids)), count
        head, tail = [*self.opening, *first, *between], [*others[0], *self.closing]
        return PlainEncoding([*head, *tail], [0] * len(head) + [0 if self.doubled else 1] * len(tail)), count
