"""Next command: what a converted model can be used with, by its format and task."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...runtime.base.errors import Error, UsageError
from ...runtime.contract.architecture import FEATURE_EXTRACTION

if TYPE_CHECKING:
    from .plan import Plan

VERBS = {
    "text-generation": ("generate", ("-p", "Hello")),
    "text2text-generation": ("generate", ("-p", "Hello")),
    "feature-extraction": ("embed", ("Hello",)),
    "image-text-to-text": ("generate", ("-p", "Hello", "--image", "image.jpg")),
    "text-ranking": ("rerank", ("--query", "Hello", "-f", "docs.txt")),
    "text-classification": ("predict", ("Hello",)),
    "token-classification": ("predict", ("Hello",)),
    "image-classification": ("predict", ("image.jpg",)),
    "image-segmentation": ("predict", ("image.jpg", "-o", "masks/")),
    "object-detection": ("predict", ("image.jpg", "-o", "boxes/")),
    "face-detection": ("predict", ("image.jpg", "-o", "boxes/")),
    "depth-estimation": ("predict", ("image.jpg", "-o", "depth/")),
    "mask-generation": ("predict", ("image.jpg", "--points", "320,200")),
    "text-detection": ("predict", ("image.jpg", "-o", "boxes/")),
    "text-recognition": ("predict", ("image.jpg",)),
    "image-feature-extraction": ("embed", ("image.jpg",)),
    "automatic-speech-recognition": ("transcribe", ("audio.wav",)),
    "audio-classification": ("predict", ("audio.wav",)),
    "audio-feature-extraction": ("embed", ("audio.wav",)),
    "speaker-embedding": ("embed", ("audio.wav",)),
    "pitch-estimation": ("predict", ("audio.wav",)),
    "voice-activity-detection": ("predict", ("audio.wav",)),
    "text-to-speech": ("speak", ("-p", "Hello", "-o", "speech.wav")),
    "text-to-audio": ("speak", ("-p", "a calm piano", "-o", "music.wav")),
}
"""Command and arguments after MODEL that use a model of each task."""
INSPECT: tuple[str, tuple[str, ...]] = ("inspect", ())
TEXTS = {"Hello", "a calm piano"}
"""Arguments for which a model needs its tokenizer."""


def next_command(plan: Plan) -> tuple[str, ...]:
    """Words of the command that uses the output of a plan: by its task, ``run`` for a network, else ``inspect``."""
    if plan.format.graphs:
        verb, more = INSPECT if plan.parts or len(plan.files) > 1 else ("run", INSPECT[1])
    else:
        verb, more = VERBS.get(_task(plan) or "", INSPECT)
        if (verb == "transcribe" or set(more) & TEXTS) and not _has_tokenizer(plan):
            verb, more = INSPECT
    return verb, plan.target, *more


def _has_tokenizer(plan: Plan) -> bool:
    from ...models.tokenizer.readers.locate import first_of

    return first_of(plan.graph) is not None or any(name.startswith("tokenizer.") for name in plan.graph.metadata)


def _task(plan: Plan) -> str | None:
    """The task of the weights that a plan writes; None where their files do not state it."""
    from ..load.bind import bind_model
    from ..load.stated_task import stated_task

    try:
        model = bind_model(plan.graph)
        own = stated_task(plan.graph, model) or model.task.name
    except (Error, KeyError):
        return None
    heads = [task.name for task in model.architecture.tasks if task.weights and task.name in VERBS]
    for name in heads if own == FEATURE_EXTRACTION else ():
        with contextlib.suppress(UsageError):
            return model.for_task(name).task.name
    return own
