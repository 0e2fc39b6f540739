"""Files that tell what tokens of speech mean, and how sounds and pictures are prepared, and keys of GGUF files in their
place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...models.audio import whisper
from ...models.pipelines.audio.transcription.ctc_tokenizer_json import FILE as TOKENIZER
from ...models.pipelines.audio.transcription.ctc_tokenizer_json import ctc_tokenizer_json
from ...models.pipelines.audio.transcription.ctc_tokens import SETTINGS, VOCABULARY
from ...models.pipelines.audio.transcription.whisper_files import whisper_files
from ...models.preprocess.audio.waveform import FILE
from ...models.preprocess.stated_preparation import CONFIG, TIMM
from ...models.schema.audio_hyperparameters import AUDIO_CLASSIFICATION, AUDIO_FEATURES, SPEECH_RECOGNITION
from ...models.schema.network_hyperparameters import (
    DEPTH_ESTIMATION,
    IMAGE_CLASSIFICATION,
    IMAGE_FEATURES,
    IMAGE_SEGMENTATION,
    MASK_GENERATION,
    OBJECT_DETECTION,
)
from ...models.tokenizer.readers.locate import HELD, json_value, text
from ...models.tokenizer.writers.sentencepiece_json import sentencepiece_json
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.storage import Held, Storage
from ..load.whisper_names import TIKTOKEN

if TYPE_CHECKING:
    from ..load.bind import Model

CODE = "E-TOKENIZER-JSON"
PICTURES = (
    IMAGE_CLASSIFICATION, IMAGE_FEATURES, IMAGE_SEGMENTATION, OBJECT_DETECTION, DEPTH_ESTIMATION, MASK_GENERATION,
)  # fmt: skip
FILES = {
    SPEECH_RECOGNITION: (VOCABULARY, SETTINGS, FILE),
    **dict.fromkeys((AUDIO_CLASSIFICATION, AUDIO_FEATURES, *PICTURES), (FILE,)),
}
"""The files by the task of models whose weights are listed by modules."""


def held_keys(graph: Graph, model: Model) -> dict[str, Meta]:
    """The keys of a GGUF file that hold the files; empty for other models. FormatError for files that are no JSON."""
    names = FILES.get(model.task.name, ()) if model.architecture.modules else ()
    found: dict[str, Meta] = {}
    for name in names:
        if json_value(graph, name, CODE) is not None:
            found[HELD + name] = text(graph, name) if name in graph.attachments else graph.metadata[HELD + name]
    config = json_value(graph, CONFIG, CODE) if model.task.name in PICTURES and not found else None
    if isinstance(config, Mapping) and isinstance(config.get(TIMM), Mapping):
        found[HELD + FILE] = json.dumps({TIMM: config[TIMM]})
    return found


def lacking_files(graph: Graph, model: Model, *, exported: bool) -> dict[str, Storage]:
    """The files that programs take next to transformers' checkpoints, or next to `exported` graphs, and that the source
    lacks: all of Whisper's, and the tokenizer.json of a vocabulary of CTC or of a SentencePiece model."""
    if model.architecture in whisper.ARCHITECTURES:
        made = whisper_files(graph, model.config)
    else:
        content = ctc_tokenizer_json(graph) if exported and model.task.name == SPEECH_RECOGNITION else None
        made = ({} if content is None else {TOKENIZER: content}) or (sentencepiece_json(graph) if exported else {})
    return {name: Held(content) for name, content in made.items()}


def exported_files(graph: Graph, model: Model) -> dict[str, Storage]:
    """The files that a family has next to exported graphs in place of those of the source."""
    made = model.architecture.exported_files
    files = {} if made is None else made(graph, model.config)
    return {name: Held(json.dumps(content, indent=2, ensure_ascii=False).encode()) for name, content in files.items()}


def add_files(graph: Graph, files: Mapping[str, Storage]) -> None:
    """Put files next to a graph; tokenizer.json replaces a vocabulary in tiktoken's format."""
    graph.attachments |= files
    if TOKENIZER in files:
        graph.attachments.pop(TIKTOKEN, None)


def files_of_held(graph: Graph) -> dict[str, Storage]:
    """The files that keys of a GGUF file hold."""
    names = {name for files in FILES.values() for name in files}
    held = {name: graph.metadata.get(HELD + name) for name in sorted(names)}
    return {name: Held(content.encode()) for name, content in held.items() if isinstance(content, str)}
