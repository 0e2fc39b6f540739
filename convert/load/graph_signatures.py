"""Tasks of exported graphs: a table of the inputs and outputs that pipelines declare, and of what files state."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...models.generation.decoder_states import is_state
from ...models.pipelines.feature_extraction import HIDDEN, WHOLE
from ...models.pipelines.image.image_model import MASK
from ...models.preprocess.as_nodes import BYTES, PIXELS
from ...models.preprocess.ultralytics_export import DETECTORS, export_of
from ...models.schema.codec_hyperparameters import AUDIO_CODEC, CODES
from ...models.schema.encoder_hyperparameters import FILL_MASK, QUESTION_ANSWERING, TOKEN_CLASSIFICATION, task_of_class
from ...models.schema.network_hyperparameters import IMAGE_CLASSIFICATION, IMAGE_FEATURES
from ...runtime.contract.architecture import FEATURE_EXTRACTION, TEXT_CLASSIFICATION
from ...runtime.ir.graph import Graph, Value
from ...runtime.passes.weights.rename_values import Rename
from ...runtime.plugin.discovery import Plugins
from ...runtime.tensor.dtype import F32
from .attached_files import with_files
from .recognise import described

Ranks = Mapping[str, int | None]
"""Names of values with their numbers of dimensions, None for any."""
CODEC, IMAGE, AUDIO, TEXT = "codec", "image", "audio", "text"
"""Kinds of models, which different classes run."""
AUDIO_SIGNATURES = Plugins("models.pipelines.audio", "SIGNATURES")
"""By task, pairs of all inputs and all outputs of models of sounds."""
IMAGE_OUTPUTS = Plugins("models.pipelines.image", "OUTPUTS")
"""By task, outputs of models of pictures; a graph may have others too."""
IMAGES = "images"
"""Name of the input in exports of ultralytics."""
PIXELS_RANK = 4
ASKED: Mapping[str, tuple[str, str, int]] = {
    IMAGE_CLASSIFICATION: (IMAGE, "logits", 2),
    IMAGE_FEATURES: (IMAGE, "pooler_output", 2),
    TEXT_CLASSIFICATION: (TEXT, "logits", 2),
    TOKEN_CLASSIFICATION: (TEXT, "logits", 3),
    FILL_MASK: (TEXT, "logits", 3),
}
"""Tasks that may be asked for by name where neither names nor files tell one: kind, output and its dimensions."""


def signature_task(graph: Graph, asked: str | None) -> tuple[str, str] | None:
    """The kind and the task of a graph of nodes; `asked` if nothing tells another one and the graph may compute it.
    None for decoders and unknown graphs."""
    if graph.inputs and all(value.name.split(".")[0] == CODES for value in graph.inputs):
        return CODEC, AUDIO_CODEC
    for kind, task in ((IMAGE, _image_task(graph) or _asked_image_task(graph, asked)), (AUDIO, _audio_task(graph))):
        if task is not None:
            return kind, task
    task = _text_task(graph) or _asked_text_task(graph, asked)
    return None if task is None else (TEXT, task)


def _ranks(values: Sequence[Value]) -> Ranks:
    return {value.name: None if value.shape is None else len(value.shape) for value in values}


def _fits(found: Ranks, expected: Ranks, *, unknown: bool = False) -> bool:
    """Whether the values are there with these numbers of dimensions; `unknown`: or with an unknown number."""
    return all(
        name in found and (rank in (None, found[name]) or (unknown and found[name] is None))
        for name, rank in expected.items()
    )


def _audio_task(graph: Graph) -> str | None:
    sides = _ranks(graph.inputs), _ranks(graph.outputs)
    for task in AUDIO_SIGNATURES.names():
        for expected in AUDIO_SIGNATURES.load(task):
            if all(set(found) == set(each) and _fits(found, each) for found, each in zip(sides, expected, strict=True)):
                return task.replace("_", "-")
    return None


def _image_task(graph: Graph) -> str | None:
    """The task of a graph with an input of pixels, and perhaps a mask of padding, by its outputs or metadata."""
    inputs = {value.name for value in graph.inputs} - {MASK}
    if len(inputs) != 1 or not inputs <= {PIXELS, BYTES, IMAGES}:
        return None
    export = export_of(graph.metadata)
    if export is not None:
        return "object-detection" if export.task in DETECTORS else None
    ranks = _ranks(graph.outputs)
    fitting = [
        (each, task) for task in IMAGE_OUTPUTS.names() for each in IMAGE_OUTPUTS.load(task) if _fits(ranks, each)
    ]
    if not fitting:
        return None
    _, task = max(fitting, key=lambda each: (len(each[0]), set(each[0].values()) != {None}))  # the most specific
    return task.replace("_", "-")


def _asked_image_task(graph: Graph, task: str | None) -> str | None:
    """`task` if a graph has one input of pixels, and one output of vectors, which gets the name that it has in it."""
    kind, name, rank = ASKED.get(task or "", (TEXT, "", 0))
    inputs = [value for value in graph.inputs if value.name not in graph.weights]
    if kind != IMAGE or len(inputs) != 1 or len(graph.outputs) != 1:
        return None
    (pixels,), (vectors,) = inputs, graph.outputs
    sides = {**_ranks([pixels]), **_ranks([vectors])}
    if pixels.dtype not in (None, F32) or not _fits(
        sides, {pixels.name: PIXELS_RANK, vectors.name: rank}, unknown=True
    ):
        return None
    if vectors.name != name:
        Rename({vectors.name: name}).run(graph)
    return task


def _text_task(graph: Graph) -> str | None:
    """The task of a graph that takes token ids and keeps no states, by its outputs and the class that files state."""
    inputs, outputs = ({value.name for value in values} for values in (graph.inputs, graph.outputs))
    if any(is_state(value) for value in graph.inputs) or "input_ids" not in inputs:
        return None
    if outputs & {*HIDDEN, WHOLE}:
        return FEATURE_EXTRACTION
    if {"start_logits", "end_logits"} <= outputs:
        return QUESTION_ANSWERING
    said = described(dataclasses.replace(with_files(graph), format=""))
    classes = said[1].get("architectures") if said is not None else None
    found = task_of_class(classes[0]) if isinstance(classes, list) and classes else None
    return found if "logits" in outputs and found != FEATURE_EXTRACTION else None


def _asked_text_task(graph: Graph, task: str | None) -> str | None:
    """`task` if a graph keeps no states and may be a classifier of texts or tokens."""
    kind, name, rank = ASKED.get(task or "", (IMAGE, "", 0))
    if kind != TEXT or any(is_state(value) for value in graph.inputs):
        return None
    return task if _fits(_ranks(graph.outputs), {name: rank}, unknown=True) else None
