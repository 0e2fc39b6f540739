"""SigLIP (Zhai et al. 2023, arXiv:2303.15343): texts and pictures as vectors of one space, trained pair by pair."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Below, Part
from ..pipelines.multimodal.dual_encoders.dual_encoder_graphs import TEXT, VISION, output
from ..pipelines.multimodal.dual_encoders.dual_encoder_tasks import dual_encoder_tasks, scalar
from ..schema.network_hyperparameters import Stated

ARCHITECTURES = (
    Architecture(
        "siglip",
        "SigLIP",
        ("siglip",),
        (),
        (Stated("architectures", ["SiglipModel"]),),
        (scalar("logit_scale", (1,)), scalar("logit_bias", (1,))),
        dual_encoder_tasks(output("pooler_output"), output("pooler_output"), pairwise=True, masked=False),
        prefixes=(),
        ignored=(r"position_ids$",),
        parts={
            TEXT: Part("siglip_text", "text_config", (Below("text_model.", "text_model."),)),
            VISION: Part("siglip_vision", "vision_config", (Below("vision_model.", "vision_model."),)),
        },
    ),
)
