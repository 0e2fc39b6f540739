"""Speech recognition: a recording, or what the microphone hears, becomes text."""

from __future__ import annotations

from ....models.schema.audio_hyperparameters import SPEECH_RECOGNITION
from ..kind import Kind
from ..npm_packages import TEXT_FILES, TRANSFORMERS_JS

KIND = Kind((SPEECH_RECOGNITION,), "Transcribe speech", TRANSFORMERS_JS, (*TEXT_FILES, "preprocessor_config.json"))
