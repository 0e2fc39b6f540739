"""The task of models that write text about pictures with an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....runtime.contract.architecture import RunOptions
from ....runtime.ir.graph import Graph
from ...seq2seq.decoder import DECODER, ENCODER, WITH_PAST

if TYPE_CHECKING:
    from .picture_text_model import PictureTextModel


def run_image_to_text(graphs: Mapping[str, Graph], options: RunOptions) -> PictureTextModel:
    """Both graphs as one model."""
    from ...seq2seq.tasks import decoder_model
    from .picture_text_model import PictureTextModel

    return PictureTextModel(graphs[ENCODER], decoder_model(graphs[DECODER], options), options)


def run_exported_image_to_text(graphs: Mapping[str, Graph], options: RunOptions) -> PictureTextModel:
    """The graphs of ONNX files as one model; UsageError where one is not what its name says."""
    from ...seq2seq.exported_decoder import ExportedDecoder
    from .picture_text_model import PictureTextModel

    decoder = ExportedDecoder(graphs[DECODER], graphs.get(WITH_PAST), options)
    return PictureTextModel(graphs[ENCODER], decoder, options)
