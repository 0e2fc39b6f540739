"""LLaVA's encoder and projector in llama.cpp's files (mmproj)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.contract.architecture import Config
from ....runtime.contract.hyperparameter import SIZE, Listed, checked
from ....runtime.tensor.stored_tensor import StoredTensor
from .keys import exact_gelu, image_processor, other_activation, square

CLASS_TOKEN = "vision.cls_token"
OPENAI_MEAN, OPENAI_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
LAST = -2
"""The hidden states that llama.cpp takes where a file does not state which."""


@dataclass(frozen=True)
class FeatureLayer:
    """Hyper-parameter: which hidden states are the features, counted from the last ones, which are -1; files count from
    the first ones, which are 0."""

    name: str = "layer"
    key: str = "vision.feature_layer"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> int:
        stated = checked(self.key, source.get(self.key) or [], Listed(SIZE, 0, 1))
        return stated[0] - config.values["vision.layers"] - 1 if stated else LAST

    def write(self, names: str, config: Config) -> dict[str, Any]:
        layer, layers = config.values[self.name], config.values["vision.layers"]
        return {self.key: [layers + 1 + layer if layer < 0 else layer]}


def stated(config: Config, weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """Hyper-parameters that depend on whether pictures have a class token."""
    if CLASS_TOKEN in weights:
        return {"select": "default", "act": "gelu"}
    return {"select": "full", "act": "gelu", "vision.pooled": False}


def kind(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """CLIP's encoder where pictures have a class token, else SigLIP's."""
    return "clip_vision_model" if CLASS_TOKEN in weights else "siglip_vision_model"


def misfit(config: Config, weights: Mapping[str, StoredTensor]) -> str:
    """The difference to llama.cpp's computation, empty if none."""
    if CLASS_TOKEN in weights and config.select != "default":
        return "it leaves out the feature of the class token (vision_feature_select_strategy)"
    if CLASS_TOKEN not in weights and config.select != "full":
        return "it keeps the feature of the first patch (vision_feature_select_strategy)"
    if not square(config):
        return "it takes pictures of the trained size that are squares"
    if config.act not in ("gelu", "gelu_tanh"):
        return f"it has no projectors with the activation {config.act}"
    if "projector.linear_1.bias" not in weights:
        return "it has no projectors without biases"
    return other_activation(config)


def approximated(config: Config) -> str:
    """The deviation of llama.cpp in builds of 2026: it appends the class token after the patches, whose learned
    positions begin with it, and leaves out the first feature."""
    if config.values.get("vision.model_type") != "clip_vision_model":
        return exact_gelu(config)
    return (
        "it puts the class token of CLIP's encoder behind the patches in place of before them, so that features of "
        "pictures differ from the model's"
    )


def post_norm(weights: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """A norm after the layers that changes nothing: encoders have one, which no feature comes from."""
    like = weights.get("vision.patch_embed.proj.bias", weights.get("vision.norm_pre.weight"))
    if like is None:
        return {}
    name = "vision.fc_norm" if CLASS_TOKEN in weights else "vision.norm"
    arrays = {"weight": np.ones(like.shape, np.float32), "bias": np.zeros(like.shape, np.float32)}
    return {f"{name}.{kind}": StoredTensor.of(array) for kind, array in arrays.items()}


def preparation(config: Config) -> dict[str, Any]:
    """preprocessor_config.json of CLIP."""
    size = (config.values.get("vision.image_size") or [336])[0]
    return image_processor(
        "CLIPImageProcessor", config, OPENAI_MEAN, OPENAI_STD, size={"shortest_edge": size}, resample=3,
        do_center_crop=True, crop_size={"height": size, "width": size},
    )  # fmt: skip
