"""The task of models that write text about pictures with an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ...schema.network_hyperparameters import IMAGE_TO_TEXT
from ...seq2seq.decoder import DECODER, ENCODER, WITH_PAST

if TYPE_CHECKING:
    from ...seq2seq.cross_language_model import CrossLanguageModel
    from ...seq2seq.exported_decoder import ExportedDecoder
    from .picture_text_model import PictureTextModel


def run_image_to_text(graphs: Mapping[str, Graph], options: RunOptions) -> PictureTextModel:
    """Both graphs as one model."""
    from ...seq2seq.tasks import decoder_model

    return _model(graphs, decoder_model(graphs[DECODER], options), options)


def run_exported_image_to_text(graphs: Mapping[str, Graph], options: RunOptions) -> PictureTextModel:
    """The graphs of ONNX files as one model; UsageError where one is not what its name says."""
    from ...seq2seq.exported_decoder import ExportedDecoder

    return _model(graphs, ExportedDecoder(graphs[DECODER], graphs.get(WITH_PAST), options), options)


def _model(
    graphs: Mapping[str, Graph], decoder: CrossLanguageModel | ExportedDecoder, options: RunOptions
) -> PictureTextModel:
    from .picture_text_model import PictureTextModel
    from .task_prompt_model import TaskPromptModel

    by_task = options.config is not None and "image_token" in options.config.values
    model = TaskPromptModel if by_task else PictureTextModel
    return model(graphs[ENCODER], decoder, replace(options, task=IMAGE_TO_TEXT) if by_task else options)
