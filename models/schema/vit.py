"""Hyper-parameters and names of vision transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, Config, Key, Row
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed, checked, flag
from ...runtime.contract.naming import Module
from ...runtime.tensor.stored_tensor import StoredTensor
from .network_hyperparameters import LABELS, ClassTask, count_of, image_act, norm_eps, settle_labels
from .weight_layout import JOINED

SIDES = Listed(Integer(1, 1 << 16), 2, 2)
HEAD_SIZE = 64
"""Elements of a head of models that do not state the number of heads."""
MAX_PATCHES = 1 << 16
POOLS = ("token", "avg", "map", "token_avg")
TANH = re.compile(r"vit_((base_patch32|so400m_patch16|giantopt_patch16)_siglip_|large_patch16_siglip_(gap_)?512)")
"""Names of timm's models with the approximation of GELU by tanh."""


@dataclass(frozen=True)
class ImageSize:
    """Hyper-parameter: height and width of the images that the model was trained on; None if not stated. `pair` is
    whether transformers states both for squares, too."""

    key: str = "image_size"
    name: str = "image_size"
    pair: bool = False

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int] | None:
        said = source.get(self.key)
        if said is None:
            return None
        return list(checked(self.key, said if isinstance(said, list | tuple) else [said, said], SIDES))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        said = config.image_size
        one = said is not None and said[0] == said[1] and names == HF and not self.pair
        return {} if said is None else {self.key: said[0] if one else said}


def vit_keys(task: ClassTask, eps: float, antialias: bool = False) -> tuple[Row, ...]:
    """The rows of models of a task, whose norms add `eps` if the file does not state it; `antialias` is whether
    transformers interpolates positions with antialiasing, as timm does."""
    return (
        task,
        *LABELS,
        Key("hidden", "hidden_size", "embedding_length", None, COUNT),
        Key("layers", "num_hidden_layers", "block_count", None, COUNT, at_most=("hidden",)),
        Key("heads", "num_attention_heads", "attention.head_count", None, COUNT, at_most=("hidden",)),
        Key("intermediate", "intermediate_size", "feed_forward_length", None, COUNT),
        Key("patch", "patch_size", "patch_size", None, COUNT),
        Key("qkv_bias", "qkv_bias", (), None, flag),
        ImageSize(),
        norm_eps(eps, "layer_norm_eps"),
        image_act("gelu"),
        Key("pool", (), "pooling", "token", Choice(POOLS)),
        Key("antialias", (), "position_antialias", lambda config: antialias or config.names != HF, flag),
    )


def settle_vit(config: Config, weights: dict[str, StoredTensor], others: int = 0) -> None:
    """Take sizes from the weights, and the grid of the position embeddings.

    Args:
        others: tokens after the patches that have position embeddings, too.

    Raises FormatError for position embeddings that do not fit the image.
    """
    settle_labels(config, weights, "head.weight")
    patches = weights["patch_embed.proj.weight"].shape
    layers = count_of(weights, "blocks.{i}.norm1.weight")
    inner = weights.get("blocks.0.mlp.fc2.weight", weights.get("blocks.0.mlp.w3.weight"))
    config.values |= {"hidden": patches[0], "layers": layers, "patch": patches[-1]}
    config.values["intermediate"] = inner.shape[-1] if inner is not None else None
    config.values["qkv_bias"] = "blocks.0.attn.qkv.bias" in weights
    config.values["heads"] = config.heads or max(1, patches[0] // HEAD_SIZE)
    if patches[0] % config.heads:
        why = f"{config.heads} heads do not divide a width of {patches[0]}"
        raise FormatError("E-ARCH-KEY", config.path, why)
    if config.image_size is None and "pos_embed" in weights:
        side = trained_side(weights["pos_embed"].shape[1], weights)
        config.values["image_size"] = None if side is None else [side * patches[-2], side * patches[-1]]
    if config.image_size is not None:
        rows, columns = (length // size for length, size in zip(config.image_size, patches[-2:], strict=True))
        config.values["grid"] = (rows, columns)
        length = weights["pos_embed"].shape[1] if "pos_embed" in weights else rows * columns
        if rows * columns > MAX_PATCHES or not 0 <= length - rows * columns - others <= prefixes(weights):
            why = f"{length} position embeddings do not fit {rows} x {columns} patches"
            raise FormatError("E-ARCH-SHAPE", config.path, why)


def prefixes(weights: Mapping[str, StoredTensor]) -> int:
    """Number of tokens before the patches."""
    return sum(weights[name].shape[1] for name in ("cls_token", "dist_token", "reg_token") if name in weights)


def trained_side(length: int, weights: Mapping[str, StoredTensor]) -> int | None:
    """The side of the square of patches that `length` position embeddings are for; some or all of the tokens before
    the patches may have one, too."""
    sides = (round((length - placed) ** 0.5) for placed in (0, 1, prefixes(weights)) if length > placed)
    return next((side for side in sides if length - side * side in (0, 1, prefixes(weights))), None)


def vit_settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that timm's name of a model and its arguments state."""
    words = name.split("_")
    beit3, quick = words[0] == "beit3", "quickgelu" in words
    pool = "avg" if beit3 or "gap" in words else "map" if {"siglip", "map"} & {*words} else None
    said = {
        "heads": arguments.get("num_heads"),
        "image_size": arguments.get("img_size"),
        "eps": 1e-5 if beit3 or quick or "clip" in words else 1e-6,
        "act": "quick_gelu" if quick else "gelu_tanh" if TANH.match(name) else "gelu",
        "pool": arguments.get("global_pool") or pool,
    }
    return {key: value for key, value in said.items() if value is not None}


HF_LAYERS = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
    "ls1.gamma": "layer_scale1.lambda1",
    "ls2.gamma": "layer_scale2.lambda1",
}
"""Names of norms, LayerScale and feed-forward networks in a layer of transformers' ViT, by timm's."""


def vit_modules(prefix: str, ours: Mapping[str, str]) -> tuple[Module, ...]:
    """The modules of models whose layers are ``PREFIX{i}.`` in transformers, where `ours` are the names of norms,
    LayerScale and feed-forward networks in a layer by timm's."""
    return (
        Module("cls_token", hf="embeddings.cls_token"),
        Module("dist_token", hf="embeddings.distillation_token"),
        Module("reg_token", hf="embeddings.register_tokens", timm="reg_token"),
        Module("mask_token", hf="embeddings.mask_token"),
        Module("pos_embed", hf="embeddings.position_embeddings"),
        Module("patch_embed.proj", hf="embeddings.patch_embeddings.projection"),
        *(Module(f"blocks.{{i}}.{own}", hf=f"{prefix}{{i}}.{theirs}") for own, theirs in ours.items()),
        Module(
            "blocks.{i}.attn.qkv",
            hf=tuple(f"{prefix}{{i}}.attention.attention.{part}" for part in ("query", "key", "value")),
            layout=JOINED,
        ),
        Module("blocks.{i}.attn.proj", hf=f"{prefix}{{i}}.attention.output.dense"),
        Module("blocks.{i}.attn.norm", hf=()),
        Module("blocks.{i}.mlp.norm", hf=()),
        Module("blocks.{i}.attn.q_norm", hf=()),
        Module("blocks.{i}.attn.k_norm", hf=()),
        Module("norm", hf="layernorm"),
        Module("norm_pre", hf=()),
        Module("fc_norm", hf=()),
        Module("attn_pool", hf=()),
        Module("pooler", timm=()),
        Module("head", hf="classifier"),
    )
