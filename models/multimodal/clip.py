"""CLIP (Radford et al. 2021, arXiv:2103.00020) and Chinese CLIP (Yang et al. 2022, arXiv:2211.01335): texts and
pictures as vectors of one space."""

from __future__ import annotations

from ...runtime.contract.architecture import Architecture, Below, Key, Part, Weight
from ...runtime.contract.hyperparameter import COUNT
from ..layers.contrastive import TEXT, VISION, output
from ..layers.linear import linear
from ..pipelines.multimodal.dual_encoder_tasks import dual_encoder_tasks, scalar
from ..schema.network_hyperparameters import Stated

KEYS = (Key("projection", "projection_dim", (), 512, COUNT),)
IMAGE = Part(
    "clip_vision",
    "vision_config",
    (Below("vision_model.", "vision_model."), Below("visual_projection.", "visual_projection.")),
)
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
        (Stated("architectures", ["CLIPModel"]), *KEYS),
        (scalar("logit_scale"),),
        dual_encoder_tasks(*EMBEDDED),
        prefixes=(),
        ignored=(r"position_ids$",),
        parts={
            TEXT: Part(
                "clip_text",
                "text_config",
                (Below("text_model.", "text_model."), Below("text_projection.", "text_projection.")),
            ),
            VISION: IMAGE,
        },
    ),
    Architecture(
        "chinese_clip",
        "Chinese CLIP",
        ("chinese_clip",),
        (),
        (Stated("architectures", ["ChineseCLIPModel"]), *KEYS),
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
