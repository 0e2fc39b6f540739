"""Inputs of audio pipelines: one recording or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...preprocess.audio.sound import Sound
from ..task_model import Progress

Result = TypeVar("Result")


def each_sound(
    inputs: Sound | Sequence[Sound], compute: Callable[[Sound], Result], progress: Progress | None
) -> Result | list[Result]:
    """The result of a sound, or a list of results; `progress` is called with the number of sounds done."""
    if not isinstance(inputs, list):
        return compute(inputs)
    found = []
    for number, sound in enumerate(inputs, 1):
        found.append(compute(sound))
        if progress is not None:
            progress(number, len(inputs))
    return found


def rows_of(scores: Any, names: Sequence[str], top: int | None) -> list[dict[str, Any]]:
    """``label`` and ``score`` of the `top` highest scores f32 [labels], the highest first."""
    best = (-scores).argsort(kind="stable")[:top]
    return [{"label": names[index], "score": float(scores[index])} for index in best]
