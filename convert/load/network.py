"""Networks: ONNX files of text, image and audio models, whose task follows from config.json, inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...models.audio.moonshine import run_exported_samples
from ...models.audio.whisper import run_exported_speech
from ...models.generation.decoder_tasks import run_decoder
from ...models.layers.audio.feature_encoder import FEATURES
from ...models.layers.audio.wave_encoder import SAMPLES
from ...models.pipelines.audio.audio_tasks import run_audio_model
from ...models.pipelines.audio.codec.codec_task import run_codec
from ...models.pipelines.encoder_tasks import run_encoder
from ...models.pipelines.feature_extraction import HIDDEN
from ...models.pipelines.image.image_tasks import run_image_model
from ...models.pipelines.multimodal.image_to_text_tasks import run_exported_image_to_text
from ...models.preprocess.as_nodes import PIXELS
from ...models.schema.audio_hyperparameters import SPEECH_RECOGNITION
from ...models.schema.codec_hyperparameters import AUDIO_CODEC
from ...models.schema.network_hyperparameters import IMAGE_TO_TEXT, VISUAL_QUESTION_ANSWERING
from ...models.seq2seq.decoder import SOURCE_HIDDEN, SOURCE_MASK
from ...models.seq2seq.tasks import TEXT_TO_TEXT, run_exported
from ...runtime.base.errors import Error, UsageError
from ...runtime.contract.architecture import COMPONENT, FEATURE_EXTRACTION, MODEL, Architecture, Config, RunOptions
from ...runtime.contract.weight_binding import config_from, find_architecture
from ...runtime.ir.graph import Graph
from ..open.graph_files import ENCODER, parts_of, refuse_lone, set_of
from ..open.open_model import open_model
from .attached_files import with_files
from .graph_signatures import AUDIO, CODEC, IMAGE, TEXT, signature_task
from .memory_map import mapped
from .recognise import described

IDS = "input_ids"
SOURCES: Mapping[frozenset[str], tuple[str, Callable[..., Any]]] = {
    frozenset(): (TEXT_TO_TEXT, run_exported),
    frozenset({FEATURES}): (SPEECH_RECOGNITION, run_exported_speech),
    frozenset({SAMPLES}): (SPEECH_RECOGNITION, run_exported_samples),
    frozenset({PIXELS}): (IMAGE_TO_TEXT, run_exported_image_to_text),
    frozenset({PIXELS, IDS}): (VISUAL_QUESTION_ANSWERING, run_exported_image_to_text),
}
"""The task of an encoder-decoder, and what runs its graphs, by inputs of the encoder; the most that it has count."""

RUNNERS: Mapping[str, Callable[..., Any]] = {
    CODEC: run_codec, IMAGE: run_image_model, AUDIO: run_audio_model, TEXT: run_encoder,
}  # fmt: skip
"""Runners of the graphs of other models, by kind."""
ALIASES = {AUDIO_CODEC: ("codec",)}
"""Other names of tasks."""


def run_network(graph: Graph, options: RunOptions, task: str | None) -> Any:
    """An ONNX file as a runnable model: a decoder, a text, image or audio model of another task, or an encoder-decoder
    or codec with the files next to its decoder.

    Raises UsageError if another task is asked for than the file's.
    """
    if graph.parts:
        return run_component(graph, options) or _run_set(graph, options, task)
    if attends_to_source(graph):
        return run_component(graph, options) or _run_encoder_decoder(graph, options, task)
    known = signature_task(graph, task)
    if known is None and (component := run_component(graph, options)) is not None:
        return component
    if known is None:
        _refuse_unknown(graph)
        hidden = any(value.name in HIDDEN for value in graph.outputs)
        own = {"task": FEATURE_EXTRACTION, "config": _config(graph)} if hidden else {}
        return run_decoder({MODEL: mapped(graph)}, dataclasses.replace(options, **own))
    kind, name = known
    if task not in (None, name, *ALIASES.get(name, ())):
        path = graph.files[0] if graph.files else None
        raise UsageError("E-ARCH-TASK", path, f"the model does not support the task {task!r}", expected=name)
    options = dataclasses.replace(options, task=name, config=_config(graph))
    graphs = _opened(_files(graph), graph) if kind == CODEC else {MODEL: mapped(graph)}
    return RUNNERS[kind](graphs, options)


def _files(decoder: Graph) -> dict[str, Path]:
    """The files of the model that a decoder belongs to. UsageError without its encoder."""
    path = Path(decoder.files[0]) if decoder.files else None
    files = None if path is None else parts_of(path)
    if files is None:
        expected = "encoder_model.onnx beside decoder_model_merged.onnx or decoder_model.onnx"
        raise UsageError("E-ONNX-ENCODER", path, "a decoder does not run without its encoder", expected=expected)
    return files


def _opened(files: Mapping[str, Path], decoder: Graph) -> dict[str, Graph]:
    """The graphs in files, one of which is the decoder's."""
    path = Path(decoder.files[0])
    return {name: mapped(decoder if file == path else open_model(file)) for name, file in files.items()}


def _refuse_unknown(graph: Graph) -> None:
    """Raise UsageError for a graph that is neither a language model nor one of another known task."""
    inputs, outputs = ([value.name for value in values] for values in (graph.inputs, graph.outputs))
    columns = next(((value.shape or ())[2:] for value in graph.inputs if value.name == IDS), None)
    if columns is None or not all(isinstance(count, int) for count in columns):
        refuse_lone(graph)
        path = graph.files[0] if graph.files else None
        found, hint = f"{', '.join(inputs)} to {', '.join(outputs)}", "candle-convert run computes any graph"
        why = "cannot tell which task this model performs; pass --task"
        raise UsageError("E-ONNX-TASK", path, why, found=found, hint=hint)


def _run_set(graph: Graph, options: RunOptions, task: str | None) -> Any:
    """A model of several graphs that is not an encoder-decoder; UsageError for another task than its own, and for other
    graphs than the files' names say."""
    files = set_of(graph.parts)
    if task not in (None, files.task):
        why = f"the model does not support the task {task!r}"
        raise UsageError("E-ARCH-TASK", graph.files[0], why, expected=files.task)
    graphs = {name: mapped(part) for name, part in graph.parts.items()}
    return files.run(graphs, dataclasses.replace(options, task=files.task))


def attends_to_source(graph: Graph) -> bool:
    """Whether a graph of nodes is the decoder of an encoder-decoder."""
    return any(value.name in (SOURCE_MASK, SOURCE_HIDDEN) for value in graph.inputs)


def _run_encoder_decoder(decoder: Graph, options: RunOptions, task: str | None) -> Any:
    """The model that a decoder belongs to, or its encoder for the task `FEATURE_EXTRACTION`."""
    files = _files(decoder)
    if task in (FEATURE_EXTRACTION, "hidden"):
        return run_network(open_model(files[ENCODER]), options, FEATURE_EXTRACTION)
    with_files(decoder)
    graphs = _opened(files, decoder)
    inputs = {value.name for value in graphs[ENCODER].inputs}
    own, run = SOURCES[max((names for names in SOURCES if names <= inputs), key=len)]
    if task not in (None, own):
        why, expected = f"the model does not support the task {task!r}", f"{own} or {FEATURE_EXTRACTION}"
        raise UsageError("E-ARCH-TASK", decoder.files[0], why, expected=expected)
    return run(graphs, dataclasses.replace(options, config=_config(decoder), task=own))


def run_component(graph: Graph, options: RunOptions) -> Any:
    """The graph, or the graphs, that Optimum exports of a component of a pipeline, as their config.json says; None for
    other models."""
    found = _configured(graph)
    component = None if found is None else found[0].component
    graphs = graph.parts or {COMPONENT: graph}
    if found is None or component is None or not graphs.keys() <= component.graphs.keys():
        return None
    known = {name: mapped(each) for name, each in graphs.items()}
    return component.run(known, dataclasses.replace(options, config=found[1]))


def _config(graph: Graph) -> Any:
    """The hyper-parameters in the config.json next to a file; None where it is missing or of an unknown kind."""
    found = _configured(graph)
    return None if found is None else found[1]


def _configured(graph: Graph) -> tuple[Architecture, Config] | None:
    """The architecture and the hyper-parameters in the config.json next to a file; None as of `_config`."""
    said = described(dataclasses.replace(with_files(graph), format=""))
    if said is None:
        return None
    try:
        architecture = find_architecture(*said)
        return architecture, config_from(architecture, *said)
    except Error:
        return None
