"""A runnable model that writes what is said in audio: an encoder of features and a decoder of text."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.base.errors import FormatError, UnsupportedError, UsageError
from ....runtime.base.out_of_memory import memory_limited
from ....runtime.contract.hyperparameter import SIZE, Listed, ParameterError, checked
from ....runtime.session import Session
from ...postprocess.finite_results import finite
from ...preprocess.audio.log_mel import LogMel, checked_size, stated_log_mel
from ...preprocess.audio.sound import Sound
from ...preprocess.audio.waveform import FILE
from ...seq2seq.alignment_decoder import ALIGNMENT, SCORES
from ...seq2seq.encoder_decoder_model import EncoderDecoderModel
from ...tokenizer.readers.locate import settings
from ..task_model import opened
from .transcription.options import transcription_options
from .transcription.sample_windows import SampleWindows, peak_energy
from .transcription.segments import Segment, Transcript
from .transcription.speech_segments import HeardSound, SpeechFinder
from .transcription.speech_tokens import GENERATION, HEADS, SpeechTokens, speech_tokens
from .transcription.transcriber import Progress, Transcriber
from .transcription.whisper_files import FRAMES

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MAX_LENGTH = 448
"""Tokens of the longest text of models that do not tell."""


class SpeechModel(EncoderDecoderModel):
    """Whisper and its relatives."""

    @property
    def verbs(self) -> tuple[str, ...]:
        """The methods that the model supports."""
        return ("transcribe",)

    @functools.cached_property
    def log_mel(self) -> LogMel:
        """Settings of features, as the files next to the weights state them. FormatError for an invalid value."""
        (features,) = (value for value in self.encoder_graph.inputs if value.name == "input_features")
        size = (None, None) if features.shape is None or len(features.shape) != 3 else features.shape[1:]
        bands, frames = (length if isinstance(length, int) else None for length in size)
        if frames is None and self.options.config is not None:
            positions = self.options.config.values.get("source_positions")
            frames = None if positions is None else FRAMES * positions
        said = {} if self.options.source is None else settings(self.options.source, FILE)
        path = next(iter(self.encoder_graph.files), None)
        stated = stated_log_mel(said, path, LogMel() if bands is None else LogMel(bands))
        return checked_size(stated, bands, frames, path)

    @functools.cached_property
    def tokens(self) -> SpeechTokens:
        """Special tokens. UnsupportedError for a tokenizer without those of Whisper."""
        return speech_tokens(self.tokenizer)

    @functools.cached_property
    def _aligner(self) -> Session:
        """The session that computes logits and attention of a whole text."""
        graph = None if self.options.variant is None else self.options.variant(ALIGNMENT)
        if graph is None:
            hint = "Load the checkpoint that the graph was exported from"
            raise UnsupportedError("E-SPEECH-WORDS", None, "the model does not show what it attends to", hint=hint)
        wanted = {"logits", *(SCORES.format(i=layer) for layer, _ in self.alignment_heads)}
        graph.outputs = [value for value in graph.outputs if value.name in wanted]
        return opened(graph, self.options)

    @functools.cached_property
    def alignment_heads(self) -> list[tuple[int, int]]:
        """Layers and heads of the decoder that follow the speech: those that the files next to the weights state, else
        all heads of the upper half of the layers. FormatError for invalid ones."""
        assert self.options.config is not None
        layers, heads = int(self.options.config.decoder_layers), int(self.options.config.heads)
        said = None if self.options.source is None else settings(self.options.source, GENERATION).get(HEADS)
        if said is None:
            return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
        try:
            pairs = checked(HEADS, said, Listed(Listed(SIZE, 2, most=2)))
        except ParameterError as error:
            raise FormatError(
                "E-GENERATION-KEY", None, f"invalid parameter {HEADS} in {GENERATION}: {error}"
            ) from error
        if not pairs or any(layer >= layers or head >= heads for layer, head in pairs):
            why = f"{HEADS} in {GENERATION} names heads that the model lacks"
            raise FormatError("E-GENERATION-KEY", None, why, expected=f"{layers} layers of {heads} heads")
        return [(layer, head) for layer, head in pairs]

    def attention(self, ids: Sequence[int], source: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Logits f32 [length, vocabulary] after each token of a text, and attention f32 [heads, length, source] of
        `alignment_heads` before the softmax.

        UnsupportedError for models that were exported.
        """
        session = self._aligner
        feeds = {"input_ids": np.array([ids], np.int64), **source}
        names = [value.name for value in session.get_outputs()]
        found = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
        named = dict(zip(names, finite(found, names), strict=True))
        scores = [named[SCORES.format(i=layer)][0, head] for layer, head in self.alignment_heads]
        return named["logits"][0], np.stack(scores)

    @property
    def max_length(self) -> int:
        """Tokens of the longest text, those before it included."""
        return self.positions or MAX_LENGTH

    @memory_limited
    def transcribe(
        self,
        sound: Sound,
        rate: int | None = None,
        *,
        on_segment: Callable[[Segment], None] | None = None,
        progress: Progress | None = None,
        vad: SpeechFinder | None = None,
        **options: Any,
    ) -> Transcript:
        """Transcribe audio.

        Args:
            sound: a path, encoded bytes, a binary file, or samples [count] or [count, channels], f32 in -1 to 1 or i16.
            rate: samples a second, None for the model's; for samples.
            on_segment: called with each segment as soon as it is known.
            progress: called with how many seconds are done, and of how many.
            vad: a model of voice activity detection: only what it takes for speech is heard, with the defaults of
                faster-whisper; times are those of the whole sound, which has to be one that can be read twice.
            options: fields of `TranscriptionOptions`.

        Raises UsageError for unknown options and those out of range, and for a language that the model does not know;
        FormatError for damaged files, and samples that are not finite numbers.
        """
        chosen, mel = transcription_options(options), self.log_mel
        sounding, peak = HeardSound(sound, rate, mel.rate, vad), -np.inf
        if not sounding.streamed:
            with sounding.opened() as opened:
                peak = peak_energy(sounding.blocks(opened), mel)
        segments: list[Segment] = []
        with sounding.opened() as opened:
            total = opened.seconds

            def told(seconds: float) -> None:
                if progress is not None:
                    progress(sounding.seconds(seconds), total)

            clock = time.monotonic if sounding.streamed else None
            transcriber = Transcriber(self, SampleWindows(sounding.blocks(opened), mel, peak, clock), chosen, told)
            for found in transcriber.segments():
                segments.append(sounding.segment(found))
                if on_segment is not None:
                    on_segment(segments[-1])
            return Transcript(segments, transcriber.language, sounding.duration(opened, transcriber.seconds))

    def features(self, samples: ArrayLike) -> np.ndarray:
        """Features f32 [bands, frames] of samples f32 [count] of at most one window, at the model's rate."""
        return self.log_mel(np.asarray(samples))

    @memory_limited
    def __call__(self, input_features: ArrayLike, decoder_input_ids: ArrayLike | None = None) -> dict[str, np.ndarray]:  # type: ignore[override]
        """``logits`` [batch, target, vocabulary] and ``encoder_last_hidden_state`` [batch, source, hidden], as
        transformers names them.

        Args:
            input_features: f32 [batch, bands, frames] or [bands, frames].
            decoder_input_ids: integers [batch, length] or [length].

        Raises UsageError for shapes that do not fit.
        """
        return self._outputs(*self.encode(input_features), decoder_input_ids, None)

    def encode(
        self, input_features: ArrayLike, attention_mask: ArrayLike | None = None, activations: str = "f32"
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Hidden states f32 [batch, source, hidden], and the inputs that the decoder has of them."""
        features = np.asarray(input_features, np.float32)
        features = features[None] if features.ndim == 2 else features
        (declared,) = self.encoder_graph.inputs
        bands = declared.shape[1] if declared.shape is not None and len(declared.shape) == 3 else None
        if features.ndim != 3 or features.shape[1] != bands or not features.size:
            found = list(features.shape)
            raise UsageError("E-RUN-SHAPE", None, "not features", expected=f"[batch, {bands}, frames]", found=found)
        return self._encoded({declared.name: features}, None, activations)
