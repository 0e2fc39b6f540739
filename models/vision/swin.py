"""Swin transformer (Liu et al. 2021, arXiv:2103.14030)."""

from __future__ import annotations

import math

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, TIMM, Architecture, Config, Key
from ...runtime.contract.hyperparameter import COUNT, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.image_net import ImageNet
from ..layers.image.patches import patch_embedding
from ..layers.image.transformer import attend, heads_first, mlp
from ..layers.image.windows import (
    cut,
    joined,
    padded,
    partitioned,
    relative_bias,
    relative_index,
    rolled,
    shift_mask,
    side,
)
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_tasks
from ..schema.network_hyperparameters import (
    LABELS,
    STAGES,
    ClassTask,
    Implied,
    depths_of,
    image_act,
    norm_eps,
    settle_labels,
)
from ..schema.vit import ImageSize
from ..schema.weight_layout import JOINED

OURS, THEIRS, TABLE = "layers.{s}.blocks.{b}.", "encoder.layers.{s}.blocks.{b}.", "relative_position_bias_table"
MODULES = (
    Module("patch_embed.proj", hf="embeddings.patch_embeddings.projection"),
    Module("patch_embed.norm", hf="embeddings.norm"),
    Module("layers.{s+1}.downsample", hf="encoder.layers.{s}.downsample"),
    Module(f"{OURS}norm1", hf=f"{THEIRS}layernorm_before"),
    Module(f"{OURS}norm2", hf=f"{THEIRS}layernorm_after"),
    Module(f"{OURS}attn.{TABLE}", hf=f"{THEIRS}attention.self.{TABLE}"),
    Module(
        f"{OURS}attn.qkv",
        hf=tuple(f"{THEIRS}attention.self.{part}" for part in ("query", "key", "value")),
        layout=JOINED,
    ),
    Module(f"{OURS}attn.proj", hf=f"{THEIRS}attention.output.dense"),
    Module(f"{OURS}mlp.fc1", hf=f"{THEIRS}intermediate.dense"),
    Module(f"{OURS}mlp.fc2", hf=f"{THEIRS}output.dense"),
    Module("norm", hf="layernorm"),
    Module("head.fc", hf="classifier"),
)
KEYS = (
    ClassTask("Swin"),
    *LABELS,
    Key("width", "embed_dim", "embedding_length", None, COUNT),
    Key("depths", "depths", "depths", None, STAGES),
    Key("heads", "num_heads", "attention.head_counts", None, STAGES),
    Key("window", "window_size", "window_size", None, COUNT),
    Key("patch", "patch_size", "patch_size", None, COUNT),
    ImageSize(),
    Key("pads_first", (), "pads_first", lambda config: config.names == HF, flag),
    norm_eps(1e-5, "layer_norm_eps"),
    image_act("gelu"),
)
"""`pads_first`: whether images are padded before they are shifted (transformers) or after that (timm)."""


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights."""
    settle_labels(config, weights, "head.fc.weight")
    depths = depths_of(weights, f"{OURS}attn.qkv.weight")
    tables = [weights.get(f"layers.{s}.blocks.0.attn.{TABLE}") for s in range(len(depths))]
    patches = weights["patch_embed.proj.weight"].shape
    heads = [table.shape[-1] if table is not None else 1 for table in tables]
    window = window_of(tables[0].shape[0]) if tables and tables[0] is not None else None
    config.values |= {"depths": depths, "heads": heads, "width": patches[0], "patch": patches[-1], "window": window}


def window_of(rows: int) -> int:
    """The side of the windows whose relative positions fill a table. FormatError if there is none."""
    window = (math.isqrt(rows) + 1) // 2
    if (2 * window - 1) ** 2 != rows:
        raise FormatError("E-ARCH-SHAPE", None, f"{rows} relative positions are not those of square windows")
    return window


def features(net: ImageNet) -> Value:
    """Normalized tokens [batch, rows x columns, channels]; each stage but the first halves rows and columns."""
    config = net.config
    x = net.channels_last(patch_embedding(net, net.pixels("patch_embed.proj.weight"), "patch_embed.proj"))
    x = layer_norm(net, x, "patch_embed.norm", config.eps)
    width = config.width
    for s, depth in enumerate(config.depths):
        if s:
            x, width = (
                _merged(net, x, f"layers.{s}.downsample", width),
                net.channels(f"layers.{s}.downsample.reduction"),
            )
        for b in range(depth):
            x = _block(net, x, f"layers.{s}.blocks.{b}", width, shifted=b % 2 == 1)
    return net.Reshape(layer_norm(net, x, "norm", config.eps), [0, -1, width])


def _merged(net: ImageNet, x: Value, name: str, width: int) -> Value:
    """Four neighbors as one token."""
    x = padded(net, x, 2)
    halves = [net.Div(side(net, x, axis), [2]) for axis in (1, 2)]
    shape = net.Concat([-1], halves[0], [2], halves[1], [2, width], axis=0)
    x = net.Transpose(net.Reshape(x, shape), perm=[0, 1, 3, 4, 2, 5])
    x = net.Reshape(x, net.Concat([-1], *halves, [4 * width], axis=0))
    return linear(net, layer_norm(net, x, f"{name}.norm", net.config.eps), f"{name}.reduction")


def _block(net: ImageNet, x: Value, name: str, width: int, *, shifted: bool) -> Value:
    """Attention in windows, which every other block shifts by half a window, then a feed-forward network."""
    eps = net.config.eps
    window = window_of(net.tensor(f"{name}.attn.{TABLE}").shape[0])
    y = layer_norm(net, x, f"{name}.norm1", eps)
    if not shifted or window == 1:
        whole = padded(net, y, window)
        y = cut(net, _windows(net, whole, f"{name}.attn", window, width, None), y)
    else:
        shifts = [net.Mul(net.Cast(net.Greater(side(net, y, axis), [window]), to=7), [window // 2]) for axis in (1, 2)]
        first = padded(net, y, window) if net.config.pads_first else y
        moved = rolled(net, first, shifts)
        whole = moved if net.config.pads_first else padded(net, moved, window)
        mask = shift_mask(net, whole, window, shifts)
        done = _windows(net, whole, f"{name}.attn", window, width, mask)
        done = done if net.config.pads_first else cut(net, done, y)
        y = cut(net, rolled(net, done, shifts, back=True), y)
    x = net.Add(x, y)
    return net.Add(x, mlp(net, layer_norm(net, x, f"{name}.norm2", eps), f"{name}.mlp"))


def _windows(net: ImageNet, x: Value, name: str, window: int, width: int, mask: Value | None) -> Value:
    """Attention of each window of an image that windows fill."""
    heads = net.tensor(f"{name}.{TABLE}").shape[-1]
    tokens = linear(net, partitioned(net, x, window, width), f"{name}.qkv")
    q, k, v = (heads_first(net, part, heads, width // heads) for part in net.split(tokens, [width] * 3))
    bias = relative_bias(net, f"{name}.{TABLE}", relative_index(window, window))
    if mask is not None:
        images = net.Concat(side(net, x, 0), [1, 1, 1], axis=0)
        bias = net.Add(bias, net.Tile(mask, images))
    return joined(net, linear(net, attend(net, q, k, v, bias), f"{name}.proj"), x, window, width)


def pool(net: ImageNet, x: Value) -> Value:
    """The mean of the tokens."""
    y: Value = net.ReduceMean(x, [1], keepdims=0)
    return y


ARCHITECTURES = (
    Architecture(
        "swin",
        "Swin",
        ("swin",),
        ("swin",),
        KEYS,
        (),
        image_tasks(features, pool, lambda net, x: linear(net, x, "head.fc")),
        implied=Implied(
            "swin",
            r"swin_(?!s3)\w+",
            {TIMM: ("patch_embed.proj.weight", f"layers.0.blocks.0.attn.{TABLE}")},
            ("head.fc.weight",),
        ),
        settle=settle,
        prefixes=("swin.",),
        ignored=("relative_position_index$", "attn_mask$"),
        modules=MODULES,
    ),
)
