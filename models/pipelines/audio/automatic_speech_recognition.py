"""Speech recognition by models that tell a token for each frame (CTC): wav2vec 2.0 and its relatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ....runtime.base.errors import FormatError, UsageError
from ....runtime.contract.hyperparameter import Integer, Listed, ParameterError, checked
from ...preprocess.audio.overlapping import Window, overlapping
from ...preprocess.audio.sound import Sound
from ...preprocess.audio.waveform import FILE, Waveform, stated_waveform
from ...tokenizer.readers.locate import settings
from ..labels import configured
from ..task_model import TaskModel
from .transcription.ctc_tokens import CtcTokens, TimedText, ctc_tokens
from .transcription.decoding import compression_ratio
from .transcription.segments import Segment, Transcript, Word
from .transcription.speech_segments import HeardSound, SpeechFinder

SAMPLES, LOGITS = "input_values", "logits"
SIGNATURES = (({SAMPLES: 2}, {LOGITS: 3}),)
WIDTHS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
"""Widths and strides of the convolutions of models that do not state them."""
WINDOW_SECONDS, CONTEXT_SECONDS = (30.0, 10.0), (5.0, 2.0)
"""Seconds of a window, and of each end of it that belongs to the neighbours; the second ones are those of streams."""
PAUSE, LONGEST = 0.6, 10.0
"""Seconds between words that end a segment, and of a segment."""
LENGTHS = Listed(Integer(1, 1 << 12), 1, 64)


class SpeechRecognition:
    """Writes what is said, word by word."""

    def __init__(self, model: TaskModel) -> None:
        self._model = model

    @functools.cached_property
    def tokens(self) -> CtcTokens:
        """The texts of tokens; errors as of `ctc_tokens`."""
        return ctc_tokens(self._model.options.source)

    @functools.cached_property
    def waveform(self) -> Waveform:
        """Preparation of samples, as the files next to the weights state it. FormatError for an invalid value."""
        source = self._model.options.source
        path = next(iter(source.files), None) if source is not None else None
        return stated_waveform({} if source is None else settings(source, FILE), path, Waveform())

    @functools.cached_property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return math.prod(self._strides)

    @functools.cached_property
    def _strides(self) -> Sequence[int]:
        return self._lengths("strides", "conv_stride", STRIDES)

    def _lengths(self, ours: str, theirs: str, usual: Sequence[int]) -> Sequence[int]:
        """A number for each convolution: a hyper-parameter, or that of the config.json of a graph. FormatError for an
        invalid one."""
        config, path = self._model.options.config, next(iter(self._model.graph.files), None)
        said = None if config is None else config.values.get(ours)
        try:
            return said or tuple(checked(theirs, configured(self._model.options).get(theirs) or usual, LENGTHS))
        except ParameterError as error:
            raise FormatError("E-ARCH-KEY", path, f"invalid parameter {theirs}: {error}") from error

    def transcribe(
        self,
        sound: Sound,
        *,
        on_segment: Callable[[Segment], None] | None = None,
        progress: Callable[[float, float | None], None] | None = None,
        window: float | None = None,
        context: float | None = None,
        word_timestamps: bool = False,
        vad: SpeechFinder | None = None,
    ) -> Transcript:
        """Transcribe audio: the most probable token of each frame, as transformers' pipeline decodes them.

        Args:
            sound: as `preprocess.audio.sound.Sound` describes it; samples have the model's rate.
            on_segment: called with each segment as soon as it is known: words without a pause between them.
            progress: called with how many seconds are done, and of how many.
            window: seconds that the model hears at once, None for `WINDOW_SECONDS`.
            context: seconds of each end of a window that are heard twice, and whose text comes from the neighbour; None
                for `CONTEXT_SECONDS`.
            word_timestamps: whether segments have their words.
            vad: as of `SpeechModel.transcribe`.

        Raises UsageError for options out of range, UnsupportedError for models whose tokens nothing tells, FormatError
        for damaged files.
        """
        rate, segments = self.waveform.rate, []
        sounding, heard = HeardSound(sound, None, rate, vad), 0
        window = WINDOW_SECONDS[sounding.streamed] if window is None else window
        context = CONTEXT_SECONDS[sounding.streamed] if context is None else context
        length, margin = (self.hop * round(rate * each / self.hop) for each in (window, context))
        if not 0 <= 2 * margin < length:
            why = f"a window of {window:g} s with {context:g} s of context"
            raise UsageError("E-SPEECH-OPTION", None, why, expected="more than twice the context")
        with sounding.opened() as opened:

            def frames() -> Iterator[tuple[int, float]]:
                nonlocal heard
                for each in overlapping(sounding.blocks(opened), length, margin):
                    yield from self._frames(each)
                    heard = each.start + len(each.samples)
                    if progress is not None:
                        progress(sounding.seconds(heard / rate), opened.seconds)

            for words in _spoken_together(self.tokens.words(frames()), round(rate / self.hop)):
                segments.append(sounding.segment(self._segment(words, word_timestamps)))
                if on_segment is not None:
                    on_segment(segments[-1])
            return Transcript(segments, None, sounding.duration(opened, heard / rate))

    def _frames(self, window: Window) -> list[tuple[int, float]]:
        """The most probable token of each frame of a window, and its log probability."""
        prepared = self.waveform(window.samples)
        short = max(0, self.least - len(prepared))
        logits = np.asarray(self._model(input_values=np.pad(prepared, (0, short))[None])[LOGITS][0], np.float32)
        before, count, behind = (round(each / self.hop) for each in (window.before, len(window.samples), window.behind))
        logits = logits[before : count - behind]
        logprobs = -np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1))
        return list(zip(logits.argmax(1).tolist(), logprobs.tolist(), strict=True))

    @functools.cached_property
    def least(self) -> int:
        """Samples that the convolutions need; shorter sounds are padded."""
        count = 1
        for width, stride in zip(
            reversed(self._lengths("conv_widths", "conv_kernel", WIDTHS)), reversed(self._strides), strict=False
        ):
            count = (count - 1) * stride + width
        return max(count, self.hop)

    def _segment(self, words: list[TimedText], timed: bool) -> Segment:
        seconds = self.hop / self.waveform.rate
        text = " ".join(word.text for word in words)
        found = [
            Word(
                round(word.start * seconds, 2),
                round(word.end * seconds, 2),
                f" {word.text}",
                math.exp(word.mean_logprob),
            )
            for word in words
        ]
        lengths = [word.end - word.start for word in words]
        mean = sum(word.mean_logprob * length for word, length in zip(words, lengths, strict=True)) / sum(lengths)
        start, end = round(words[0].start * seconds, 3), round(words[-1].end * seconds, 3)
        return Segment(start, end, f" {text}", [], 0.0, mean, compression_ratio(text), 0.0, found if timed else None)


def _spoken_together(words: Iterator[TimedText], per_second: int) -> Iterator[list[TimedText]]:
    """Words without a pause between them."""
    held: list[TimedText] = []
    for word in words:
        paused = bool(held) and word.start - held[-1].end > PAUSE * per_second
        if held and (paused or word.end - held[0].start > LONGEST * per_second):
            yield held
            held = []
        held.append(word)
    if held:
        yield held


PIPELINE = SpeechRecognition
