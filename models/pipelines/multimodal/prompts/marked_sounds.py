"""The processor of Voxtral: a marker for each recording becomes the placeholders of its windows of 30 seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.base.errors import UsageError
from .....runtime.base.units import counted
from ....preprocess.audio.log_mel import LogMel
from ....preprocess.audio.sound import samples_of
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
    windows = [
        _windows(sound, config.values["audio.bands"], config.values["audio.source_positions"]) for sound in audio
    ]
    each = (
        config.values["audio.source_positions"] * config.values["audio.hidden"] // config.values["audio.intermediate"]
    )
    begin = BEGIN if BEGIN in model.tokenizer.vocabulary.texts else ""
    marked = [begin + marker * (each * len(some)) for some in windows]
    text = pieces[0] + "".join(sound + after for sound, after in zip(marked, pieces[1:], strict=True))
    arrays = {"input_features": np.concatenate(windows)} if windows else {}
    return Prompted(model.tokenizer.encode(text, add_bos=add_bos), arrays)


def _windows(sound: Any, bands: int, positions: int) -> np.ndarray:
    """Features f32 [windows, bands, frames] of a recording, padded with silence to whole windows."""
    mel, frames = LogMel(bands), FRAMES * positions
    samples = samples_of(sound, mel.rate)
    count = max(1, math.ceil(len(samples) / (frames * mel.hop)))
    whole = LogMel(bands, seconds=math.ceil(count * frames * mel.hop / mel.rate))
    found: np.ndarray = whole(samples)[:, : count * frames].reshape(bands, count, frames).transpose(1, 0, 2)
    return np.ascontiguousarray(found)
