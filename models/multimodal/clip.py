"""CLIP (Radford et al. 2021, arXiv:2103.00020) and Chinese CLIP (Yang et al. 2022, arXiv:2211.01335): texts and
pictures as vectors of one space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import HF, ORIGINAL, Architecture, Below, Key, Part, Weight
from ...runtime.contract.hyperparameter import COUNT
from ...runtime.ir.graph import Graph
from ..layers.linear import linear
from ..pipelines.multimodal.dual_encoders.dual_encoder_graphs import TEXT, VISION, output
from ..pipelines.multimodal.dual_encoders.dual_encoder_tasks import dual_encoder_tasks, scalar
from ..schema.clip.open_clip import projection_width, text_config, vision_config
from ..schema.network_hyperparameters import Stated

PROJECTION = ("projection_dim", (), 512, COUNT)
TEXT_NAMES = ("transformer.", "token_embedding.", "positional_embedding", "ln_final.", "text_projection")
"""Prefixes of the text tower's weights in files of OpenCLIP."""
IMAGE = Part(
    "clip_vision",
    "vision_config",
    (
        Below("vision_model.", "vision_model."),
        Below("visual_projection.", "visual_projection."),
        Below("visual.", "visual.", ORIGINAL, read_only=True),
    ),
)


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """OpenCLIP's checkpoints with a vision transformer, by the names of weights."""
    marks = ("visual.conv1.weight", "visual.class_embedding", "token_embedding.weight", "text_projection")
    if any(mark not in graph.weights for mark in marks):
        return None
    towers = {"text_config": text_config(graph, ""), "vision_config": vision_config(graph)}
    return HF, {"model_type": "clip", "projection_dim": projection_width(graph, ""), **towers}


EMBEDDED = output("text_embeds"), output("image_embeds")
PROJECTED = (
    lambda net, outputs: linear(
        net, net.Gather(outputs["last_hidden_state"], net.Constant(value_int=0), axis=1), "text_projection"
    ),
    output("image_embeds"),
)
ARCHITECTURES = (
    Architecture(
        "clip",
        "CLIP",
        ("clip",),
        (),
        (Stated("architectures", ["CLIPModel"]), Key("text.projection", *PROJECTION)),
        (scalar("logit_scale"),),
        dual_encoder_tasks(*EMBEDDED),
        implied=implied,
        prefixes=(),
        ignored=(r"position_ids$",),
        parts={
            TEXT: Part(
                "clip_text",
                "text_config",
                (Below("text_model.", "text_model."), *(Below(name, name) for name in TEXT_NAMES)),
            ),
            VISION: IMAGE,
        },
    ),
    Architecture(
        "chinese_clip",
        "Chinese CLIP",
        ("chinese_clip",),
        (),
        (Stated("architectures", ["ChineseCLIPModel"]), Key("projection", *PROJECTION)),
        (
            scalar("logit_scale"),
            Weight(
                "text_projection.weight",
                "text_projection.weight",
                "text_projection.weight",
                ("projection", "text.hidden"),
            ),
        ),
        dual_encoder_tasks(*PROJECTED),
        prefixes=(),
        ignored=(r"position_ids$",),
        parts={TEXT: Part("bert", "text_config", (Below("text_model.", "bert."),)), VISION: IMAGE},
    ),
)
