"""EVA (Fang et al. 2022, arXiv:2211.07636) and EVA-02 (arXiv:2303.11331), with rotary positions along both axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import Integer
from ...runtime.contract.naming import Part
from ...runtime.ir.graph import Value
from ...runtime.tensor.tensor import Tensor
from ..layers.image.image_net import ImageNet
from ..layers.image.transformer import attend, heads_first, layer_scale, queries_keys_values
from ..layers.image.vision_transformer import embedded, logits, pool, prefix_count
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import ClassTask, Implied
from ..schema.vit import settle_vit, vit_keys, vit_settings

PARTS = (
    Part("cls_token"),
    Part("reg_token"),
    Part("pos_embed"),
    Part("patch_embed.proj"),
    Part("norm_pre"),
    Part("blocks.{i}"),
    Part("norm"),
    Part("fc_norm"),
    Part("head"),
)
BASE = 10000.0
"""Of the frequencies of rotary positions."""
REFERENCE = 16
"""Patches on a side of the images that rotary positions were trained on."""
KEYS = (*vit_keys(ClassTask("Eva"), 1e-6), Key("reference", (), "rope.reference", 0, Integer(0, 1024)))
"""`reference`: patches on a side that positions are scaled to, 0 for models without rotary positions."""


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As ViT, with the mean of the patches for classes, and rotary positions in EVA-02."""
    return {"pool": "avg", **vit_settings(name, arguments), "reference": REFERENCE if name.startswith("eva02") else 0}


def settle(config: Config, weights: dict[str, Tensor]) -> None:
    """As ViT; images have the trained size."""
    settle_vit(config, weights)
    config.values["fixed_size"] = config.image_size


def features(net: ImageNet) -> Value:
    """Tokens [batch, 1 + patches, width]; normalized unless the pooled vector is."""
    config = net.config
    x = embedded(net)
    turns = _angles(net, config.grid) if config.reference else None
    for i in range(config.layers):
        name = f"blocks.{i}"
        y = _attention(net, layer_norm(net, x, f"{name}.norm1", config.eps), f"{name}.attn", turns)
        x = net.Add(x, layer_scale(net, y, f"{name}.gamma_1"))
        y = _feed_forward(net, layer_norm(net, x, f"{name}.norm2", config.eps), f"{name}.mlp")
        x = net.Add(x, layer_scale(net, y, f"{name}.gamma_2"))
    return layer_norm(net, x, "norm", config.eps) if net.has("norm.weight") else x


def _angles(net: ImageNet, grid: tuple[int, int]) -> tuple[Value, Value]:
    """Cosines and sines [patches, head size / 2]: the first half turns by the row, the second by the column."""
    bands = net.config.hidden // net.config.heads // 4
    frequencies = BASE ** (-np.arange(bands) / bands)
    rows, columns = (np.arange(count)[:, None] / count * net.config.reference * frequencies for count in grid)
    both = np.concatenate([np.repeat(rows, grid[1], 0), np.tile(columns, (grid[0], 1))], -1)
    return net.constant(np.cos(both).astype(np.float32)), net.constant(np.sin(both).astype(np.float32))


def _attention(net: ImageNet, x: Value, name: str, turns: tuple[Value, Value] | None) -> Value:
    heads = net.config.heads
    size = net.config.hidden // heads
    q, k, v = (heads_first(net, part, heads, size) for part in queries_keys_values(net, x, name))
    if turns is not None:
        q, k = (_rotated(net, item, turns, size) for item in (q, k))
    y = attend(net, q, k, v)
    y = layer_norm(net, y, f"{name}.norm", net.config.eps) if net.has(f"{name}.norm.weight") else y
    return linear(net, y, f"{name}.proj")


def _rotated(net: ImageNet, x: Value, turns: tuple[Value, Value], size: int) -> Value:
    """Queries or keys [batch, heads, length, size] with neighboring elements of patches rotated."""
    before = prefix_count(net)
    first, patches = net.Slice(x, [0], [before], [2]), net.Slice(x, [before], [np.iinfo(np.int64).max], [2])
    pairs = net.Reshape(patches, [0, 0, 0, size // 2, 2])
    even, odd = (net.Squeeze(part, [4]) for part in net.split(pairs, [1, 1]))
    cosine, sine = turns
    rotated = (net.Sub(net.Mul(even, cosine), net.Mul(odd, sine)), net.Add(net.Mul(odd, cosine), net.Mul(even, sine)))
    joined = net.Concat(*(net.Unsqueeze(part, [4]) for part in rotated), axis=4)
    y: Value = net.Concat(first, net.Reshape(joined, [0, 0, 0, size]), axis=2)
    return y


def _feed_forward(net: ImageNet, x: Value, name: str) -> Value:
    """GELU (EVA), or a gated network with SiLU (EVA-02), whose first layers may be one weight."""
    if net.has(f"{name}.fc1_g.weight"):
        gate, up = linear(net, x, f"{name}.fc1_g"), linear(net, x, f"{name}.fc1_x")
    else:
        width = net.tensor(f"{name}.fc2.weight").shape[1]
        y = linear(net, x, f"{name}.fc1")
        if net.channels(f"{name}.fc1") != 2 * width:
            return linear(net, net.activate(y, net.config.act), f"{name}.fc2")
        gate, up = net.split(y, [width, width])
    y = net.Mul(net.activate(gate, "silu"), up)
    y = layer_norm(net, y, f"{name}.norm", net.config.eps) if net.has(f"{name}.norm.weight") else y
    return linear(net, y, f"{name}.fc2")


ARCHITECTURES = (
    Architecture(
        "eva",
        "EVA",
        (),
        ("eva",),
        KEYS,
        (),
        image_tasks(features, pool, logits),
        implied=Implied("eva", r"eva(02)?_(?!\w*(clip|enormous))\w+", {}, ("head.weight",), settings),
        settle=settle,
        prefixes=(),
        ignored=(),
        parts=PARTS,
    ),
)
