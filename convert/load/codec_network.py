"""Networks of audio: ONNX files of a codec, whose encoder is beside its decoder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ...models.pipelines.audio.codec.codec_task import run_codec
from ...models.schema.codec_hyperparameters import AUDIO_CODEC, CODES
from ...runtime.base.errors import UsageError
from ...runtime.contract.architecture import RunOptions
from ...runtime.ir.graph import Graph
from ..open.graph_files import parts_of
from ..open.open_model import open_model
from .memory_map import mapped


def decodes_audio(graph: Graph) -> bool:
    """Whether a graph of nodes is the decoder of a codec."""
    return bool(graph.inputs) and all(value.name.split(".")[0] == CODES for value in graph.inputs)


def run_codec_files(decoder: Graph, options: RunOptions, task: str | None) -> Any:
    """The codec that a decoder belongs to; UsageError without its encoder, and if another task is asked for."""
    path = Path(decoder.files[0]) if decoder.files else None
    if task not in (None, AUDIO_CODEC, "codec"):
        raise UsageError("E-ARCH-TASK", path, f"the model does not support the task {task!r}", expected=AUDIO_CODEC)
    files = None if path is None else parts_of(path)
    if files is None:
        expected = "encoder_model.onnx beside decoder_model.onnx"
        raise UsageError("E-ONNX-ENCODER", path, "a decoder does not run without its encoder", expected=expected)
    graphs = {name: mapped(decoder if file == path else open_model(file)) for name, file in files.items()}
    return run_codec(graphs, dataclasses.replace(options, task=AUDIO_CODEC))
