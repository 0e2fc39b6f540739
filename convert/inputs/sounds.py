"""Models that take sounds."""

from __future__ import annotations

from ..sounds.predict_sounds import predict_sounds
from ..sounds.sound_inputs import sound_at, sounds_of
from .input_kind import InputKind

KIND = InputKind("sound", "sounds", predict_sounds, sounds_of, input=sound_at)
