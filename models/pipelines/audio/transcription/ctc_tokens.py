"""Texts of connectionist temporal classification (CTC; Graves et al. 2006): a token or the blank for each frame, as
Wav2Vec2CTCTokenizer of transformers has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import FormatError, UnsupportedError
from .....runtime.ir.graph import Graph
from ....tokenizer.readers.locate import settings

VOCABULARY, SETTINGS = "vocab.json", "tokenizer_config.json"
LANGUAGE = "target_lang"
SPACE = " "
MAX_TOKENS = 1 << 20


@dataclass(frozen=True)
class TimedText:
    """A word, the frames that it lasts (the first one, and the one after the last), and the mean log probability of
    their tokens."""

    text: str
    start: int
    end: int
    mean_logprob: float


@dataclass(frozen=True)
class CtcTokens:
    """The meaning of each token.

    Attributes:
        texts: by id.
        blank: the token of frames between others, and between equal ones that follow each other.
        delimiter: the text of the token that separates words.
        lower: whether texts are in lower case.
    """

    texts: Mapping[int, str]
    blank: str
    delimiter: str
    lower: bool

    def text_of(self, token: int) -> str:
        """The text of a token: a space between words."""
        found = self.texts.get(token, "")
        if found == self.delimiter:
            return SPACE
        return found.lower() if self.lower else found

    def words(self, frames: Iterable[tuple[int, float]]) -> Iterator[TimedText]:
        """The words of a recording, as soon as each has ended.

        Args:
            frames: the most probable token of each frame, and its log probability.
        """
        word, start, last, total, inside = "", 0, None, 0.0, (0, 0.0)
        for frame, (token, logprob) in enumerate(frames):
            repeated, last = token == last, token
            total += logprob
            if self.texts.get(token) == self.blank:
                continue
            text = self.text_of(token)
            if text != SPACE:
                if not word:
                    start, total = frame, logprob
                word += "" if repeated else text
                inside = frame + 1, total
            elif word:
                yield TimedText(word, start, inside[0], inside[1] / (inside[0] - start))
                word = ""
        if word:
            yield TimedText(word, start, inside[0], inside[1] / (inside[0] - start))


def ctc_tokens(source: Graph | None) -> CtcTokens:
    """The tokens that the files next to the weights list.

    Raises UnsupportedError without such files, FormatError for invalid ones.
    """
    said = {} if source is None else settings(source, VOCABULARY)
    path = source.files[0] if source is not None and source.files else None
    if not said:
        hint = f"Put {VOCABULARY} beside the weights"
        raise UnsupportedError("E-CTC-VOCABULARY", path, "nothing tells the text of the model's tokens", hint=hint)
    own = {} if source is None else settings(source, SETTINGS)
    nested = {name: each for name, each in said.items() if isinstance(each, Mapping)}
    if nested:
        said = nested.get(str(own.get(LANGUAGE)), next(iter(nested.values())))
    texts = {token: text for text, token in said.items() if isinstance(token, int) and 0 <= token < MAX_TOKENS}
    if len(texts) != len(said):
        raise FormatError("E-CTC-VOCABULARY", path, f"{VOCABULARY} is not an object of texts and different ids")
    texts |= {
        int(token): each["content"]
        for token, each in (own.get("added_tokens_decoder") or {}).items()
        if isinstance(each, Mapping) and isinstance(each.get("content"), str) and token.isdecimal() and len(token) < 8
    }
    blank, delimiter = (_content(own.get(f"{name}_token"), usual) for name, usual in USUAL.items())
    return CtcTokens(texts, blank, delimiter, own.get("do_lower_case") is True)


USUAL = {"pad": "<pad>", "word_delimiter": "|"}
"""Texts of the blank and of the delimiter, by the beginnings of their keys, where the files tell none."""


def _content(said: object, usual: str) -> str:
    """The text of a token, which files state as such or as an object."""
    found = said.get("content") if isinstance(said, Mapping) else said
    return found if isinstance(found, str) else usual
