"""BLIP for captions and for questions (Li et al. 2022, arXiv:2201.12086): its image encoder, and BERT as a decoder that
attends to it. For questions a second BERT reads the question and attends to the picture, and the decoder to that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Below, Part, Task
from ...runtime.contract.part_graph import add_part
from ...runtime.contract.part_rows import plain_weights
from ...runtime.ir.graph import Value
from ..layers.net import Net
from ..pipelines.multimodal.image_to_text_tasks import run_image_to_text
from ..schema.network_hyperparameters import IMAGE_TO_TEXT, VISUAL_QUESTION_ANSWERING, Stated
from ..seq2seq.blip_text import DECODER, decode, read, text_rows
from ..seq2seq.cross_encoder import CrossEncoder
from ..seq2seq.tasks import encoder_decoder_graphs

VISION = "vision"
CAPTIONS, QUESTIONS = "BlipForConditionalGeneration", "BlipForQuestionAnswering"
"""The classes of the two models, as a config.json states them."""
PARTS = {
    "": Part(DECODER, "text_config", (Below("text_decoder."),)),
    VISION: Part("blip_vision", "vision_config", (Below("vision_model."),)),
}


def encode(net: Net) -> Value:
    """The hidden states of a picture."""
    return add_part(net.graph, net.config, net.weights, VISION)["last_hidden_state"]


def encode_question(net: CrossEncoder) -> Value:
    """The hidden states of a question about a picture."""
    net.source = encode(net)
    net.begin()
    return read(net)


def captions(source: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model of captions, not of questions or retrieval."""
    return source.get("architectures") in (None, [CAPTIONS])


def questions(source: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model of questions; GGUF files state no class."""
    return source.get("architectures") == [QUESTIONS] or "model_type" not in source


ARCHITECTURES = (
    Architecture(
        "blip",
        "BLIP",
        ("blip",),
        ("blip",),
        (Stated("architectures", [CAPTIONS]),),
        (),
        (Task(IMAGE_TO_TEXT, encoder_decoder_graphs(Net, encode, decode, padded=False), run_image_to_text),),
        accepts=captions,
        prefixes=(),
        ignored=(r"^logit_scale$",),
        tied=True,
        parts=PARTS,
    ),
    Architecture(
        "blip_vqa",
        "BLIP, questions",
        ("blip",),
        ("blip_vqa",),
        (Stated("architectures", [QUESTIONS]),),
        plain_weights(text_rows("encoder", "encoder.embed", "text_encoder.")),
        (
            Task(
                VISUAL_QUESTION_ANSWERING,
                encoder_decoder_graphs(CrossEncoder, encode_question, decode),
                run_image_to_text,
            ),
        ),
        accepts=questions,
        prefixes=(),
        ignored=(r"^logit_scale$", r"position_ids$"),
        tied=True,
        parts=PARTS,
    ),
)
