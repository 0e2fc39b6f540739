"""Tokenizer: text to ids and ids to text, whatever file the vocabulary came from."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ....runtime.errors import UsageError
from ....runtime.units import counted
from .partition import Fragment
from .vocabulary import ROLES, Vocabulary

MARKER = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|<(?:bos|eos|pad|unk|(?:start|end)_of_turn)>|\[(?:CLS|SEP|MASK|PAD)\]"
)
"""What models write their special tokens like."""


class Engine(Protocol):
    """What turns text into ids and back; texts have no BOS or EOS added."""

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text; `special`: whether the special tokens that stand in it are taken for such."""
        ...

    def decode(self, ids: Sequence[int], special: bool, first: bool) -> str:
        """Text of ids; `special`: with special tokens, `first`: whether it begins a text."""
        ...

    def stream(self, before: Sequence[int], special: bool) -> Stream:
        """A decoder of ids that come one by one."""
        ...


class Stream(Protocol):
    """Text of ids that come one by one."""

    def push(self, token: int) -> str:
        """The text that is certain with this id; characters of which bytes are missing wait for the next."""
        ...

    def finish(self) -> str:
        """What waits, incomplete characters as U+FFFD."""
        ...


class Tokenizer:
    """A vocabulary and the way to use it.

    Attributes:
        vocabulary: texts, types, scores, ids by role.
        opening: ids that begin a text (BOS, or CLS) unless one asks for none; empty where the model wants none.
        closing: ids that end a text (EOS, or SEP).
        templates: chat templates, by name; the usual one is ``default``.
        origin: what it was read from, in words.
        engine: what turns text into ids.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        engine: Engine,
        *,
        opening: Sequence[int] = (),
        closing: Sequence[int] = (),
        templates: Mapping[str, str] | None = None,
        origin: str = "",
    ) -> None:
        self.vocabulary = vocabulary
        self.opening, self.closing = tuple(opening), tuple(closing)
        self.templates = dict(templates or {})
        self.origin = origin
        self.engine = engine

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.origin}: {counted(len(self), 'token')}>"

    @property
    def bos(self) -> int | None:
        """The id that begins a text."""
        return self.vocabulary.roles.get("bos")

    @property
    def eos(self) -> int | None:
        """The id that ends a text."""
        return self.vocabulary.roles.get("eos")

    @property
    def unk(self) -> int | None:
        """The id of what has no other."""
        return self.vocabulary.roles.get("unk")

    @property
    def pad(self) -> int | None:
        """The id that fills batches."""
        return self.vocabulary.roles.get("pad")

    @property
    def ends(self) -> frozenset[int]:
        """The ids that end a generation: EOS, end of turn, end of message."""
        return self.vocabulary.ends

    def id_of(self, text: str) -> int | None:
        """The id of a token by its text as the vocabulary has it."""
        return self.vocabulary.finder.get(text)

    def encode(self, text: str, *, special: bool = True, add_bos: bool | None = None, add_eos: bool | None = None) -> list[int]:
        """The ids of a text.

        Args:
            special: whether special tokens that stand in the text become their ids; else they are text like any other.
            add_bos: whether the text begins with BOS; None for what the model was trained with.
            add_eos: whether it ends with EOS; None likewise.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError("E-TOKENIZER-TEXT", None, f"the text holds half of a surrogate pair at character {error.start}") from error
        first = self._added(self.opening, self.bos, add_bos, "BOS")
        last = self._added(self.closing, self.eos, add_eos, "EOS")
        return [*first, *self.engine.encode(text, special), *last]

    def _added(self, usual: tuple[int, ...], role: int | None, wanted: bool | None, name: str) -> tuple[int, ...]:
        if wanted is None or (wanted and usual):
            return usual
        if wanted and role is None:
            raise UsageError("E-TOKENIZER-ROLE", None, f"{name} was asked for, but the vocabulary has no such token")
        return (role,) if wanted and role is not None else ()

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids, bytes that are no UTF-8 as U+FFFD; `special`: with the texts of special tokens."""
        return self.engine.decode(self._checked(ids), special, True)

    def stream(self, before: Sequence[int] = (), *, special: bool = False) -> Stream:
        """A decoder for ids that come one by one, after `before`, whose text is not given again."""
        return self.engine.stream(self._checked(before), special)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        known = [int(token) for token in ids]
        wrong = next((token for token in known if not 0 <= token < len(self)), None)
        if wrong is not None:
            raise UsageError("E-TOKENIZER-ID", None, f"no token {wrong} in a vocabulary of {len(self):,}")
        return known

    def unknown_markers(self, text: str) -> list[str]:
        """What looks like a special token in a text and is none of this vocabulary."""
        return [marker for marker in dict.fromkeys(MARKER.findall(text)) if not self._is_token(marker)]

    def _is_token(self, marker: str) -> bool:
        return len(self.engine.encode(marker, True)) == 1 or self.id_of(marker) is not None

    def role_names(self) -> dict[str, str]:
        """Texts of the tokens with a role, as templates know them: ``bos_token`` and so on."""
        roles = self.vocabulary.roles
        return {f"{role}_token": self.vocabulary.texts[roles[role]] for role in ROLES if role in roles}


class Splitter(Protocol):
    """Finds special tokens."""

    def split(self, text: str) -> list[Fragment]:
        """Text and ids in order."""
        ...


class Words(Protocol):
    """Turns text without special tokens into ids."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ...


class Pieces:
    """The engine of vocabularies whose tokens are bytes.

    Args:
        decode: the bytes of a normal token's text.
        words: for the text between special tokens.
        every, own: finders of special tokens: of all, and of those that are taken for such in any text.
        prefixed: whether a text that begins, or follows a special token, gets a space before it.
        leading: whether a space that begins a text is left out when ids become text.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        decode: Callable[[str], bytes],
        words: Words,
        every: Splitter,
        own: Splitter,
        *,
        prefixed: bool = False,
        leading: bool = False,
    ) -> None:
        self._vocabulary, self._decode, self._words = vocabulary, decode, words
        self._every, self._own = every, own
        self._prefixed, self._leading = prefixed, leading

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text."""
        found: list[int] = []
        after_special = True
        for fragment in (self._every if special else self._own).split(text):
            if isinstance(fragment, int):
                found.append(fragment)
                after_special = True
                continue
            found += self._words.encode(f" {fragment}" if self._prefixed and after_special else fragment)
            after_special = False
        return found

    def bytes_of(self, token: int, special: bool) -> bytes:
        """The bytes of a token, none for special ones unless `special`."""
        return b"" if not special and self._vocabulary.is_special(token) else self._vocabulary.bytes_of(token, self._decode)

    def decode(self, ids: Sequence[int], special: bool, first: bool) -> str:
        """Text of ids."""
        data = b"".join(self.bytes_of(token, special) for token in ids)
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if first and self._leading else text

    def stream(self, before: Sequence[int], special: bool) -> Stream:
        """A decoder of ids that come one by one."""
        return ByteStream(self, special, self._leading and not any(self.bytes_of(token, False) for token in before))


class ByteStream:
    """Text of tokens that are bytes."""

    def __init__(self, engine: Pieces, special: bool, strip: bool) -> None:
        self._engine, self._special, self._strip = engine, special, strip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is certain with this id."""
        return self._stripped(self._decoder.decode(self._engine.bytes_of(token, self._special)))

    def finish(self) -> str:
        """What waits."""
        return self._stripped(self._decoder.decode(b"", True))

    def _stripped(self, text: str) -> str:
        if text and self._strip:
            self._strip = False
            return text.removeprefix(" ")
        return text
