"""Segments of speech that another model finds before a transcription, as faster-whisper's ``vad_filter`` has them."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from ....preprocess.audio.sound import Sound
from ....preprocess.audio.speech_only import SpeechOnly
from .segments import Segment, Word

SHORTEST, SILENCE, PADDING = 0.0, 2.0, 0.4
"""Seconds of a segment, at least; of silence that ends one; and that are added at both ends."""


class SpeechFinder(Protocol):
    """A model of voice activity detection; see `VoiceActivityDetection`."""

    def predict(self, inputs: Any, **options: Any) -> Any: ...


def found_speech(finder: SpeechFinder, sound: Sound, rate: int) -> SpeechOnly:
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
