"""BLIP for questions (Li et al. 2022, arXiv:2201.12086): its image encoder, BERT that reads a question and attends to
the picture, and BERT that writes the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Below, Part, Task
from ...runtime.contract.part_graph import add_part
from ...runtime.contract.part_rows import plain_weights
from ...runtime.ir.graph import Value
from ..pipelines.multimodal.image_to_text_tasks import run_image_to_text
from ..schema.network_hyperparameters import VISUAL_QUESTION_ANSWERING, Stated
from ..seq2seq.blip_text import DECODER, decode, read, text_rows
from ..seq2seq.cross_encoder import CrossEncoder
from ..seq2seq.tasks import encoder_decoder_graphs

VISION, CLASS = "vision", "BlipForQuestionAnswering"


def encode(net: CrossEncoder) -> Value:
    """The hidden states of a question about a picture."""
    net.source = add_part(net.graph, net.config, net.weights, VISION)["last_hidden_state"]
    net.begin()
    return read(net)


def questions(source: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model of questions; GGUF files state no class."""
    return source.get("architectures") == [CLASS] or "model_type" not in source


ARCHITECTURES = (
    Architecture(
        "blip_vqa",
        "BLIP, questions",
        ("blip",),
        ("blip_vqa",),
        (Stated("architectures", [CLASS]),),
        plain_weights(text_rows("encoder", "encoder.embed", "text_encoder.")),
        (Task(VISUAL_QUESTION_ANSWERING, encoder_decoder_graphs(CrossEncoder, encode, decode), run_image_to_text),),
        accepts=questions,
        prefixes=(),
        ignored=(r"^logit_scale$", r"position_ids$"),
        tied=True,
        parts={
            "": Part(DECODER, "text_config", (Below("text_decoder."),)),
            VISION: Part("blip_vision", "vision_config", (Below("vision_model."),)),
        },
    ),
)
