"""Tokenizer: text to ids and ids to text, whatever file the vocabulary came from."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ....runtime.base.errors import UsageError
from ....runtime.base.units import counted
from .encoding import DOUBLE_CLOSING, Around, Encoding, Text
from .special_split import Fragment
from .vocabulary import ROLES, Vocabulary

if TYPE_CHECKING:
    from .languages import Languages

MARKER = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^｜<>\s]{1,40}｜>|</?s>|<(?:bos|eos|pad|unk|(?:start|end)_of_turn)>"
    r"|\[(?:CLS|SEP|MASK|PAD)\]"
)
"""Pattern of special tokens as models write them."""


class Engine(Protocol):
    """Encoder and decoder without BOS and EOS."""

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text; `special`: whether special tokens in the text become their ids."""
        ...

    def decode(self, ids: Sequence[int], special: bool, first: bool) -> str:
        """Text of ids; `special`: include special tokens, `first`: whether the ids begin a text."""
        ...

    def stream(self, before: Sequence[int], special: bool) -> Stream:
        """A streaming decoder."""
        ...


@runtime_checkable
class TemplateEngine(Protocol):
    """Engine with a template for special tokens and pairs."""

    def encodings(self, texts: Sequence[Text], limit: int | None) -> list[tuple[Encoding, int]]:
        """Tokens of texts and pairs, cut to `limit`, and how many they are uncut."""
        ...


class Stream(Protocol):
    """Streaming decoder: text of ids that come one by one."""

    def push(self, token: int) -> str:
        """The text completed by this id; characters with missing bytes are held back."""
        ...

    def finish(self) -> str:
        """The text held back, incomplete characters as U+FFFD."""
        ...


class Tokenizer:
    """A vocabulary with its encoder and decoder.

    Attributes:
        vocabulary: strings, types, scores, ids by role.
        opening: ids that begin a text by default (BOS or CLS); empty if the model expects none.
        closing: ids that end a text by default (EOS or SEP).
        templates: chat templates by name; the default one is ``default``.
        origin: description of the source file.
        engine: encoder and decoder.
        find_languages: finds the languages of a translation model when they are needed.
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
        self.find_languages: Callable[[], Languages | None] = lambda: None

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.origin}: {counted(len(self), 'token')}>"

    @property
    def bos(self) -> int | None:
        """The BOS id."""
        return self.vocabulary.roles.get("bos")

    @property
    def eos(self) -> int | None:
        """The EOS id."""
        return self.vocabulary.roles.get("eos")

    @property
    def unk(self) -> int | None:
        """The id of the unknown token."""
        return self.vocabulary.roles.get("unk")

    @property
    def pad(self) -> int | None:
        """The padding id."""
        return self.vocabulary.roles.get("pad")

    @property
    def ends(self) -> frozenset[int]:
        """Ids that end a generation: EOS, end of turn, end of message."""
        return self.vocabulary.ends

    def id_of(self, text: str) -> int | None:
        """The id of a token by its string in the vocabulary, or None."""
        return self.vocabulary.finder.get(text)

    def encode(
        self, text: str, *, special: bool = True, add_bos: bool | None = None, add_eos: bool | None = None
    ) -> list[int]:
        """The ids of a text.

        Args:
            special: whether special tokens in the text become their ids; otherwise they are encoded as text.
            add_bos: whether to prepend BOS; None for the model's default.
            add_eos: whether to append EOS; None for the model's default.
        """
        _check_text(text)
        first = self._added(self.opening, self.bos, add_bos, "BOS")
        last = self._added(self.closing, self.eos, add_eos, "EOS")
        return [*first, *self.engine.encode(text, special), *last]

    def encodings(self, texts: Sequence[Text], limit: int | None = None) -> list[tuple[Encoding, int]]:
        """The tokens of texts and pairs, with special tokens and segments, and how many there are uncut.

        Args:
            limit: tokens that are kept of each, special ones included; of a pair the longer text is cut first.
        """
        for text in texts:
            for part in (text,) if isinstance(text, str) else text:
                _check_text(part)
        if isinstance(self.engine, TemplateEngine):
            return self.engine.encodings(texts, limit)
        doubled = bool(self.opening) and [self.vocabulary.texts[token] for token in self.closing] == [DOUBLE_CLOSING]
        around = Around(self.opening, self.closing, doubled)
        parts = (((text,) if isinstance(text, str) else text) for text in texts)
        return [around.joined([self.engine.encode(part, True) for part in each], limit) for each in parts]

    @cached_property
    def languages(self) -> Languages | None:
        """The languages of a translation model, None for other models."""
        return self.find_languages()

    def encode_source(self, text: str, source: str | None = None, target: str | None = None) -> list[int]:
        """The ids of a text for an encoder-decoder.

        Args:
            source, target: codes of the text's language and of the one that it is translated into; None for those that
                the model's files state.

        UsageError for languages that the model does not know.
        """
        if self.languages is None:
            if source or target:
                raise UsageError("E-LANGUAGE", None, "the model has no languages", found=source or target)
            return self.encode(text)
        return self.languages.marked(self.encode(text, add_bos=False, add_eos=False), source, target)

    def _added(self, usual: tuple[int, ...], role: int | None, wanted: bool | None, name: str) -> tuple[int, ...]:
        if wanted is None or (wanted and usual):
            return usual
        if wanted and role is None:
            raise UsageError("E-TOKENIZER-ROLE", None, f"{name} was asked for, but the vocabulary has no such token")
        return (role,) if wanted and role is not None else ()

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids, invalid UTF-8 as U+FFFD; `special`: include the special tokens' text."""
        return self.engine.decode(self._checked(ids), special, True)

    def stream(self, before: Sequence[int] = (), *, special: bool = False) -> Stream:
        """A streaming decoder after the ids `before`, whose text is not repeated."""
        return self.engine.stream(self._checked(before), special)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        known = [int(token) for token in ids]
        wrong = next((token for token in known if not 0 <= token < len(self)), None)
        if wrong is not None:
            raise UsageError("E-TOKENIZER-ID", None, f"no token {wrong} in a vocabulary of {len(self):,}")
        return known

    def unknown_markers(self, text: str) -> list[str]:
        """Strings in a text that look like special tokens but are not in this vocabulary."""
        return [marker for marker in dict.fromkeys(MARKER.findall(text)) if not self._is_token(marker)]

    def _is_token(self, marker: str) -> bool:
        return len(self.engine.encode(marker, True)) == 1 or self.id_of(marker) is not None

    def role_names(self) -> dict[str, str]:
        """Strings of special tokens by the names that templates use: ``bos_token`` and so on."""
        roles = self.vocabulary.roles
        return {f"{role}_token": self.vocabulary.texts[roles[role]] for role in ROLES if role in roles}


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "E-TOKENIZER-TEXT", None, f"the text contains an unpaired surrogate at character {error.start}"
        ) from error


class Splitter(Protocol):
    """Finds special tokens."""

    def split(self, text: str) -> list[Fragment]:
        """Text and ids in order."""
        ...


class TextEncoder(Protocol):
    """Encodes text without special tokens."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ...


class ByteEngine:
    """Engine of vocabularies whose tokens are byte strings.

    Args:
        decode: maps a normal token's string to bytes.
        words: encoder of the text between special tokens.
        every, own: splitters at all special tokens, and at those recognized in any text.
        prefixed: whether text at the start or after a special token gets a space prefix.
        begun: whether a text gets one that begins with neither a special token nor a space.
        leading: whether a leading space is dropped when decoding.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        decode: Callable[[str], bytes],
        words: TextEncoder,
        every: Splitter,
        own: Splitter,
        *,
        prefixed: bool = False,
        begun: bool = False,
        leading: bool = False,
    ) -> None:
        self._vocabulary, self._decode, self._words = vocabulary, decode, words
        self._every, self._own = every, own
        self._prefixed, self._begun, self._leading = prefixed, begun, leading

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text."""
        found: list[int] = []
        after_special = True
        for fragment in (self._every if special else self._own).split(text):
            if isinstance(fragment, int):
                found.append(fragment)
                after_special = True
                continue
            begins = self._begun and not found and not fragment.startswith(" ")
            prefixed = begins or (self._prefixed and after_special)
            found += self._words.encode(f" {fragment}" if prefixed else fragment)
            after_special = False
        return found

    def bytes_of(self, token: int, special: bool) -> bytes:
        """The bytes of a token, empty for special tokens unless `special`."""
        return (
            b""
            if not special and self._vocabulary.is_special(token)
            else self._vocabulary.bytes_of(token, self._decode)
        )

    def decode(self, ids: Sequence[int], special: bool, first: bool) -> str:
        """Text of ids."""
        data = b"".join(self.bytes_of(token, special) for token in ids)
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if first and self._leading else text

    def stream(self, before: Sequence[int], special: bool) -> Stream:
        """A streaming decoder."""
        return ByteStream(self, special, self._leading and not any(self.bytes_of(token, False) for token in before))


class ByteStream:
    """Streaming decoder of byte tokens."""

    def __init__(self, engine: ByteEngine, special: bool, strip: bool) -> None:
        self._engine, self._special, self._strip = engine, special, strip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text completed by this id."""
        return self._stripped(self._decoder.decode(self._engine.bytes_of(token, self._special)))

    def finish(self) -> str:
        """The text held back."""
        return self._stripped(self._decoder.decode(b"", True))

    def _stripped(self, text: str) -> str:
        if text and self._strip:
            self._strip = False
            return text.removeprefix(" ")
        return text
