"""BLIP for captions (Li et al. 2022, arXiv:2201.12086): its image encoder, and BERT as a decoder that attends to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import Architecture, Below, Part, Task
from ...runtime.contract.part_graph import add_part
from ...runtime.ir.graph import Value
from ..layers.net import Net
from ..pipelines.multimodal.image_to_text_tasks import run_image_to_text
from ..schema.network_hyperparameters import IMAGE_TO_TEXT, Stated
from ..seq2seq.blip_text import DECODER, decode
from ..seq2seq.tasks import encoder_decoder_graphs

VISION, CLASS = "vision", "BlipForConditionalGeneration"


def encode(net: Net) -> Value:
    """The hidden states of a picture."""
    return add_part(net.graph, net.config, net.weights, VISION)["last_hidden_state"]


def captions(source: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model of captions, not of questions or retrieval."""
    return source.get("architectures") in (None, [CLASS])


ARCHITECTURES = (
    Architecture(
        "blip",
        "BLIP",
        ("blip",),
        ("blip",),
        (Stated("architectures", [CLASS]),),
        (),
        (Task(IMAGE_TO_TEXT, encoder_decoder_graphs(Net, encode, decode, padded=False), run_image_to_text),),
        accepts=captions,
        prefixes=(),
        ignored=(r"^logit_scale$",),
        tied=True,
        parts={
            "": Part(DECODER, "text_config", (Below("text_decoder."),)),
            VISION: Part("blip_vision", "vision_config", (Below("vision_model."),)),
        },
    ),
)
