"""A runnable model that writes what is said in samples: an encoder of samples and a decoder of text (Moonshine)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ....runtime.base.errors import UsageError
from ....runtime.base.out_of_memory import memory_limited
from ...generation.beam_search import MAX_BEAMS, Beams, Limits, beam_search
from ...layers.audio.wave_encoder import SAMPLES
from ...preprocess.audio.sound import Sound
from ...preprocess.audio.utterances import utterances
from ...preprocess.audio.waveform import FILE, Waveform, stated_waveform
from ...seq2seq.encoder_decoder_model import EncoderDecoderModel
from ...tokenizer.readers.locate import settings
from .transcription.decoding import compression_ratio
from .transcription.segments import Segment, Transcript
from .transcription.speech_segments import HeardSound, SpeechFinder

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LONGEST_SECONDS = 30.0
"""Maximum seconds that the model hears at once."""
PAUSE_SECONDS = 0.6
"""Seconds of quiet that end a segment of a stream."""
TOKENS_PER_SECOND = 6.5
"""Tokens of a text, at most, as the authors limit it; models repeat themselves beyond."""
LEAST_SAMPLES = 895
"""Minimum number of samples for one frame of the convolutions; shorter sounds are padded with silence."""


class SampleSpeechModel(EncoderDecoderModel):
    """Moonshine."""

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("transcribe",)

    @functools.cached_property
    def waveform(self) -> Waveform:
        """Preparation of samples, as the files next to the weights state it. FormatError for an invalid value."""
        said = {} if self.options.source is None else settings(self.options.source, FILE)
        return stated_waveform(said, next(iter(self.encoder_graph.files), None), Waveform(normalize=False))

    @memory_limited
    def transcribe(
        self,
        sound: Sound,
        rate: int | None = None,
        *,
        on_segment: Callable[[Segment], None] | None = None,
        progress: Callable[[float, float | None], None] | None = None,
        beams: int = 1,
        vad: SpeechFinder | None = None,
    ) -> Transcript:
        """Transcribe audio. Long audio is cut at pauses, and a stream at every pause; each part is a segment.

        Args:
            sound: a path, encoded bytes, a binary file, or samples [count] or [count, channels], f32 in -1 to 1 or i16.
            rate: samples a second, None for the model's; for samples.
            on_segment: called with each segment as soon as it is known.
            progress: called with how many seconds are done, and of how many.
            beams: hypotheses of the beam search; 1 for the most probable tokens.
            vad: as of `SpeechModel.transcribe`.

        Raises UsageError for options out of range; FormatError for damaged files, and samples that are not finite
        numbers.
        """
        if not 0 < beams <= MAX_BEAMS:
            why = "beams is out of range"
            raise UsageError("E-SPEECH-OPTION", None, why, expected=f"1 to {MAX_BEAMS:,}", found=beams)
        own, segments, heard = self.waveform.rate, [], 0
        sounding = HeardSound(sound, rate, own, vad)
        with sounding.opened() as opened:
            pause = PAUSE_SECONDS if sounding.streamed else None
            for part in utterances(sounding.blocks(opened), own, LONGEST_SECONDS, pause):
                heard = part.start + len(part.samples)
                segment = self._segment(part.samples, part.start / own, beams) if np.ptp(part.samples) else None
                if segment is not None:
                    segments.append(sounding.segment(segment))
                    if on_segment is not None:
                        on_segment(segments[-1])
                if progress is not None:
                    progress(sounding.seconds(heard / own), opened.seconds)
            return Transcript(segments, None, sounding.duration(opened, heard / own))

    def _segment(self, samples: np.ndarray, start: float, beams: int) -> Segment | None:
        """The segment of a part of a recording; None where it has no text."""
        seconds = len(samples) / self.waveform.rate
        padded = np.pad(self.waveform(samples), (0, max(0, LEAST_SAMPLES - len(samples))))
        source = self.encode(padded, activations="q8")[1]
        ends = self.settings.ends or tuple(self.tokenizer.ends)
        most = 1 + math.ceil(TOKENS_PER_SECOND * seconds)
        limits = Limits(most if self.positions is None else min(most, self.positions), ends)
        tokens, mean = self._decoded(source, Beams(beams, 1.0, early_stopping=True), limits)
        text = self.tokenizer.decode(tokens).strip()
        if not text:
            return None
        end = round(start + seconds, 3)
        return Segment(round(start, 3), end, f" {text}", tokens, 0.0, mean, compression_ratio(text), 0.0)

    def _decoded(self, source: Mapping[str, np.ndarray], beams: Beams, limits: Limits) -> tuple[list[int], float]:
        """The tokens of a text, without the end token, and their mean log probability."""
        prompt = np.array([[self.settings.start]], np.int64)
        cache = self.decoder.start(1, source)
        logits = self.decoder.advance(prompt, cache)

        def step(tokens: np.ndarray, parents: np.ndarray | None) -> np.ndarray:
            if parents is not None:
                self.decoder.select(cache, parents, beams.count)
            return np.asarray(self.decoder.advance(tokens[:, None], cache))

        ((best, *_),) = beam_search(step, logits, prompt, beams, limits, self.decoder.threads)
        return [token for token in best.tokens if token not in limits.ends], best.score

    @memory_limited
    def __call__(self, input_values: ArrayLike, decoder_input_ids: ArrayLike | None = None) -> dict[str, np.ndarray]:  # type: ignore[override]
        """``logits`` [batch, target, vocabulary] and ``encoder_last_hidden_state`` [batch, frames, hidden], as
        transformers names them.

        Args:
            input_values: f32 [batch, samples] or [samples].
            decoder_input_ids: integers [batch, length] or [length].

        Raises UsageError for shapes that do not fit.
        """
        return self._outputs(*self.encode(input_values), decoder_input_ids, None)

    def encode(
        self, input_values: ArrayLike, attention_mask: ArrayLike | None = None, activations: str = "f32"
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Hidden states f32 [batch, frames, hidden], and the inputs that the decoder has of them."""
        samples = np.atleast_2d(np.asarray(input_values, np.float32))
        if samples.ndim != 2 or samples.shape[1] < LEAST_SAMPLES:
            expected = f"[batch, samples] with at least {LEAST_SAMPLES:,} samples"
            raise UsageError("E-RUN-SHAPE", None, "not samples", expected=expected, found=list(samples.shape))
        return self._encoded({SAMPLES: samples}, None, activations)
