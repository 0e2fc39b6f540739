"""DINOv3 (Siméoni et al. 2025, arXiv:2508.10104): a vision transformer with rotary positions along both axes."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import Architecture, Config, Key
from ...runtime.contract.hyperparameter import Real, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.grid import coordinates, indices, side_by_side
from ..layers.image.image_net import ImageNet
from ..layers.image.patches import patch_embedding
from ..layers.image.resize import size_of
from ..layers.image.transformer import attend, heads_first, layer_scale, queries_keys_values
from ..layers.image.vision_transformer import pool as token_pool
from ..layers.image.vision_transformer import prefix_count, with_prefixes
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import IMAGE_FEATURES, ClassTask
from ..schema.vit import settle_vit, vit_keys

LAYER = {
    "norm1": "norm1",
    "attn.q_proj": "attention.q_proj",
    "attn.k_proj": "attention.k_proj",
    "attn.v_proj": "attention.v_proj",
    "attn.proj": "attention.o_proj",
    "ls1.gamma": "layer_scale1.lambda1",
    "norm2": "norm2",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.up_proj": "mlp.up_proj",
    "mlp.down_proj": "mlp.down_proj",
    "ls2.gamma": "layer_scale2.lambda1",
}
MODULES = (
    Module("cls_token", hf="embeddings.cls_token"),
    Module("reg_token", hf="embeddings.register_tokens"),
    Module("mask_token", hf="embeddings.mask_token"),
    Module("patch_embed.proj", hf="embeddings.patch_embeddings"),
    *(Module(f"blocks.{{i}}.{own}", hf=f"layer.{{i}}.{hf}") for own, hf in LAYER.items()),
    Module("norm"),
)
BIASES = {
    "query_bias": "attn.q_proj",
    "key_bias": "attn.k_proj",
    "value_bias": "attn.v_proj",
    "proj_bias": "attn.proj",
    "mlp_bias": "mlp.up_proj",
}
KEYS = (
    *(row for row in vit_keys(ClassTask("DINOv3ViT", (("Model", IMAGE_FEATURES),)), 1e-5) if row.name != "qkv_bias"),
    *(Key(name, name, (), None, flag) for name in BIASES),
    Key("theta", "rope_theta", "rope.freq_base", 100.0, Real(0, above=True)),
    Key("registers", "num_register_tokens", (), None),
    Key("gated", "use_gated_mlp", (), None, flag),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for heads that two axes cannot rotate."""
    settle_vit(config, weights)
    config.values["intermediate"] = weights["blocks.0.mlp.up_proj.weight"].shape[0]
    config.values["registers"] = weights["reg_token"].shape[1]
    config.values["gated"] = "blocks.0.mlp.gate_proj.weight" in weights
    config.values |= {name: f"blocks.0.{layer}.bias" in weights for name, layer in BIASES.items()}
    if config.hidden // config.heads % 4:
        why = f"rotary positions of two axes do not fit heads of {config.hidden // config.heads} elements"
        raise FormatError("E-ARCH-ROPE", config.path, why)


def features(net: ImageNet) -> Value:
    """Normalized tokens [batch, 1 + registers + patches, width]."""
    config = net.config
    patches = patch_embedding(net, net.pixels("patch_embed.proj.weight"), "patch_embed.proj")
    x = with_prefixes(net, net.flatten(patches))
    rotation = _rotation(net, patches, x)
    for i in range(config.layers):
        name = f"blocks.{i}"
        y = _attention(net, layer_norm(net, x, f"{name}.norm1", config.eps), f"{name}.attn", rotation)
        x = net.Add(x, layer_scale(net, y, f"{name}.ls1.gamma"))
        y = _feed_forward(net, layer_norm(net, x, f"{name}.norm2", config.eps), f"{name}.mlp")
        x = net.Add(x, layer_scale(net, y, f"{name}.ls2.gamma"))
    return layer_norm(net, x, "norm", config.eps)


def _rotation(net: ImageNet, patches: Value, tokens: Value) -> list[Value]:
    """Cosines and sines [tokens, head size / 2], and the index of each token [batch, tokens]. Half of the angles are
    those of rows, the others of columns, from -1 to 1; tokens before the patches are not rotated."""
    quarter = net.config.hidden // net.config.heads // 4
    frequencies = 2 * math.pi / net.config.theta ** (np.arange(quarter) / quarter)
    size = size_of(net, patches)
    axes = []
    for axis in (0, 1):
        places, length = coordinates(net, size, axis, 0.5)
        centers = net.Sub(net.Mul(net.Div(places, length), 2.0), 1.0)
        angles = net.Mul(net.Unsqueeze(centers, [1]), net.constant(frequencies.astype(np.float32)))
        axes.append(net.Unsqueeze(angles, [1 - axis]))
    first = net.constant(np.zeros((prefix_count(net), 2 * quarter), np.float32))
    angles = net.Concat(first, side_by_side(net, size, axes[0], axes[1], quarter), axis=0)
    shape = net.Shape(tokens, start=0, end=2)
    order = indices(net, net.Slice(shape, [1], [2], [0]))
    return [net.Cos(angles), net.Sin(angles), net.Expand(net.Unsqueeze(order, [0]), shape)]


def _attention(net: ImageNet, x: Value, name: str, rotation: list[Value]) -> Value:
    heads = net.config.heads
    size = net.config.hidden // heads
    q, k, v = (heads_first(net, part, heads, size) for part in queries_keys_values(net, x, name))
    q, k = (net.RotaryEmbedding(item, *rotation) for item in (q, k))
    return linear(net, attend(net, q, k, v), f"{name}.proj")


def _feed_forward(net: ImageNet, x: Value, name: str) -> Value:
    up, act = linear(net, x, f"{name}.up_proj"), net.config.act
    if net.has(f"{name}.gate_proj.weight"):
        y = net.Mul(net.activate(linear(net, x, f"{name}.gate_proj"), act), up)
    else:
        y = net.activate(up, act)
    return linear(net, y, f"{name}.down_proj")


ARCHITECTURES = (
    Architecture(
        "dinov3_vit",
        "DINOv3",
        ("dinov3_vit",),
        ("dinov3_vit",),
        KEYS,
        (),
        (image_tasks(features, token_pool, lambda net, x: x)[1],),
        settle=settle,
        prefixes=("model.",),
        ignored=("^mask_token$", "embeddings.mask_token$"),
        modules=MODULES,
        defaults={"dinov3_vit": {"num_attention_heads": 6}},
    ),
)
