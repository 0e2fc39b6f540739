"""Segments of a transcript, from the tokens of a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....runtime.base.dataclass import dataclass
from .speech_tokens import PRECISION, SpeechTokens


@dataclass(frozen=True)
class Word:
    """A word, with the space before it, and its times in seconds."""

    start: float
    end: float
    text: str
    probability: float


@dataclass(frozen=True)
class Segment:
    """A part of a transcript.

    Attributes:
        start, end: seconds.
        text: with the space before it.
        tokens: timestamps included.
        temperature, mean_logprob, compression_ratio, no_speech: of the window's text, as of `DecodedWindow`.
        words: None unless their times were asked for.
    """

    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    mean_logprob: float
    compression_ratio: float
    no_speech: float
    words: list[Word] | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields by the names of OpenAI's program."""
        words = (
            None
            if self.words is None
            else [
                {"start": word.start, "end": word.end, "word": word.text, "probability": word.probability}
                for word in self.words
            ]
        )
        return {
            "start": self.start, "end": self.end, "text": self.text, "tokens": self.tokens,
            "temperature": self.temperature, "avg_logprob": self.mean_logprob,
            "compression_ratio": self.compression_ratio, "no_speech_prob": self.no_speech,
            **({} if words is None else {"words": words}),
        }  # fmt: skip


@dataclass(frozen=True)
class Transcript:
    """The transcript of audio.

    Attributes:
        language: code; None for models of one language.
        duration: seconds of audio.
    """

    segments: list[Segment]
    language: str | None
    duration: float

    @property
    def text(self) -> str:
        """The text of all segments."""
        return "".join(segment.text for segment in self.segments).strip()

    def to_json(self) -> dict[str, Any]:
        """The fields by the names of OpenAI's program."""
        rows = [{"id": number, **segment.to_json()} for number, segment in enumerate(self.segments)]
        return {"text": self.text, "language": self.language, "duration": self.duration, "segments": rows}


@dataclass(frozen=True)
class Piece:
    """Tokens between timestamps; `start` and `end`: seconds from the beginning of the window."""

    start: float
    end: float
    tokens: list[int]


def pieces_of(tokens: Sequence[int], known: SpeechTokens, seconds: float) -> tuple[list[Piece], float]:
    """The pieces of a window of so many seconds, and where the next window starts: at the last timestamp that ends a
    piece, if another piece began after it.

    Args:
        tokens: of the window, timestamps included.
    """
    first = known.first_timestamp
    times = [token >= first for token in tokens]
    cuts = [at for at in range(1, len(tokens)) if times[at - 1] and times[at]]
    ends_complete = times[-2:] == [False, True]
    if not cuts:
        last = next((token for token in reversed(tokens) if token > first), None)
        end = seconds if last is None else (last - first) * PRECISION
        return [Piece(0.0, min(end, seconds), list(tokens))], seconds
    pieces, begun = [], 0
    for cut in (*cuts, *([len(tokens)] if ends_complete else [])):
        inside = list(tokens[begun:cut])
        pieces.append(Piece((inside[0] - first) * PRECISION, (inside[-1] - first) * PRECISION, inside))
        begun = cut
    return pieces, seconds if ends_complete else (tokens[begun - 1] - first) * PRECISION
