"""Hyper-parameters that audio models share."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.contract.architecture import Key, Row, Weight

AUDIO_CLASSIFICATION, AUDIO_FEATURES = "audio-classification", "audio-feature-extraction"
SPEECH_RECOGNITION, VOICE_ACTIVITY = "automatic-speech-recognition", "voice-activity-detection"
SPEAKER_EMBEDDING, PITCH_ESTIMATION = "speaker-embedding", "pitch-estimation"
"""Names of tasks, as Hugging Face's pipelines have them where they do the task."""


def own_keys(*rows: Row) -> tuple[Row, ...]:
    """Rows of hyper-parameters that GGUF files have under the names of this architecture."""
    return tuple(replace(row, gguf=row.name) if isinstance(row, Key) and row.hf else row for row in rows)


def own_names(*rows: Weight) -> tuple[Weight, ...]:
    """Rows of weights that GGUF files have under the names of this architecture, but for positions, which are called as
    those that are not quantized."""
    return tuple(replace(row, gguf=row.name.replace(".positions.", ".position_embeddings.")) for row in rows)
