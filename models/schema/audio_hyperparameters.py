"""Hyper-parameters that audio models share."""

from __future__ import annotations

AUDIO_CLASSIFICATION, AUDIO_FEATURES = "audio-classification", "audio-feature-extraction"
SPEECH_RECOGNITION, VOICE_ACTIVITY = "automatic-speech-recognition", "voice-activity-detection"
SPEAKER_EMBEDDING, PITCH_ESTIMATION = "speaker-embedding", "pitch-estimation"
"""Names of tasks, as Hugging Face's pipelines have them where they do the task."""
