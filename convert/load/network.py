"""Networks: ONNX files of text models, whose task follows from config.json and the names of inputs and outputs."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...models.generation.decoder_states import is_state
from ...models.generation.decoder_tasks import run_decoder
from ...models.pipelines.encoder_tasks import run_encoder
from ...models.pipelines.feature_extraction import HIDDEN, WHOLE
from ...models.schema.encoder_hyperparameters import QUESTION_ANSWERING, task_of_class
from ...runtime.base.errors import Error, UsageError
from ...runtime.contract.architecture import FEATURE_EXTRACTION, MODEL, RunOptions
from ...runtime.contract.weight_binding import config_from, find_architecture
from ...runtime.ir.graph import Graph
from .memory_map import mapped
from .native_model import described, with_files


def run_network(graph: Graph, options: RunOptions, task: str | None) -> Any:
    """An ONNX file as a runnable model: a decoder, or a text model of another task.

    Raises UsageError if another task is asked for than the file's.
    """
    known = network_task(graph)
    if known is None:
        hidden = any(value.name in HIDDEN for value in graph.outputs)
        own = FEATURE_EXTRACTION if hidden else options.task
        return run_decoder({MODEL: mapped(graph)}, dataclasses.replace(options, task=own))
    if task is not None and task != known:
        path = graph.files[0] if graph.files else None
        raise UsageError("E-ARCH-TASK", path, f"the model does not support the task {task!r}", expected=known)
    return run_encoder({MODEL: mapped(graph)}, dataclasses.replace(options, task=known, config=_config(graph)))


def network_task(graph: Graph) -> str | None:
    """The task of a graph of nodes that takes token ids and keeps no states; None for decoders."""
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


def _config(graph: Graph) -> Any:
    """The hyper-parameters in the config.json beside a file; None where it is missing or of an unknown kind."""
    said = described(dataclasses.replace(with_files(graph), format=""))
    if said is None:
        return None
    try:
        architecture = find_architecture(*said)
        return config_from(architecture, *said)
    except Error:
        return None
