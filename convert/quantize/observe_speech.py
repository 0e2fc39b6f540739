"""Audio and text of a speech model, window by window, as pieces for an importance matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...models.pipelines.audio.speech_model import SpeechModel
from ...models.pipelines.audio.transcription.sample_windows import SampleWindows
from ...models.pipelines.audio.transcription.segments import Segment
from ...models.pipelines.audio.transcription.speech_segments import HeardSound
from ...models.pipelines.audio.transcription.speech_tokens import TRANSCRIBE
from ...runtime.base.errors import UnsupportedError


def heard_pieces(model: Any, sounds: Sequence[str], most: int | None = None) -> list[dict[str, np.ndarray]]:
    """Inputs of the encoder and the decoder for each window: features f32 [1, bands, frames], and the ids int64
    [1, length] of the text that the model writes of it.

    Args:
        sounds: paths of audio files.
        most: windows of all files, None for all.

    Raises UnsupportedError for other models than Whisper and its relatives; errors of files as of `transcribe`.
    """
    if not isinstance(model, SpeechModel):
        why = f"importance of {model.task} is observed with Whisper and its relatives only"
        raise UnsupportedError("E-IMATRIX-ARCH", None, why)
    found: list[dict[str, np.ndarray]] = []
    for path in sounds:
        heard, mel = model.transcribe(path), model.log_mel
        sounding, frames = HeardSound(path, None, mel.rate, None), mel.rate / mel.hop
        with sounding.opened() as opened:
            windows, first = SampleWindows(sounding.blocks(opened), mel), 0
            while len(found) != most and (window := windows.at(first)) is not None:
                spoken = [segment for segment in heard.segments if first <= segment.start * frames < first + mel.frames]
                ids = _text(model, heard.language, spoken)
                found.append({"input_features": window[0][None], "input_ids": np.array([ids], np.int64)})
                first += mel.frames
    return found


def _text(model: SpeechModel, language: str | None, spoken: Sequence[Segment]) -> list[int]:
    """The tokens of segments as the decoder writes them."""
    known = model.tokens
    ids = known.opening(language if known.languages else None, TRANSCRIBE, timestamps=True)
    ids += [token for each in spoken for token in each.tokens]
    return [*ids[: model.max_length - 1], known.end]
