"""LLaVA (Liu et al. 2023, arXiv:2304.08485): patches of an image encoder, through two linear layers, among the tokens
of a language model. Pixtral's files in transformers are of this family, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import SIZE, Choice, Integer
from ...runtime.contract.mmproj import Mmproj
from ...runtime.ir.graph import Graph
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.tower_features import number_last_layer, tower_features
from ..layers.linear import linear
from ..layers.mlp import ACTIVATIONS
from ..layers.net import Net
from ..pipelines.multimodal.exported_files import ExportedFiles
from ..pipelines.multimodal.multimodal_tasks import TEXT, TEXT_FEATURES, multimodal_task, writes_text
from ..pipelines.multimodal.pixtral_files import pixtral_counts, pixtral_pictures
from ..pipelines.multimodal.prompts.marked_pictures import MarkedPictures, prepared, token_text
from ..pipelines.multimodal.prompts.patch_rows import SIZES, encoded_by_size, patch_rows
from ..pipelines.multimodal.prompts.prompt_rules import VISION_ENCODER, Arrays, Modality, PromptModel, PromptRules
from ..schema.clip.vision_part import VISION, vision_tower
from ..schema.hyperparameters import act
from ..schema.language_part import HIDDEN, LANGUAGE_MODEL, linear_projector
from ..schema.mmproj.keys import Fixed, vision_keys
from ..schema.mmproj.llava import FeatureLayer, approximated, kind, misfit, post_norm, preparation, stated
from ..schema.mmproj.pixtral import PIXTRAL, pixtral_file
from ..schema.mmproj.vit import pair, vit_weights
from ..schema.network_hyperparameters import Stated

SIGLIP = "siglip_vision_model"
"""The `model_type` of an encoder without a class token."""


def vision_encoder(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """``image_features`` [batch, patches, hidden of the text] of ``pixel_values``."""
    net = Net(graph, config, weights)
    x = tower_features(net, VISION, config.layer, patches_only=config.select == "default")
    y = ACTIVATIONS[config.act](net, linear(net, x, "projector.linear_1"))
    net.output("image_features", linear(net, y, "projector.linear_2"))


def class_tokens(config: Config) -> int:
    """Tokens of a picture besides those of its patches."""
    return int(config.select == "full" and config.values.get("vision.model_type") not in (SIGLIP, PIXTRAL))


def counts(config: Config) -> dict[str, Any]:
    """Settings with which the processor counts tokens. Transformers.js does not take one away for the strategy
    ``default``."""
    if config.values.get("vision.model_type") == PIXTRAL:
        return pixtral_counts(config)
    strategy = {"vision_feature_select_strategy": "full", "num_additional_image_tokens": class_tokens(config)}
    return {"image_token": "<image>", "patch_size": config.values["vision.patch"], **strategy}


def pictures(config: Config) -> dict[str, Any]:
    """Settings of the image processor: of Pixtral, by what sizes are divided."""
    return pixtral_pictures(config) if config.values.get("vision.model_type") == PIXTRAL else {}


EXPORTED = ExportedFiles(
    lambda config: f"{'Pixtral' if config.values.get('vision.model_type') == PIXTRAL else 'Llava'}Processor",
    counts,
    pictures,
)


def expanded(model: PromptModel, images: Sequence[Any]) -> tuple[Arrays, list[str]]:
    """Pixels of the pictures, and the placeholders of each."""
    config = model.options.config
    assert config is not None
    if config.values.get("vision.model_type") == PIXTRAL:
        return patch_rows(model, images)
    arrays = prepared(model, images)
    height, width = arrays["pixel_values"].shape[2:]
    patch = config.values["vision.patch"]
    count = (height // patch) * (width // patch) + class_tokens(config)
    return arrays, [token_text(model, "image_token") * count] * len(images)


RULES = PromptRules(
    (Modality(arrays=("pixel_values", SIZES), encode=encoded_by_size),), processor=MarkedPictures(expanded)
)
LLAVA = Mmproj(
    "mlp",
    (*vision_keys("mlp"), FeatureLayer(), Fixed("llava", "has_llava_projector", True)),
    (*vit_weights(), *pair("projector.linear_1", "mm.0"), *pair("projector.linear_2", "mm.2", shape=(HIDDEN, HIDDEN))),
    kind=kind,
    preparation=preparation,
    stated=stated,
    tokens={"image_token": "<image>"},
    misfit=misfit,
    approximated=approximated,
    left_out=("vision.fc_norm", "vision.norm.", "vision.attn_pool", "vision.visual_projection"),
    accepts=lambda config: config.values.get("vision.model_type") != PIXTRAL,
    filled=post_norm,
)
ARCHITECTURES = (
    Architecture(
        "llava",
        "LLaVA",
        ("llava",),
        (),
        (
            Stated("architectures", ["LlavaForConditionalGeneration"]),
            Key("image_token", ("image_token_index", "image_token_id"), (), 32000, SIZE),
            Key("layer", "vision_feature_layer", (), -2, Integer(-128, 128)),
            Key("select", "vision_feature_select_strategy", (), "default", Choice(("default", "full"))),
            act("gelu", "projector_hidden_act"),
        ),
        linear_projector("vision.hidden"),
        (multimodal_task({VISION_ENCODER: vision_encoder}, RULES), TEXT_FEATURES),
        accepts=writes_text,
        settle=number_last_layer,
        exported_files=EXPORTED,
        parts={VISION: vision_tower(), TEXT: LANGUAGE_MODEL},
        mmproj=(
            LLAVA,
            pixtral_file("pixtral", accepts=lambda config: config.values.get("vision.model_type") == PIXTRAL),
        ),
    ),
)
