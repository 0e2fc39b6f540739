"""BEiT (Bao et al. 2021, arXiv:2106.08254)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import TIMM, Architecture, Config, Key
from ...runtime.contract.hyperparameter import NOT_NEGATIVE, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.transformer import attend, heads_first, layer_scale, mlp, queries_keys_values
from ..layers.image.vision_transformer import embedded, logits, pool
from ..layers.image.windows import relative_bias, relative_index
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import ClassTask, Implied
from ..schema.vit import settle_vit, vit_keys, vit_settings
from ..schema.weight_layout import JOINED

LAYER = "encoder.layer.{i}."
TABLE = "relative_position_bias_table"
MODULES = (
    Module("cls_token", hf="embeddings.cls_token"),
    Module("mask_token", hf="embeddings.mask_token"),
    Module("pos_embed", hf="embeddings.position_embeddings"),
    Module("patch_embed.proj", hf="embeddings.patch_embeddings.projection"),
    Module("blocks.{i}.norm1", hf=f"{LAYER}layernorm_before"),
    Module("blocks.{i}.norm2", hf=f"{LAYER}layernorm_after"),
    Module("blocks.{i}.attn.q_bias", hf=f"{LAYER}attention.attention.query.bias"),
    Module("blocks.{i}.attn.v_bias", hf=f"{LAYER}attention.attention.value.bias"),
    Module(
        "blocks.{i}.attn.qkv",
        hf=tuple(f"{LAYER}attention.attention.{part}" for part in ("query", "key", "value")),
        layout=JOINED,
    ),
    Module(f"blocks.{{i}}.attn.{TABLE}", hf=f"{LAYER}attention.attention.relative_position_bias.{TABLE}"),
    Module("blocks.{i}.attn.proj", hf=f"{LAYER}attention.output.dense"),
    Module("blocks.{i}.mlp.fc1", hf=f"{LAYER}intermediate.dense"),
    Module("blocks.{i}.mlp.fc2", hf=f"{LAYER}output.dense"),
    Module("blocks.{i}.gamma_1", hf=f"{LAYER}lambda_1"),
    Module("blocks.{i}.gamma_2", hf=f"{LAYER}lambda_2"),
    Module(f"rel_pos_bias.{TABLE}", hf=f"encoder.relative_position_bias.{TABLE}"),
    Module("norm", hf="layernorm"),
    Module("fc_norm", hf="pooler.layernorm"),
    Module("head", hf="classifier"),
)
KEYS = (
    *vit_keys(ClassTask("Beit"), 1e-12),
    Key("own_bias", "use_relative_position_bias", (), None, flag),
    Key("shared_bias", "use_shared_relative_position_bias", (), None, flag),
    Key("positions", "use_absolute_position_embeddings", (), None, flag),
    Key("mean", "use_mean_pooling", (), None, flag),
    Key("scale", "layer_scale_init_value", (), None, NOT_NEGATIVE),
)
"""Beyond ViT's, what transformers wants to know and weights show."""
SPECIAL = 3
"""Rows at the end of a table: class token to patches, patches to it, and to itself."""


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As ViT, with the mean of the patches for classes."""
    return {"pool": "avg", **vit_settings(name, arguments)}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """As ViT; the image's size follows from the tables of relative positions."""
    table = weights.get(f"blocks.0.attn.{TABLE}", weights.get(f"rel_pos_bias.{TABLE}"))
    if config.image_size is None and table is not None:
        side = (math.isqrt(table.shape[0] - SPECIAL) + 1) // 2
        config.values["image_size"] = [side * size for size in weights["patch_embed.proj.weight"].shape[-2:]]
    config.values |= {
        "own_bias": f"blocks.0.attn.{TABLE}" in weights,
        "shared_bias": f"rel_pos_bias.{TABLE}" in weights,
        "positions": "pos_embed" in weights,
        "mean": "fc_norm.weight" in weights,
        "scale": 0.1 if "blocks.0.gamma_1" in weights else 0.0,
    }
    config.values["pool"] = "avg" if "fc_norm.weight" in weights else config.pool
    settle_vit(config, weights)
    config.values["fixed_size"] = config.image_size
    if table is not None and table.shape[0] != _rows(*config.grid):
        why = f"{table.shape[0]} relative positions do not fit {config.grid[0]} x {config.grid[1]} patches"
        raise FormatError("E-ARCH-SHAPE", config.path, why)


def _rows(height: int, width: int) -> int:
    return (2 * height - 1) * (2 * width - 1) + SPECIAL


def token_index(height: int, width: int) -> np.ndarray:
    """As `relative_index`, with the class token before the patches."""
    length, last = height * width + 1, _rows(height, width)
    index = np.empty((length, length), np.int64)
    index[1:, 1:] = relative_index(height, width)
    index[0, :], index[:, 0], index[0, 0] = last - 3, last - 2, last - 1
    return index


def features(net: ImageNet) -> Value:
    """Tokens [batch, 1 + patches, width]; normalized unless the pooled vector is."""
    config = net.config
    x = embedded(net)
    shared = f"rel_pos_bias.{TABLE}"
    for i in range(config.layers):
        name = f"blocks.{i}"
        table = f"{name}.attn.{TABLE}" if net.has(f"{name}.attn.{TABLE}") else shared
        bias = relative_bias(net, table, token_index(*config.grid)) if net.has(table) else None
        y = _attention(net, layer_norm(net, x, f"{name}.norm1", config.eps), f"{name}.attn", bias)
        x = net.Add(x, layer_scale(net, y, f"{name}.gamma_1"))
        y = mlp(net, layer_norm(net, x, f"{name}.norm2", config.eps), f"{name}.mlp")
        x = net.Add(x, layer_scale(net, y, f"{name}.gamma_2"))
    return layer_norm(net, x, "norm", config.eps) if net.has("norm.weight") else x


def _attention(net: ImageNet, x: Value, name: str, bias: Value | None) -> Value:
    size = net.config.hidden // net.config.heads
    q, k, v = (heads_first(net, part, net.config.heads, size) for part in queries_keys_values(net, x, name))
    return linear(net, attend(net, q, k, v, bias), f"{name}.proj")


ARCHITECTURES = (
    Architecture(
        "beit",
        "BEiT",
        ("beit",),
        ("beit",),
        KEYS,
        (),
        image_tasks(features, pool, logits),
        implied=Implied(
            "beit", r"beit(v2)?_\w+", {TIMM: ("blocks.0.attn.q_bias", "blocks.0.gamma_1")}, ("head.weight",), settings
        ),
        settle=settle,
        prefixes=("beit.",),
        ignored=("mask_token$", "relative_position_index$"),
        modules=MODULES,
        defaults={"beit": {"num_attention_heads": 12}},
    ),
)
