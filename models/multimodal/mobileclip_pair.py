"""MobileCLIP (Vasu et al. 2023, arXiv:2311.17049): FastViT and a text transformer that is not causal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import HF, TIMM, Architecture, Below, Part
from ...runtime.ir.graph import Graph
from ..pipelines.multimodal.dual_encoders.dual_encoder_graphs import TEXT, VISION, output
from ..pipelines.multimodal.dual_encoders.dual_encoder_tasks import dual_encoder_tasks, scalar
from ..schema.clip.open_clip import text_config

TRUNK = "visual.trunk."
MARKS = (f"{TRUNK}head.fc.weight", "text.token_embedding.weight", "text.text_projection", "logit_scale")


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """OpenCLIP's checkpoints with both towers, by the names of weights."""
    if any(mark not in graph.weights for mark in MARKS):
        return None
    return HF, {"model_type": "mobileclip_pair", "text_config": text_config(graph, "text."), "vision_config": {}}


ARCHITECTURES = (
    Architecture(
        "mobileclip_pair",
        "MobileCLIP, both towers",
        (),
        (),
        (),
        (scalar("logit_scale"),),
        dual_encoder_tasks(output("text_embeds"), output("image_embeds")),
        implied=implied,
        prefixes=(),
        ignored=(),
        parts={
            TEXT: Part("clip_text", "text_config", (Below("text."),)),
            VISION: Part("mobileclip", "vision_config", (Below(TRUNK, TRUNK, TIMM),)),
        },
    ),
)
