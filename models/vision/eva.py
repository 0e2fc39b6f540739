"""EVA (Fang et al. 2022, arXiv:2211.07636) and EVA-02 (arXiv:2303.11331), with rotary positions along both axes, and
the image encoders of EVA-CLIP (Sun et al. 2023, arXiv:2303.15389)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import Integer, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.transformer import attend, heads_first, layer_scale, mlp, queries_keys_values
from ..layers.image.vision_transformer import embedded, logits, pool, prefix_count
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import ClassTask, Implied
from ..schema.vit import settle_vit, vit_keys, vit_settings

MODULES = (
    Module("cls_token"),
    Module("reg_token"),
    Module("pos_embed"),
    Module("patch_embed.proj"),
    Module("norm_pre"),
    Module("blocks.{i}"),
    Module("norm"),
    Module("fc_norm"),
    Module("head"),
)
EPS = 1e-6
BASE = 10000.0
"""Base of the frequencies of rotary positions."""
REFERENCE = 16
"""Patches on a side of the images that rotary positions were trained on."""
ENORMOUS = "enormous"
"""Part of the names of models that normalize the outputs of layers, not their inputs."""
KEYS = (
    *vit_keys(ClassTask("Eva"), EPS),
    Key("reference", (), "rope.reference", 0, Integer(0, 1024)),
    Key("norms_outputs", (), "post_norm", False, flag),
)
"""`reference`: patches on a side that positions are scaled to, 0 for models without rotary positions. `norms_outputs`:
whether norms come after attention and feed-forward networks."""


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As ViT, with the mean of the patches for classes but in EVA-CLIP, and rotary positions in most of EVA-02."""
    turns = name.startswith("eva02") and ENORMOUS not in name
    return {
        "pool": "token" if "_clip_" in name else "avg",
        **vit_settings(name, arguments),
        "eps": EPS,
        "reference": REFERENCE if turns else 0,
        "norms_outputs": ENORMOUS in name,
    }


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
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
        x = _added(net, x, name, 1, lambda y, name=name: _attention(net, y, f"{name}.attn", turns))  # type: ignore[misc]
        x = _added(net, x, name, 2, lambda y, name=name: _feed_forward(net, y, f"{name}.mlp"))  # type: ignore[misc]
    return layer_norm(net, x, "norm", config.eps) if net.has("norm.weight") else x


def _added(net: ImageNet, x: Value, name: str, index: int, layer: Callable[[Value], Value]) -> Value:
    """A residual block, with a norm before or after it."""
    norm = f"{name}.norm{index}"
    if net.config.norms_outputs:
        y = layer_norm(net, layer(x), norm, net.config.eps)
    else:
        y = layer(layer_norm(net, x, norm, net.config.eps))
    total: Value = net.Add(x, layer_scale(net, y, f"{name}.gamma_{index}"))
    return total


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
    if not net.has(f"{name}.fc1_g.weight"):
        return mlp(net, x, name, inner_norm=True)
    gate, up = linear(net, x, f"{name}.fc1_g"), linear(net, x, f"{name}.fc1_x")
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
        implied=Implied("eva", r"eva(02)?_\w+", {}, ("head.weight",), settings),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
)
