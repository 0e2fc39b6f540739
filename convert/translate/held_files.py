"""Files of tokenizers and of the preparation of sounds and pictures, and the GGUF keys that replace them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
from ...models.tokenizer.writers.gguf_keys import gguf_metadata
from ...models.tokenizer.writers.hf_files import hf_files
from ...models.tokenizer.writers.sentencepiece_json import sentencepiece_json
from ...runtime.ir.graph import Graph, Meta
from ...runtime.tensor.storage import Held, Storage
from ..load.whisper_names import TIKTOKEN

if TYPE_CHECKING:
    from ..load.bind import Model

CODE = "E-TOKENIZER-JSON"
EMBEDDING = "token_embd.weight"
TEMPLATE = "chat_template.jinja"
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


def keys_for_gguf(graph: Graph, model: Model) -> dict[str, Meta]:
    """The tokenizer's keys, for weights that have GGUF's names already; none without tokenizer files."""
    architecture = model.architecture.gguf[0]
    embedding = graph.weights.get(EMBEDDING)
    kinds = model.config.values.get("types")
    types = None if kinds is None else max(1, kinds)
    found = gguf_metadata(graph, architecture, None if embedding is None else embedding.shape[0], types)
    if not found:
        graph.note("W-TOKENIZER-NONE", "no tokenizer files found; programs that read the output cannot encode text")
    return found


def files_for_hf(graph: Graph, context: int | None) -> dict[str, Storage]:
    """The tokenizer's files for a graph of a GGUF file; a chat template that somebody gave goes before the file's
    own."""
    given = graph.attachments.get(TEMPLATE)
    found: dict[str, Storage] = {name: Held(content) for name, content in hf_files(graph, context).items()}
    return found | ({TEMPLATE: given} if given is not None else {})


def role_ids(files: dict[str, Storage]) -> dict[str, Any]:
    """The ids of BOS, EOS and padding for a config.json, as the files say them."""
    if "generation_config.json" not in files:
        return {}
    storage = files["generation_config.json"]
    said = json.loads(bytes(storage.read(0, storage.nbytes)))
    return {
        key: value[0] if isinstance(value, list) else value for key, value in said.items() if key.endswith("_token_id")
    }
