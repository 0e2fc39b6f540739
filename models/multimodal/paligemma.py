"""PaliGemma (Beyer et al. 2024, arXiv:2407.07726): SigLIP's patches through a linear layer, and Gemma, in which the
tokens of picture and prompt attend to each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT, SIZE, flag
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import tower_features
from ..layers.linear import linear
from ..layers.net import Net
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.prompts.paligemma_prompt import paligemma_prompt
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Arrays, PromptRules
from ..schema.clip.vision_part import VISION, vision_tower
from ..schema.hyperparameters import matrix
from ..schema.language_part import LANGUAGE_MODEL
from ..schema.network_hyperparameters import Stated

PROJECTOR = "multi_modal_projector.linear"
PREFIX = 2
"""The group of the prompt's tokens."""


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` [batch, patches, hidden of the text] of ``pixel_values``."""
    net = Net(graph, config, weights)
    net.output("image_features", linear(net, tower_features(net, VISION), "projector"))


def groups(config: Config, ids: np.ndarray, mask: np.ndarray, arrays: Arrays) -> np.ndarray:
    """One group of the tokens whose ``token_type_ids`` are 0; none without these."""
    types = arrays.get("token_type_ids")
    return mask if types is None else np.where(types == 0, PREFIX * mask, mask)


RULES = PromptRules(processor=paligemma_prompt, groups=groups, further=("token_type_ids",))
ARCHITECTURES = (
    Architecture(
        "paligemma",
        "PaliGemma",
        ("paligemma",),
        (),
        (
            Stated("architectures", ["PaliGemmaForConditionalGeneration"]),
            Key("image_token", ("image_token_index", "image_token_id"), (), 256000, SIZE),
            Key("projection", "projection_dim", (), 2048, COUNT, at_most=("text.hidden",)),
            Key("text.token_groups", (), (), True, flag),
        ),
        matrix("projector", (PROJECTOR, f"model.{PROJECTOR}"), None, shape=("text.hidden", "vision.hidden")),
        (multimodal_task({VISION_ENCODER: vision_encoder}, RULES), TEXT_FEATURES),
        accepts=writes_text,
        wide_activations=True,
        parts={VISION: vision_tower(), TEXT: LANGUAGE_MODEL},
    ),
)
