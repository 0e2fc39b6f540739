"""Tokenizers from tokenizer.json, run by the tokenizers library, with special tokens and templates of the accompanying
files.

Source: the tokenizers library; transformers' PreTrainedTokenizerFast for the files next to it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error, FormatError, LimitError, UnsupportedError, UsageError
from ....runtime.base.units import counted
from ..core.encoding import Text, kept
from ..core.special_roles import end_tokens, found_by_text
from ..core.tokenizer import Tokenizer
from ..core.vocabulary import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary
from .vet_tokenizer_json import PROBE, Gate, check_ids, vetted

if TYPE_CHECKING:
    import tokenizers

ROLE_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
INCOMPLETE = "\ufffd"
ERRORS = 2
"""File descriptor of standard error."""
_printing = threading.Lock()
NEEDED = 10
"""Number of previous ids that a token's text can depend on."""


@dataclass(frozen=True)
class CompanionFiles:
    """Contents of the files that accompany a tokenizer.json, each a JSON object; empty if missing."""

    config: Mapping[str, Any]
    special: Mapping[str, Any]
    generation: Mapping[str, Any]
    model: Mapping[str, Any]


def from_json(
    text: str, companion_files: CompanionFiles, templates: Mapping[str, str], path: str | None = None
) -> Tokenizer:
    """The tokenizer in a tokenizer.json."""
    gate = vetted(text, path)
    return from_engine(parsed(text, path), companion_files, templates, "tokenizer.json", gate, path)


def library(path: str | None) -> ModuleType:
    """The tokenizers library. UnsupportedError if it is not installed."""
    try:
        import tokenizers
    except ModuleNotFoundError as error:
        hint = "Install it with pip install tokenizers, or open a GGUF file of the model"
        why = "tokenizer.json is read by the tokenizers library, which is not installed"
        raise UnsupportedError("E-TOKENIZER-LIBRARY", path, why, hint=hint) from error
    return tokenizers


def parsed(text: str, path: str | None) -> tokenizers.Tokenizer:
    """The library's tokenizer for a tokenizer.json."""
    engine = library(path).Tokenizer
    with guarded(path), unprinted():
        return engine.from_str(text)


@contextlib.contextmanager
def guarded(path: str | None) -> Iterator[None]:
    """Errors of the library as ours: it raises plain `Exception` for what it cannot use, and a panic, which is no
    `Exception`, where it gives up."""
    try:
        yield
    except (Error, MemoryError):
        raise
    except BaseException as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:200]
        if type(error).__name__ == "PanicException":
            hint = "One of its patterns needs too many steps, or its parts contradict each other"
            raise LimitError(
                "E-TOKENIZER-PANIC", path, f"the tokenizers library panicked on the tokenizer: {said}", hint=hint
            ) from error
        if type(error) is not Exception:
            raise
        raise FormatError("E-TOKENIZER-JSON", path, f"the tokenizers library rejects the tokenizer: {said}") from error


@contextlib.contextmanager
def unprinted() -> Iterator[None]:
    """Drop the backtrace that the library prints to standard error when it panics; other output is delayed until the
    end."""
    with _printing, _temporary() as kept:
        try:
            usual = os.dup(ERRORS)
        except OSError:  # it is closed
            yield
            return
        os.dup2(kept.fileno(), ERRORS)
        try:
            yield
        finally:
            os.dup2(usual, ERRORS)
            os.close(usual)
            kept.seek(0)
            others = kept.read().partition(b"\nthread '")[0]
            if others:
                os.write(ERRORS, others)


def _temporary() -> IO[bytes]:
    """A file that ends with its use; without a folder for such files one that keeps nothing."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")


def from_engine(
    engine: tokenizers.Tokenizer,
    companion_files: CompanionFiles,
    templates: Mapping[str, str],
    origin: str,
    gate: Gate | None = None,
    path: str | None = None,
) -> Tokenizer:
    """A tokenizer run by the library, through a gate if its parts need one."""
    with guarded(path), unprinted():
        engine.no_truncation()
        engine.no_padding()
        vocabulary = _vocabulary(engine, companion_files, path)
        opening, closing = _around(engine)
    told = f"{origin}, {type(engine.model).__name__}"
    return Tokenizer(
        vocabulary, Library(engine, gate, path), opening=opening, closing=closing, templates=templates, origin=told
    )


def _vocabulary(engine: tokenizers.Tokenizer, companion_files: CompanionFiles, path: str | None) -> Vocabulary:
    ids = engine.get_vocab(with_added_tokens=True)
    check_ids(ids.values(), len(ids), "the vocabulary", "E-TOKENIZER-JSON", path)
    count = max(ids.values(), default=-1) + 1
    texts = [f"[PAD{token}]" for token in range(count)]
    kinds = [NORMAL] * count
    for text, token in ids.items():
        texts[token] = text
    for token, added in engine.get_added_tokens_decoder().items():
        kinds[token] = CONTROL if added.special else USER_DEFINED
    roles = {role: ids[name] for role in ROLE_NAMES if (name := token_text(companion_files, role)) in ids}
    if "unk" in roles and kinds[roles["unk"]] != NORMAL:
        kinds[roles["unk"]] = UNKNOWN
    vocabulary = Vocabulary(texts, kinds, roles=roles)
    roles |= found_by_text(vocabulary)
    said = [
        token
        for settings in (companion_files.generation, companion_files.model)
        for token in _listed(settings.get("eos_token_id"))
        if token < count
    ]
    return Vocabulary(texts, kinds, roles=roles, ends=end_tokens(vocabulary) | set(said))


def token_text(companion_files: CompanionFiles, role: str) -> str | None:
    """The string of a role's token in the configuration: a string, or an object that holds it."""
    for said in (companion_files.config, companion_files.special):
        value = said.get(f"{role}_token")
        value = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(value, str):
            return value
    return None


def _listed(value: Any) -> list[int]:
    return [
        item
        for item in (value if isinstance(value, list) else [value])
        if isinstance(item, int) and not isinstance(item, bool) and item >= 0
    ]


def _around(engine: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """Ids that the post-processor adds before and after a text."""
    bare, whole = engine.encode(PROBE, add_special_tokens=False).ids, engine.encode(PROBE).ids
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    return [], []


class Library:
    """The engine of tokenizers that the library runs."""

    def __init__(self, engine: tokenizers.Tokenizer, gate: Gate | None = None, path: str | None = None) -> None:
        self.library = engine
        self._gate, self._path = gate, path

    def check(self, texts: Sequence[str]) -> None:
        """Raise LimitError or FormatError if the library would hang or fail on one of the strings."""
        if self._gate is not None:
            self._gate.encoding(texts)

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text."""
        self.check((text,))
        self.library.encode_special_tokens = not special
        with guarded(self._path):
            return self.library.encode(text, add_special_tokens=False).ids

    def encodings(self, texts: Sequence[Text], limit: int | None) -> list[tuple[tokenizers.Encoding, int]]:
        """Tokens of texts and pairs, cut to `limit`, and how many they are uncut."""
        self._check_parts(texts)
        self.library.encode_special_tokens = False
        with guarded(self._path):
            whole = self.library.encode_batch(list(texts))
            return [(self._cut(text, found, limit), len(found)) for text, found in zip(texts, whole, strict=True)]

    def windows(self, question: str, context: str, limit: int, stride: int) -> list[tokenizers.Encoding]:
        """Tokens of a question with parts of a context that has more than `limit` tokens with it; neighbours share
        `stride` tokens. Raises UsageError if the question leaves no tokens for the context."""
        self._check_parts((question, context))
        self.library.encode_special_tokens = False
        with guarded(self._path):
            asked, given = (self.library.encode(text, add_special_tokens=False) for text in (question, context))
            room = limit - len(asked) - self.library.num_special_tokens_to_add(True)
            if room <= stride:
                raise UsageError(
                    "E-TEXT-LONG",
                    None,
                    "the question leaves no tokens for the context",
                    expected=f"less than {counted(limit - stride, 'token')}",
                    found=f"{len(asked):,}",
                    hint="Shorten the question",
                )
            given.truncate(room, stride=stride)
            return [self.library.post_process(asked, part) for part in (given, *given.overflowing)]

    def _cut(self, text: Text, whole: tokenizers.Encoding, limit: int | None) -> tokenizers.Encoding:
        if limit is None or len(whole) <= limit:
            return whole
        parts = (text,) if isinstance(text, str) else text
        bare = [self.library.encode(part, add_special_tokens=False) for part in parts]
        room = max(limit - self.library.num_special_tokens_to_add(len(bare) == 2), 0)
        lengths = (room,) if len(bare) == 1 else kept(len(bare[0]), len(bare[1]), room)
        for part, length in zip(bare, lengths, strict=True):
            part.truncate(length)
        return self.library.post_process(bare[0], bare[1] if len(bare) == 2 else None)

    def _check_parts(self, texts: Sequence[Text]) -> None:
        self.check([part for text in texts for part in ((text,) if isinstance(text, str) else text)])

    def decode(self, ids: Sequence[int], special: bool, first: bool) -> str:
        """Text of ids."""
        if self._gate is not None:
            self._gate.decoding([token for token in map(self.library.id_to_token, ids) if token is not None])
        with guarded(self._path):
            return self.library.decode(list(ids), skip_special_tokens=not special)

    def joined(self, tokens: Sequence[str]) -> str:
        """The text of tokens by their strings in the vocabulary."""
        if self._gate is not None:
            self._gate.decoding(tokens)
        with guarded(self._path):
            decoder = self.library.decoder
            return " ".join(tokens) if decoder is None else decoder.decode(list(tokens))

    def stream(self, before: Sequence[int], special: bool) -> WindowStream:
        """A streaming decoder."""
        return WindowStream(self, before[-NEEDED:], special)


def library_of(tokenizer: Tokenizer) -> Library:
    """The engine of a tokenizer that knows the characters of each token. UnsupportedError for others."""
    if not isinstance(tokenizer.engine, Library):
        raise UnsupportedError(
            "E-TOKENIZER-OFFSETS",
            None,
            f"the tokenizer does not tell the characters of tokens: {tokenizer.origin}",
            hint="Use a model directory with tokenizer.json",
        )
    return tokenizer.engine


class WindowStream:
    """Streaming decoder: the difference of the last ids' text with and without the new id."""

    def __init__(self, engine: Library, before: Sequence[int], special: bool) -> None:
        self._engine, self._special = engine, special
        self._told: list[int] = list(before)
        self._new: list[int] = []

    def push(self, token: int) -> str:
        """The text completed by this id."""
        self._new.append(token)
        more = self._more()
        if not more or more.endswith(INCOMPLETE):
            return ""
        self._told, self._new = [*self._told, *self._new][-NEEDED:], []
        return more

    def finish(self) -> str:
        """The text held back."""
        more = self._more()
        self._new = []
        return more

    def _more(self) -> str:
        told = self._engine.decode(self._told, self._special, False)
        return self._engine.decode([*self._told, *self._new], self._special, False)[len(told) :]
