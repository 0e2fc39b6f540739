"""Special tokens of Whisper: start, languages, tasks, timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import UnsupportedError, UsageError
from .....runtime.base.nearest_name import did_you_mean
from ....tokenizer import Tokenizer
from .language_names import CODES, NAMES

TRANSCRIBE, TRANSLATE = "transcribe", "translate"
TASKS = (TRANSCRIBE, TRANSLATE)
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
"""Names of one token, which changed."""
ENGLISH_END = 50256
"""The end token of models that know English only; their tokenizers have tokens of other languages all the same."""
PRECISION = 0.02
"""Seconds from one timestamp to the next."""
GENERATION, HEADS = "generation_config.json", "alignment_heads"
"""The file and the key that list the layers and heads of the decoder which follow the speech."""


@dataclass(frozen=True)
class SpeechTokens:
    """Ids of special tokens.

    Attributes:
        start: the first token of a text.
        end: the last one; tokens below it are text.
        languages: of a multilingual model, by code; empty for others.
        tasks: by name, of a multilingual model.
        previous: stands before the text of the window before.
        no_speech: its probability in place of the second token tells that nothing is said; None without it.
        no_timestamps: stands before texts without timestamps.
        first_timestamp: 0 seconds; later ones follow in steps of `PRECISION`.
        suppressed: special tokens that are not generated.
    """

    start: int
    end: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    previous: int | None
    no_speech: int | None
    no_timestamps: int
    first_timestamp: int
    suppressed: tuple[int, ...]

    def language(self, name: str) -> str:
        """The code of a language, given by its code or English name. UsageError for those that the model lacks."""
        said = name.strip().lower()
        code = said if said in self.languages else CODES.get(said, said)
        if code not in self.languages:
            known = (*self.languages, *(NAMES[each].lower() for each in self.languages if each in NAMES))
            hint = did_you_mean(said, known, "The codes are those of ISO 639, such as en, de or zh")
            raise UsageError("E-LANGUAGE", None, f"the model does not know the language {name!r}", hint=hint)
        return code

    def opening(self, language: str | None, task: str, *, timestamps: bool) -> list[int]:
        """The tokens that a text starts with."""
        given = [] if language is None else [self.languages[language], self.tasks[task]]
        return [self.start, *given, *([] if timestamps else [self.no_timestamps])]


class NamesTokens(Protocol):
    """A source of special tokens' ids: a tokenizer, or a published vocabulary by its size."""

    def id_of(self, text: str) -> int | None:
        """The id of a token, None for texts that are none."""


def speech_tokens(tokenizer: NamesTokens) -> SpeechTokens:
    """The special tokens of a tokenizer. UnsupportedError if it is not one of Whisper."""

    def found(*names: str) -> int | None:
        return next((token for name in names if (token := tokenizer.id_of(name)) is not None), None)

    start, end, bare = found("<|startoftranscript|>"), found("<|endoftext|>"), found("<|notimestamps|>")
    if start is None or end is None or bare is None:
        why = "the tokenizer lacks the tokens that Whisper's texts start and end with"
        expected = "<|startoftranscript|>, <|endoftext|>, <|notimestamps|>"
        raise UnsupportedError("E-SPEECH-TOKENS", None, why, expected=expected)
    tasks = {name: token for name in TASKS if (token := found(f"<|{name}|>")) is not None}
    multilingual = len(tasks) == len(TASKS) and end != ENGLISH_END
    languages = {code: token for code in NAMES if (token := found(f"<|{code}|>")) is not None} if multilingual else {}
    previous, silent = found("<|startofprev|>"), found(*NO_SPEECH)
    special = (start, previous, silent, found("<|startoflm|>"), *tasks.values())
    suppressed = tuple(token for token in special if token is not None)
    return SpeechTokens(start, end, languages, tasks if languages else {}, previous, silent, bare, bare + 1, suppressed)


BASE, TIMES = 51765, 1501
"""Tokens of published models besides those of languages, and timestamps among them."""


def special_names(vocabulary: int) -> list[str]:
    """The special tokens of a published model by the size of its vocabulary, in the order of their ids, which are the
    last ones; the timestamps included."""
    languages = list(NAMES)[: max(0, vocabulary - BASE - (vocabulary > BASE + len(NAMES) - 1))]
    return [
        "<|endoftext|>",
        "<|startoftranscript|>",
        *(f"<|{code}|>" for code in languages),
        "<|translate|>",
        "<|transcribe|>",
        "<|startoflm|>",
        "<|startofprev|>",
        "<|nospeech|>",
        "<|notimestamps|>",
        *(f"<|{index * PRECISION:.2f}|>" for index in range(TIMES)),
    ]


SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))"),
    *("[[", "]]", "{{", "}}", "♪♪", "♪♪♪"),
)
MUSIC = "♩♪♫♬♭♮♯"


def unspoken(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Tokens of symbols and notes that nobody speaks, for models whose files do not list them."""

    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, special=False, add_bos=False, add_eos=False)

    found = {encoded(" -")[0], encoded(" '")[0]}
    for symbol in (*SYMBOLS, *MUSIC):
        for ids in (encoded(symbol), encoded(f" {symbol}")):
            if len(ids) == 1 or symbol in MUSIC:
                found.add(ids[0])
    return tuple(sorted(found))
