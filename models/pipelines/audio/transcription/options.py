"""Options of a transcription, as the paper and OpenAI's program have them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from .....runtime.base.dataclass import dataclass
from .....runtime.base.errors import UsageError
from .....runtime.base.nearest_name import did_you_mean
from ....generation.beam_search import MAX_BEAMS
from .speech_tokens import TASKS, TRANSCRIBE

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class TranscriptionOptions:
    """Options of transcription.

    Attributes:
        language: code or English name; None to detect it from the first window.
        task: ``transcribe``, or ``translate`` for English text.
        beams: hypotheses of a beam search at temperature 0; 1 for the most probable tokens.
        best_of: texts of which the most probable one is taken at other temperatures.
        temperature: of the first attempt, or of several attempts until a text is good enough.
        compression_ratio_threshold: a text that zlib compresses more repeats itself: the next temperature is tried;
            None for no limit.
        logprob_threshold: a text whose mean log probability is lower is not good enough; None for no limit.
        no_speech_threshold: windows whose probability of no speech is higher have no text, unless the text's mean log
            probability is above `logprob_threshold`; None for no limit.
        condition_on_previous_text: whether the text of a window is the prompt of the next one.
        initial_prompt: text before the first window: names, spelling, style.
        timestamps: whether the model tells times; without, a segment is a window.
        word_timestamps: whether each word has its times.
        seed: of the random numbers at temperatures above 0.

    UsageError for values out of range.
    """

    language: str | None = None
    task: str = TRANSCRIBE
    beams: int = 5
    best_of: int = 5
    temperature: float | tuple[float, ...] = TEMPERATURES
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6
    condition_on_previous_text: bool = True
    initial_prompt: str | None = None
    timestamps: bool = True
    word_timestamps: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        limits = (self.compression_ratio_threshold, self.logprob_threshold, self.no_speech_threshold)
        checks: tuple[tuple[str, Any, bool, str], ...] = (
            ("task", self.task, self.task in TASKS, " or ".join(TASKS)),
            ("beams", self.beams, 0 < self.beams <= MAX_BEAMS, f"1 to {MAX_BEAMS:,}"),
            ("best_of", self.best_of, 0 < self.best_of <= MAX_BEAMS, f"1 to {MAX_BEAMS:,}"),
            ("temperature", self.temperature, _temperatures(self.temperatures), "numbers of 0 or more"),
            ("thresholds", limits, all(limit is None or math.isfinite(limit) for limit in limits), "finite numbers"),
            ("seed", self.seed, self.seed >= 0, "0 or more"),
        )
        for name, value, valid, expected in checks:
            if not valid:
                raise UsageError("E-SPEECH-OPTION", None, f"{name} is out of range", expected=expected, found=value)

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Temperatures of all attempts."""
        return (self.temperature,) if isinstance(self.temperature, int | float) else tuple(self.temperature)


def _temperatures(values: tuple[float, ...]) -> bool:
    return bool(values) and all(0 <= value < math.inf for value in values)


def transcription_options(given: Mapping[str, Any]) -> TranscriptionOptions:
    """Options by name. UsageError for unknown ones and those out of range."""
    known = [field.name for field in dataclasses.fields(TranscriptionOptions)]
    if unknown := [name for name in given if name not in known]:
        hint = did_you_mean(unknown[0], known, f"Options: {', '.join(known)}")
        raise UsageError("E-SPEECH-OPTION", None, f"unknown option {unknown[0]!r}", hint=hint)
    return TranscriptionOptions(**given)
