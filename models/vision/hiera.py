"""Hiera (Ryali et al. 2023, arXiv:2306.00989): attention within units of tokens that lie side by side in memory."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import TIMM, Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT, Listed, Only, Real
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv
from ..layers.image.image_net import ImageNet
from ..layers.image.resize import bicubic
from ..layers.image.transformer import attend, layer_scale, mlp
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import (
    LABELS,
    STAGES,
    ClassTask,
    Implied,
    count_of,
    depths_of,
    image_act,
    norm_eps,
    settle_labels,
)

POOLED, UNIT, STRIDE = 3, 8, 2
"""Number of stages that pool their queries, tokens on a side of a unit, and the divisor of pooling."""
PATCH = 4
"""Pixels from each token to the next."""
WINDOW = "pos_embed_win"
WINDOWED = 2
"""Number of first stages that attend within units."""
MODULES = (
    Module("pos_embed"),
    Module("pos_embed_win"),
    Module("patch_embed.proj"),
    Module("blocks.{i}"),
    Module("head.norm"),
    Module("head.fc"),
)
LAYER, HF_LAYER = "stages.{s}.layers.{b}", "encoder.stages.{s}.layers.{b}"
HF_MODULES = (
    Module("pos_embed", hf="embeddings.position_embeddings"),
    Module("patch_embed.proj", hf="embeddings.patch_embeddings.projection"),
    Module(f"{LAYER}.norm1", hf=f"{HF_LAYER}.layernorm_before"),
    Module(f"{LAYER}.norm2", hf=f"{HF_LAYER}.layernorm_after"),
    Module(LAYER, hf=HF_LAYER),
    Module("head.norm", hf="pooler.layernorm"),
    Module("head.fc", hf="classifier"),
)
"""The modules in transformers, which counts layers in each stage."""
KEYS = (
    ClassTask("Hiera"),
    *LABELS,
    Key("layers", (), "block_count", None, COUNT),
    Key("heads", (), "attention.head_count", 1, COUNT, at_most=("width",)),
    Key("width", (), "embedding_length", None, COUNT),
    Key("edges", (), "image_size", None, Listed(COUNT, 2, 2)),
    norm_eps(1e-6),
    image_act("gelu"),
)


HF_KEYS = (
    ClassTask("Hiera"),
    *LABELS,
    Key("depths", "depths", "depths", [2, 3, 16, 3], STAGES),
    Key("stage_heads", "num_heads", "attention.head_counts", [1, 2, 4, 8], Listed(COUNT, 1, 16)),
    norm_eps(1e-6, "layer_norm_eps"),
    image_act("gelu"),
    Key("width", "embed_dim", "embedding_length", 96, COUNT),
    Key("edges", "image_size", "image_size", [224, 224], Listed(COUNT, 2, 2)),
    Key("kernel", "patch_size", "patch_size", [7, 7], Only([7, 7])),
    Key("stride", "patch_stride", "patch_stride", [4, 4], Only([4, 4])),
    Key("padding", "patch_padding", "patch_padding", [3, 3], Only([3, 3])),
    Key("unit", "masked_unit_size", "unit_size", [UNIT] * 2, Only([UNIT] * 2)),
    Key("pooled", "num_query_pool", "query_pool_count", POOLED, Only(POOLED)),
    Key("pool", "query_stride", "query_stride", [STRIDE] * 2, Only([STRIDE] * 2)),
    Key("windowed", "masked_unit_attention", (), [True] * WINDOWED + [False] * 2,
        Only([True] * WINDOWED + [False] * 2)),
    Key("growth", "embed_dim_multiplier", "embedding_factor", 2.0, Only(2.0)),
    Key("ratio", "mlp_ratio", "mlp_ratio", 4.0, Real(0, 64, above=True)),
)  # fmt: skip
HEADS = {"huge": 4, "large": 2, "plus": 2}


def settings(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The heads of the first stage, of which each further stage has twice as many, and the size of images, which tables
    of windows do not show."""
    known = next((count for word, count in HEADS.items() if word in name), 1)
    said = re.search(r"_(\d{3})$", name)
    edges = arguments.get("img_size") or ([int(said[1])] * 2 if said is not None else None)
    return {"heads": arguments.get("num_heads") or known, **({} if edges is None else {"edges": list(edges)})}


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for images that units do not fill."""
    config.values["layers"] = count_of(weights, "blocks.{i}.norm1.weight")
    config.values["blocks"] = [f"blocks.{i}" for i in range(config.layers)]
    config.values["stage_heads"] = [config.heads << stage for stage in range(POOLED + 1)]
    _settle_sizes(config, weights)


def settle_hf(config: Config, weights: dict[str, StoredTensor]) -> None:
    """As `settle`, for layers that are counted in each stage."""
    config.values["depths"] = depths_of(weights, f"{LAYER}.norm1.weight")
    places = [(s, b) for s, depth in enumerate(config.depths) for b in range(depth)]
    config.values["blocks"] = [f"stages.{s}.layers.{b}" for s, b in places]
    _settle_sizes(config, weights)


def _settle_sizes(config: Config, weights: dict[str, StoredTensor]) -> None:
    settle_labels(config, weights, "head.fc.weight")
    config.values["width"] = weights["patch_embed.proj.weight"].shape[0]
    length = _tokens(config) if WINDOW in weights else weights["pos_embed"].shape[1]
    config.values["side"] = math.isqrt(length)
    config.values["fixed_size"] = [PATCH * config.side] * 2
    if config.side**2 != length or config.side % UNIT:
        why = f"{length} position embeddings are not those of a square of units of {UNIT} x {UNIT}"
        raise FormatError("E-ARCH-SHAPE", config.path, why)


def _tokens(config: Config) -> int:
    """How many tokens an image of the stated size has. FormatError if no size is stated."""
    if config.edges is None:
        why = "the size of images is not stated, and position embeddings of windows fit any"
        raise FormatError("E-ARCH-KEY", config.path, why, hint="Put timm's config.json beside the weights")
    return math.prod(length // PATCH for length in config.edges)


def _positions(net: ImageNet) -> Value:
    """Of each token, [1, rows x columns, channels]; the sum of a table of the image, interpolated, and one of each unit
    (Bolya et al. 2023, arXiv:2311.05613)."""
    table = net.vector("pos_embed")
    if not net.has(WINDOW):
        return table
    side = net.config.side
    whole = bicubic(net, table, net.constant(np.array([side, side])), antialias=True)
    return net.flatten(net.Add(whole, net.Tile(net.vector(WINDOW), [1, 1, side // UNIT, side // UNIT])))


def unit_order(side: int) -> np.ndarray:
    """Tokens of a square in the order in which those that are pooled together, and then units, are neighbors in the
    outermost dimension, int64 [side x side]."""
    order = np.arange(side * side).reshape(1, side, side)
    for _ in range(POOLED):
        batch, rows, columns = order.shape
        split = order.reshape(batch, rows // STRIDE, STRIDE, columns // STRIDE, STRIDE)
        order = split.transpose(0, 2, 4, 1, 3).reshape(-1, rows // STRIDE, columns // STRIDE)
    return order.reshape(-1)


def features(net: ImageNet) -> Value:
    """Tokens [batch, rows x columns / 64, channels]."""
    config = net.config
    x = net.flatten(conv(net, net.pixels("patch_embed.proj.weight"), "patch_embed.proj", stride=PATCH, padding=3))
    x = net.Add(x, _positions(net))
    x = net.Gather(x, net.constant(unit_order(config.side)), axis=1)
    unit, length, stage = UNIT**2, config.side**2, 0
    for name in config.blocks:
        windowed, stride = stage < WINDOWED, 1
        if _grows(net, name):
            stage += 1
            stride = STRIDE**2 if stage <= POOLED else 1
            unit //= stride
        count = length // (stride * unit) if windowed else 1
        x = _block(net, x, name, config.stage_heads[stage], stride, length, count)
        length //= stride
    return x


def _block(net: ImageNet, x: Value, name: str, heads: int, stride: int, length: int, windows: int) -> Value:
    """Attention with pooled queries, then a feed-forward network."""
    eps = net.config.eps
    normed = layer_norm(net, x, f"{name}.norm1", eps)
    if net.has(f"{name}.proj.weight"):
        x = net.ReduceMax(_pools(net, linear(net, normed, f"{name}.proj"), stride, length), [1], keepdims=0)
    elif _grows(net, name):
        x = _pools(net, x, stride, length)
        x = net.Concat(net.ReduceMax(x, [1], keepdims=0), net.ReduceMean(x, [1], keepdims=0), axis=2)
    y = _attention(net, normed, f"{name}.attn", heads, stride, length, windows)
    x = net.Add(x, layer_scale(net, y, f"{name}.ls1.gamma"))
    y = mlp(net, layer_norm(net, x, f"{name}.norm2", eps), f"{name}.mlp")
    z: Value = net.Add(x, layer_scale(net, y, f"{name}.ls2.gamma"))
    return z


def _grows(net: ImageNet, name: str) -> bool:
    """Whether a block has more channels than its input: it is the first of a stage."""
    return net.channels(f"{name}.norm1") != net.channels(f"{name}.norm2")


def _pools(net: ImageNet, x: Value, stride: int, length: int) -> Value:
    """Tokens [batch, length, channels] as [batch, stride, length / stride, channels], those that are pooled together in
    the second dimension."""
    value: Value = net.Reshape(x, [0, stride, length // stride, -1])
    return value


def _attention(net: ImageNet, x: Value, name: str, heads: int, stride: int, length: int, windows: int) -> Value:
    """Attention within `windows`, to which tokens belong in turn."""
    width, tokens = net.channels(f"{name}.proj"), length // windows
    size = width // heads
    parts = net.split(linear(net, x, f"{name}.qkv"), [width] * 3)
    q, k, v = (
        net.Reshape(
            net.Transpose(net.Reshape(part, [0, tokens, windows, heads, size]), perm=[0, 2, 3, 1, 4]),
            [-1, heads, tokens, size],
        )
        for part in parts
    )
    if stride > 1:
        q = net.ReduceMax(net.Reshape(q, [0, heads, stride, tokens // stride, size]), [2], keepdims=0)
    y = net.Reshape(attend(net, q, k, v), [-1, windows, tokens // stride, width])
    y = net.Reshape(net.Transpose(y, perm=[0, 2, 1, 3]), [0, length // stride, width])
    return linear(net, y, f"{name}.proj")


def pool(net: ImageNet, x: Value) -> Value:
    """The normalized mean of the tokens."""
    return layer_norm(net, net.ReduceMean(x, [1], keepdims=0), "head.norm", net.config.eps)


ARCHITECTURES = (
    Architecture(
        "hiera",
        "Hiera",
        (),
        ("hiera",),
        KEYS,
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(
            "hiera", r"hiera_\w+", {TIMM: ("blocks.1.attn.qkv.weight", "pos_embed", "head.norm.weight")},
            ("head.fc.weight",), settings,
        ),
        settle=settle,
        prefixes=(),
        ignored=(),
        modules=MODULES,
    ),
    Architecture(
        "hiera_hf", "Hiera", ("hiera",), ("hiera_hf",), HF_KEYS, (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "head.fc")),
        settle=settle_hf,
        prefixes=("hiera.",),
        ignored=(),
        modules=HF_MODULES,
    ),
)  # fmt: skip
