"""Gemma 3 with pictures (Gemma Team 2025, arXiv:2503.19786): SigLIP's patches, averaged to 256 tokens that attend to
each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import Architecture, Config, Key, Stored, Weight
from ...runtime.contract.hyperparameter import SIZE, Integer, flag
from ...runtime.contract.mmproj import Mmproj
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import tower_features
from ..layers.net import Net
from ..pipelines.multimodal.exported_files import ExportedFiles
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.prompts.marked_pictures import MarkedPictures, prepared, token_text, with_token_types
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Arrays, PromptModel, PromptRules
from ..schema.clip.vision_part import VISION, vision_tower
from ..schema.language_part import LANGUAGE_MODEL
from ..schema.mmproj.keys import exact_gelu, vision_keys
from ..schema.mmproj.siglip import PooledTokens, pooled_preparation
from ..schema.mmproj.vit import vit_weights
from ..schema.network_hyperparameters import Stated
from ..schema.weight_layout import Plus

NORM, PROJECTION = "multi_modal_projector.mm_soft_emb_norm.weight", "multi_modal_projector.mm_input_projection_weight"


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` [batch, tokens, hidden of the text] of ``pixel_values``."""
    net = Net(graph, config, weights)
    x = tower_features(net, VISION)
    (rows, columns), side = config.values["vision.grid"], math.isqrt(config.tokens)
    if rows != columns or side * side != config.tokens or rows % side:
        why = f"{rows} x {columns} patches cannot be averaged to {config.tokens} tokens"
        raise FormatError("E-ARCH-SHAPE", config.path, why, hint="Correct mm_tokens_per_image in config.json")
    size = rows // side
    planes = net.Reshape(net.Transpose(x, perm=[0, 2, 1]), [0, 0, rows, columns])
    y = net.Reshape(net.AveragePool(planes, kernel_shape=[size, size], strides=[size, size]), [0, 0, -1])
    scale = net.vector("projector.norm.weight")
    y = net.RMSNormalization(net.Transpose(y, perm=[0, 2, 1]), scale, epsilon=config.values["vision.eps"])
    net.output("image_features", net.MatMul(y, net.matrix("projector.weight")))


def groups(config: Config, ids: np.ndarray, mask: np.ndarray, arrays: Arrays) -> np.ndarray:
    """A group for each run of tokens whose ``token_type_ids`` are 1; none without these."""
    types = arrays.get("token_type_ids")
    if types is None:
        return mask
    seen = types == 1
    first = seen & ~np.pad(seen, ((0, 0), (1, 0)))[:, :-1]
    return np.where(seen, 1 + first.cumsum(1), 1) * mask


def expanded(model: PromptModel, images: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """Pixels of the pictures, and the placeholders of each between two marks and empty lines."""
    config = model.options.config
    assert config is not None
    begin, end, token = (token_text(model, key) for key in ("image_begin", "image_end", "image_token"))
    return prepared(model, images), [f"\n\n{begin}{token * config.tokens}{end}\n\n"] * len(images)


CAUSAL = "lets no token of a picture attend to a later one, which this model does: its answers may differ"
RULES = PromptRules(
    processor=with_token_types(MarkedPictures(expanded, lambda model: token_text(model, "image_begin"))),
    groups=groups,
    further=("token_type_ids",),
)
MMPROJ = Mmproj(
    "gemma3",
    (*vision_keys("gemma3"), PooledTokens()),
    (
        *vit_weights("vision.norm"),
        Weight("projector.norm.weight", gguf="mm.soft_emb_norm.weight", shape=("vision.hidden",)),
        Weight("projector.weight", gguf="mm.input_projection.weight", shape=("vision.hidden", "text.hidden")),
    ),
    kind=lambda config, weights: "siglip_vision_model",
    preparation=pooled_preparation,
    stated=lambda config, weights: {"vision.pooled": False},
    tokens={"image_token": "<image_soft_token>", "image_begin": "<start_of_image>", "image_end": "<end_of_image>"},
    approximated=exact_gelu,
    left_out=("vision.attn_pool",),
)
ARCHITECTURES = (
    Architecture(
        "gemma3_multimodal",
        "Gemma 3",
        ("gemma3",),
        (),
        (
            Stated("architectures", ["Gemma3ForConditionalGeneration"]),
            Key("image_token", ("image_token_index", "image_token_id"), (), 262144, SIZE),
            Key("image_begin", ("boi_token_index", "boi_token_id"), (), 255999, SIZE),
            Key("image_end", ("eoi_token_index", "eoi_token_id"), (), 256000, SIZE),
            Key("tokens", "mm_tokens_per_image", (), 256, Integer(1, 1024)),
            Key("text.token_groups", (), (), True, flag),
        ),
        (
            Weight(
                "projector.norm.weight",
                tuple(Stored((name,), Plus(1.0)) for name in (NORM, f"model.{NORM}")),
                shape=("vision.hidden",),
            ),
            Weight("projector.weight", (PROJECTION, f"model.{PROJECTION}"), (), ("vision.hidden", "text.hidden")),
        ),
        (multimodal_task({VISION_ENCODER: vision_encoder}, RULES), TEXT_FEATURES),
        accepts=writes_text,
        wide_activations=True,
        tied=True,
        exported_files=ExportedFiles(
            "Gemma3Processor", lambda config: {"image_seq_length": config.tokens}, deviation=CAUSAL
        ),
        parts={VISION: vision_tower(), TEXT: LANGUAGE_MODEL},
        mmproj=(MMPROJ,),
    ),
)
