"""The processor of Voxtral: a marker for each recording becomes the placeholders of its windows of 30 seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .....runtime.base.errors import FormatError, UsageError
from .....runtime.base.units import counted
from ....preprocess.audio.log_mel import LogMel, stated_log_mel
from ....preprocess.audio.sound import samples_of
from ....preprocess.audio.waveform import FILE
from ....tokenizer.readers.locate import settings
from .marked_pictures import token_text
from .prompt_rules import Prompted, PromptModel

BEGIN = "[BEGIN_AUDIO]"
"""The token before the placeholders of a recording."""
FRAMES = 2
"""Frames of a spectrogram for each position of the encoder."""


def sound_prompt(
    model: PromptModel, text: str, images: Sequence[Any], audio: Sequence[Any], *, add_bos: bool | None
) -> Prompted:
    """The prompt; see `Processor`. Recordings without markers stand before the text."""
    if len(images):
        raise UsageError("E-LM-MODALITY", None, "the model takes no pictures", hint="Pass recordings with --audio")
    config = model.options.config
    assert config is not None
    marker = token_text(model, "audio_token")
    if len(audio) and marker not in text:
        text = marker * len(audio) + text
    pieces = text.split(marker)
    if len(pieces) - 1 != len(audio):
        why = f"{counted(len(pieces) - 1, 'placeholder')} {marker} in the prompt for {counted(len(audio), 'recording')}"
        raise UsageError("E-LM-PLACEHOLDER", None, why, hint="Pass one recording for each, with --audio or audio=")
    mel = _log_mel(model, config.values["audio.bands"]) if len(audio) else None
    windows = [_windows(sound, mel, config.values["audio.source_positions"]) for sound in audio if mel is not None]
    each = (
        config.values["audio.source_positions"] * config.values["audio.hidden"] // config.values["audio.intermediate"]
    )
    begin = BEGIN if BEGIN in model.tokenizer.vocabulary.texts else ""
    marked = [begin + marker * (each * len(some)) for some in windows]
    text = pieces[0] + "".join(sound + after for sound, after in zip(marked, pieces[1:], strict=True))
    arrays = {"input_features": np.concatenate(windows)} if windows else {}
    return Prompted(model.tokenizer.encode(text, add_bos=add_bos), arrays)


def _log_mel(model: PromptModel, bands: int) -> LogMel:
    """How features are made. FormatError for settings that the processor of transformers does not take."""
    source, usual = model.options.source, LogMel(bands)
    path = None if source is None else next(iter(source.files), None)
    stated = stated_log_mel({} if source is None else settings(source, FILE), path, usual)
    known, found = ([mel.mels, mel.hop, mel.rate] for mel in (usual, stated))
    if found != known:
        why = f"{FILE} has another feature_size, hop_length or sampling_rate than Voxtral's processor takes"
        raise FormatError("E-PREPROCESSOR-KEY", path, why, expected=known, found=found, hint=f"Correct it in {FILE}")
    return stated


def _windows(sound: Any, mel: LogMel, positions: int) -> np.ndarray:
    """Features f32 [windows, bands, frames] of a recording, padded with silence to whole windows."""
    frames = FRAMES * positions
    samples = samples_of(sound, mel.rate)
    count = max(1, math.ceil(len(samples) / (frames * mel.hop)))
    whole = replace(mel, seconds=math.ceil(count * frames * mel.hop / mel.rate))
    found: np.ndarray = whole(samples)[:, : count * frames].reshape(mel.mels, count, frames).transpose(1, 0, 2)
    return np.ascontiguousarray(found)
