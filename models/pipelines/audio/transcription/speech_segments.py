"""Voice-activity filter for transcription: the segments of speech that a VAD model finds, as faster-whisper's
``vad_filter`` has them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from .....runtime.base.errors import UsageError
from ....preprocess.audio.sound import OpenSound, Sound, opened_sound
from ....preprocess.audio.speech_only import SpeechOnly
from .segments import Segment, Word

SHORTEST, SILENCE, PADDING = 0.0, 2.0, 0.4
"""Seconds of a segment, at least; of silence that ends one; and that are added at both ends."""
STREAM_SECONDS = 1.0
"""Seconds of a block of audio that arrives while it is transcribed."""


class SpeechFinder(Protocol):
    """A model of voice activity detection; see `VoiceActivityDetection`."""

    def predict(self, inputs: Any, **options: Any) -> Any: ...


def speech_segments(finder: SpeechFinder, sound: Sound, rate: int) -> SpeechOnly:
    """The segments that a model finds in a sound; samples of a second of the recognizer are `rate`."""
    rows = finder.predict(sound, shortest=SHORTEST, silence=SILENCE, padding=PADDING)
    return SpeechOnly([(round(row["start"] * rate), round(row["end"] * rate)) for row in rows], rate)


def moved(segment: Segment, speech: SpeechOnly) -> Segment:
    """A segment with the times of the whole sound; a word is in one segment of speech."""
    if not segment.words:
        start, end = speech.original(segment.start), speech.original(segment.end, end=True)
        return dataclasses.replace(segment, start=round(start, 3), end=round(max(start, end), 3))
    words = []
    for word in segment.words:
        middle = (word.start + word.end) / 2
        start, end = (round(speech.original(each, near=middle), 2) for each in (word.start, word.end))
        words.append(Word(start, end, word.text, word.probability))
    return dataclasses.replace(segment, start=words[0].start, end=words[-1].end, words=words)


class HeardSound:
    """A sound for a recognizer.

    Args:
        sound: as `preprocess.audio.sound.Sound` describes it.
        rate: samples a second of arrays, None for the recognizer's.
        own: samples a second of the recognizer.
        finder: a model that finds speech, None to hear everything.

    Attributes:
        streamed: whether it is read while it arrives, once.

    Raises UsageError for a stream with a model that finds speech, and what that model raises.
    """

    def __init__(self, sound: Sound, rate: int | None, own: int, finder: SpeechFinder | None) -> None:
        self._own, self._rate = own, own if rate is None else rate
        self._sound = (sound, self._rate) if hasattr(sound, "__array__") or isinstance(sound, list) else sound
        self.streamed = hasattr(sound, "read")
        if self.streamed and finder is not None:
            raise UsageError("E-SPEECH-VAD", None, "speech is found in files only, not in what is read once")
        self._speech = None if finder is None else speech_segments(finder, self._sound, own)

    @contextlib.contextmanager
    def opened(self) -> Iterator[OpenSound]:
        """The sound, open to be read with `blocks`."""
        with opened_sound(self._sound, self._rate) as sound:
            yield sound

    def blocks(self, sound: OpenSound) -> Iterator[np.ndarray]:
        """Samples f32 [count] of what is heard, in blocks, of the opened sound."""
        blocks = sound.blocks(self._own, seconds=STREAM_SECONDS) if self.streamed else sound.blocks(self._own)
        return blocks if self._speech is None else self._speech.blocks(blocks)

    def seconds(self, heard: float) -> float:
        """The time in the sound of a time in what is heard."""
        return heard if self._speech is None else self._speech.original(heard, end=True)

    def segment(self, found: Segment) -> Segment:
        """A segment with the times of the sound."""
        return found if self._speech is None else moved(found, self._speech)

    def duration(self, sound: OpenSound, heard: float) -> float:
        """Seconds of the whole sound, of which `heard` were heard."""
        return heard if self._speech is None else sound.seconds or 0.0
