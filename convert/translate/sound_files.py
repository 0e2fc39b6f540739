"""Files that tell what tokens of speech mean and how sounds are prepared, and keys of GGUF files in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.pipelines.audio.transcription.ctc_tokens import SETTINGS, VOCABULARY
from ...models.preprocess.audio.waveform import FILE
from ...models.schema.audio_hyperparameters import AUDIO_CLASSIFICATION, AUDIO_FEATURES, SPEECH_RECOGNITION
from ...models.tokenizer.readers.locate import HELD, json_value, text
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.storage import Held, Storage

if TYPE_CHECKING:
    from ..load.native_model import Model

CODE = "E-TOKENIZER-JSON"
FILES = {SPEECH_RECOGNITION: (VOCABULARY, SETTINGS, FILE), AUDIO_CLASSIFICATION: (FILE,), AUDIO_FEATURES: (FILE,)}
"""The files by the task of models whose weights are listed by modules."""


def sound_keys(graph: Graph, model: Model) -> dict[str, Meta]:
    """The keys of a GGUF file that hold the files; empty for other models. FormatError for files that are no JSON."""
    names = FILES.get(model.task.name, ()) if model.architecture.parts else ()
    found: dict[str, Meta] = {}
    for name in names:
        if json_value(graph, name, CODE) is not None:
            found[HELD + name] = text(graph, name) if name in graph.attachments else graph.metadata[HELD + name]
    return found


def files_of_sounds(graph: Graph) -> dict[str, Storage]:
    """The files that keys of a GGUF file hold."""
    names = {name for files in FILES.values() for name in files}
    held = {name: graph.metadata.get(HELD + name) for name in sorted(names)}
    return {name: Held(content.encode()) for name, content in held.items() if isinstance(content, str)}
