"""Transcription of audio of any length, window by window (Radford et al. 2022, arXiv:2212.04356)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from .....runtime.base.errors import UsageError
from .decoding import DecodedWindow, Recognizer, Source, WindowDecoder, probabilities
from .options import TranscriptionOptions
from .sample_windows import SampleWindows
from .segments import Piece, Segment, Word, pieces_of
from .speech_tokens import TRANSCRIBE
from .word_alignment import (
    TimedWord,
    aligned_words,
    normalized,
    shortened,
    split_words,
    usual_length,
    with_punctuation,
    within_segment,
)

FORGETFUL = 0.5
"""Texts of higher temperatures are not a prompt of the next window."""
UNSETTLED = 1.0
"""Seconds before the last sample that has arrived, whose text may change with the next ones."""
Progress = Callable[[float, float | None], None]
"""Called with how many seconds of audio are done, and of how many, None if that is not known."""


class Transcriber:
    """Transcribes one recording.

    Args:
        windows: of the recording.
        progress: called with how many seconds are done.

    Attributes:
        language: code, once it is known; None for models of one language.

    Raises UsageError for a language or task that the model does not have.
    """

    def __init__(
        self,
        model: Recognizer,
        windows: SampleWindows,
        options: TranscriptionOptions,
        progress: Callable[[float], None],
    ) -> None:
        self._model, self._options, self._tell = model, options, progress
        self._windows = windows
        known = model.tokens
        if not known.languages and options.task != TRANSCRIBE:
            raise UsageError("E-SPEECH-TASK", None, "the model knows English only and does not translate")
        self.language: str | None = None
        if options.language is not None and (known.languages or options.language.lower() not in ("en", "english")):
            self.language = known.language(options.language)
        self._decoder: WindowDecoder | None = None
        self._previous: list[int] = []
        self._last_speech = 0.0
        if options.initial_prompt is not None:
            self._previous = model.tokenizer.encode(" " + options.initial_prompt.strip(), add_bos=False, add_eos=False)

    @property
    def seconds(self) -> float:
        """Seconds of audio that have arrived."""
        return self._windows.seconds

    def segments(self) -> Iterator[Segment]:
        """The segments, window by window; of a window whose samples have not all arrived, those that end well before
        the last sample: what follows them is read again with more samples."""
        mel, options = self._model.log_mel, self._options
        first, per_frame = 0, self._model.log_mel.hop / self._model.log_mel.rate
        while (window := self._windows.at(first)) is not None:
            features, frames = window
            offset, seconds = first * per_frame, frames * per_frame
            if _silent(features[:, :frames]):
                first += frames
                self._tell(first * per_frame)
                continue
            source = self._model.encode(features, activations="q8")[1]
            decoder = self._decoder or self._begin(source)
            made = decoder.decode(source, self._previous)
            complete = self._windows.complete(first)
            if decoder.is_silent(made):
                first += frames if complete else 0
                self._tell(first * per_frame)
                continue
            pieces, behind = pieces_of(made.tokens, self._model.tokens, seconds)
            if not complete:
                pieces = [piece for piece in pieces if piece.end <= seconds - UNSETTLED]
                if not pieces:
                    continue
                behind = pieces[-1].end
            found = [segment for piece in pieces if (segment := self._segment(piece, made, offset)) is not None]
            if options.word_timestamps and found:
                found = self._with_words(found, source, offset, frames)
                if behind < seconds:
                    behind = found[-1].end - offset
            for segment in found:
                self._previous += segment.tokens
                yield segment
            if not options.condition_on_previous_text or made.temperature > FORGETFUL:
                self._previous = []
            first += min(max(round(behind / per_frame), 1), mel.frames)
            self._tell(min(first * per_frame, self.seconds))

    def _begin(self, source: Source) -> WindowDecoder:
        """The decoder, once the language is known."""
        if self._model.tokens.languages and self.language is None:
            self.language = next(iter(language_probabilities(self._model, source)))
        opening = self._model.tokens.opening(
            self.language if self._model.tokens.languages else None,
            self._options.task,
            timestamps=self._options.timestamps,
        )
        self._decoder = WindowDecoder(self._model, opening, self._options)
        return self._decoder

    def _with_words(self, segments: list[Segment], source: Source, offset: float, frames: int) -> list[Segment]:
        """The segments of a window with their words, their times being those of the words."""
        model, known = self._model, self._model.tokens
        texts = [[token for token in segment.tokens if token < known.end] for segment in segments]
        text = [token for each in texts for token in each]
        opening = known.opening(self.language if known.languages else None, self._options.task, timestamps=False)
        logits, scores = model.attention([*opening, *text, known.end], source)
        before, per_position = len(opening), 2 * model.log_mel.hop / model.log_mel.rate
        said = probabilities(logits[before - 1 : -2, : known.end])[np.arange(len(text)), text]
        words = aligned_words(
            [*split_words(model.tokenizer, text, self.language), ("", [known.end])],
            normalized(scores[:, :, : max(1, frames // 2)])[before - 1 : -1],
            said,
            per_position,
        )
        usual = usual_length(words)
        words = with_punctuation(shortened(words, usual))
        made, at = [], 0
        for segment, own in zip(segments, texts, strict=True):
            inside: list[TimedWord] = []
            count = 0
            while at < len(words) and count < len(own):
                inside.append(words[at].moved(start=words[at].start + offset, end=words[at].end + offset))
                count += len(words[at].tokens)
                at += 1
            start, end = segment.start, segment.end
            if inside:
                inside, start, end = within_segment(inside, start, end, usual, self._last_speech)
                self._last_speech = end
            shown = [Word(round(each.start, 2), round(each.end, 2), each.text, each.probability) for each in inside]
            made.append(dataclasses.replace(segment, start=round(start, 3), end=round(end, 3), words=shown))
        return made

    def _segment(self, piece: Piece, made: DecodedWindow, offset: float) -> Segment | None:
        """The segment of a piece; None where it has no text."""
        tokens = self._model.tokens
        text = self._model.tokenizer.decode([token for token in piece.tokens if token < tokens.end])
        if piece.start == piece.end or not text.strip():
            return None
        return Segment(
            round(offset + piece.start, 3),
            round(offset + piece.end, 3),
            text,
            piece.tokens,
            made.temperature,
            made.mean_logprob,
            made.compression_ratio,
            made.no_speech,
        )


def _silent(features: np.ndarray) -> bool:
    """Whether no element of a window differs from another one: digital silence."""
    return bool(features.max() == features.min())


def language_probabilities(model: Recognizer, source: Source) -> dict[str, float]:
    """Language -> its probability in a window, the most probable first."""
    logits = model.decoder.advance([[model.tokens.start]], model.decoder.start(1, source))
    codes = list(model.tokens.languages)
    found = probabilities(logits[:, list(model.tokens.languages.values())])[0]
    return {codes[at]: float(found[at]) for at in np.argsort(-found, kind="stable")}
