"""A runnable MetaVoice-1B: both stages, the encoder of speakers and EnCodec, as one model (metavoiceio 2024).

The first stage writes the codes of the first two codebooks in turn, with classifier-free guidance towards the speaker's
vector. The second stage fills in the other codebooks, and EnCodec makes sound of all. The authors' further steps,
multiband diffusion in place of EnCodec's decoder and DeepFilterNet, are left out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from .....runtime.base.errors import FormatError, UsageError
from .....runtime.base.units import counted
from .....runtime.contract.architecture import RunOptions
from ....generation.sampling import Sampler, Sampling
from ....preprocess.audio.sound import samples_of
from ..speaker_embedding import RATE
from .checked_ids import checked
from .codec_decoder import CodecDecoder
from .metavoice_tokens import TextTokens, text_tokens
from .synthesis_model import CodeRequest, SynthesisModel
from .synthesis_settings import SynthesisSettings

FIRST, SECOND, VOICES, CODEC = "first_stage", "second_stage", "speaker_encoder", "encodec"
SAMPLING, GUIDANCE = Sampling(temperature=1.0, top_k=0, top_p=0.95), 3.0
"""The authors' defaults of the first stage."""
FILLING = 200
"""Codes that the second stage draws from."""
SHORTEST = 1.0
"""Seconds of a voice, at least; the authors ask for 30."""
SILENT = 1e-4
"""Loudness of frames of silence, of full scale: -80 dB."""
QUIET, FRAME, HOP = 0.1, 2048, 512
"""Frames of a voice before the first, and after the last, that is louder than this part of the loudest are cut off."""


class MetaVoiceModel(SynthesisModel):
    """Speech in a speaker's voice.

    Args:
        models: `FIRST`, `SECOND`, `VOICES` and `CODEC`, loaded.
        options: as of `SynthesisModel`; the source is the folder.

    Raises FormatError for models that do not fit each other.
    """

    reads = ("speaker", "guidance")

    def __init__(self, models: Mapping[str, Any], options: RunOptions) -> None:
        graphs = {f"{name}/{part}": graph for name, model in models.items() for part, graph in model.graphs.items()}
        super().__init__(graphs, options)
        self.first, self.second, self.voices = models[FIRST], models[SECOND], models[VOICES]
        self.audio_decoder = CodecDecoder(models[CODEC])
        self.size = int(models[CODEC].config.codebook_size)
        first, second = self.first.options.config, self.second.options.config
        codebooks = second.inputs + second.outputs
        expected = (2 * self.size < first.vocab, second.inputs == 2, codebooks <= models[CODEC].config.quantizers)
        if not all((*expected, min(second.vocabularies) > self.size, min(second.targets) >= self.size)):
            path = options.source.files[0] if options.source is not None and options.source.files else None
            raise FormatError("E-ARCH-SHAPE", path, "the stages and the codec have different codebooks")

    @functools.cached_property
    def settings(self) -> SynthesisSettings:
        """The authors' defaults, which no file states."""
        return SynthesisSettings(SAMPLING, GUIDANCE)

    @functools.cached_property
    def tokens(self) -> TextTokens:
        """Text as tokens. UsageError for a first stage without them."""
        source = self.options.source
        return text_tokens(source.parts[FIRST] if source is not None else self.first.graph, source)

    @property
    def longest(self) -> int:
        """Frames that the stages have positions for, text aside."""
        first, second = self.first.options.config, self.second.options.config
        return int(min(first.positions // 2, second.positions - 1))

    def codes(self, request: CodeRequest) -> np.ndarray:
        """Codes int64 [codebooks, frames]. UsageError for texts that are too long, and ids that the model lacks."""
        text, voice = self._text(request.text), self._voice(request.speech.speaker)
        room = min((self.first.options.config.positions - len(text)) // 2, self._room(len(text)))
        if room < 1:
            found, hint = f"{counted(len(text), 'token')}", "Shorten the text"
            raise UsageError(
                "E-LM-CONTEXT", None, "the text is longer than the model's positions", found=found, hint=hint
            )
        known = self._begun(text, voice, request, min(request.frames, room))
        return np.concatenate([known, self._filled(text, known, voice, request.sampling)])

    def _room(self, text: int) -> int:
        """Frames that the second stage has positions for, after a text."""
        return int(self.second.options.config.positions) - text - 1

    def _begun(self, text: list[int], voice: np.ndarray, request: CodeRequest, frames: int) -> np.ndarray:
        """The codes of the first two codebooks, int64 [2, frames]."""
        guided, decoder = request.guidance != 1, self.first.decoder
        cache = decoder.start(1 + guided, np.stack([voice, np.zeros_like(voice)])[: 1 + guided])
        sampler, following = Sampler(request.sampling, 1), text
        sides: tuple[list[int], list[int]] = ([], [])
        for written in range(2 * frames):
            logits = decoder.advance(np.tile(following, (1 + guided, 1)), cache)
            scores = logits[1] + (logits[0] - logits[1]) * np.float32(request.guidance) if guided else logits[0]
            code = int(sampler.choose(scores[None], [])[0])
            if code == 2 * self.size:
                break
            if code < 2 * self.size:
                sides[code // self.size].append(code % self.size)
            following = [code]
            if request.progress is not None:
                request.progress((written + 1) // 2, frames)
        count = min(map(len, sides))
        return np.array([side[:count] for side in sides], np.int64).reshape(2, count)

    def _filled(self, text: list[int], known: np.ndarray, voice: np.ndarray, sampling: Sampling) -> np.ndarray:
        """The codes of the other codebooks, int64 [codebooks, frames]."""
        config, start, count = self.second.options.config, len(text), known.shape[1]
        rows = np.full((2, config.positions), self.size)
        rows[0, :start] = np.array(text) - self.size
        checked(rows[0, :start].tolist(), config.vocabularies[0])
        rows[:, start : start + count] = known
        logits = self.second(rows[None], voice[None])
        drawn = dataclasses.replace(sampling, top_k=FILLING, top_p=1.0) if sampling.temperature else sampling
        sampler = Sampler(drawn, max(count, 1))
        ids = [sampler.choose(each[0, start : start + count, : self.size].copy(), []) for each in logits.values()]
        return np.array(ids, np.int64).reshape(len(ids), count)

    def _text(self, text: Any) -> list[int]:
        """Tokens of the first stage."""
        ids = self.tokens.encode(text) if isinstance(text, str) else list(map(int, text))
        return list(checked(ids, self.first.options.config.vocab))

    def _voice(self, speaker: Any) -> np.ndarray:
        """The vector of a voice, f32 [width]; zeros without one. UsageError for silence and short sounds; raises as
        `SpeakerEmbedding.embed` does."""
        width = self.first.options.config.speaker
        if speaker is None:
            return np.zeros(width, np.float32)
        vector: np.ndarray = self.voices.embed(_trimmed(samples_of(speaker, RATE)), raise_volume=False)
        if vector.shape != (width,):
            why = "the encoder of speakers makes other vectors than the stages take"
            raise FormatError("E-ARCH-SHAPE", None, why, expected=width, found=len(vector))
        return vector


def _trimmed(samples: np.ndarray) -> np.ndarray:
    """A sound without the quiet before and after it, as ``librosa.effects.trim`` with 20 dB cuts it. UsageError for
    silence, and for less than `SHORTEST`."""
    padded = np.pad(np.square(samples, dtype=np.float64), FRAME // 2)
    sums = np.concatenate([[0.0], padded.cumsum()])
    starts = np.arange(1 + len(samples) // HOP) * HOP
    loudness = np.sqrt(np.maximum(sums[starts + FRAME] - sums[starts], 0) / FRAME)
    if loudness.max() < SILENT:
        raise UsageError("E-SOUND-SILENT", None, "no voice: the sound is silent", hint="Give a sound of a voice")
    loud = np.flatnonzero(loudness > QUIET * loudness.max())
    found = samples[loud[0] * HOP : (loud[-1] + 1) * HOP]
    if len(found) < SHORTEST * RATE:
        expected, heard = f"{SHORTEST:g} s or more, better 30 s", f"{len(found) / RATE:.2f} s"
        raise UsageError("E-SPEAK-SPEAKER", None, "the sound of the voice is too short", expected=expected, found=heard)
    return found
