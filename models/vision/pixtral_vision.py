"""Pixtral's image encoder (Agrawal et al. 2024, arXiv:2410.07073): a vision transformer for pictures of any size, with
RMS norms, gated layers and rotary positions along both axes."""

from __future__ import annotations

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task
from ...runtime.contract.hyperparameter import COUNT, Real
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.grid import coordinates, indices, side_by_side
from ..layers.image.image_net import ImageNet
from ..layers.image.patches import patch_embedding
from ..layers.image.resize import size_of
from ..layers.image.transformer import attend, heads_first
from ..layers.linear import linear
from ..layers.norm import rms_norm
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import IMAGE_FEATURES, Stated, count_of, image_act

EPS = 1e-5
LAYER = {
    "norm1": "attention_norm",
    **{f"attn.{part}": f"attention.{part}_proj" for part in "qkvo"},
    "norm2": "ffn_norm",
    **{f"mlp.{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
}
MODULES = (
    Module("patch_embed.proj", hf="patch_conv"),
    Module("norm_pre", hf="ln_pre"),
    *(Module(f"blocks.{{i}}.{own}", hf=f"transformer.layers.{{i}}.{hf}") for own, hf in LAYER.items()),
)
KEYS = (
    Stated("architectures", ["PixtralVisionModel"]),
    Key("hidden", "hidden_size", "embedding_length", 1024, COUNT),
    Key("layers", "num_hidden_layers", "block_count", 24, COUNT, at_most=("hidden",)),
    Key("heads", "num_attention_heads", "attention.head_count", 16, COUNT, at_most=("hidden",)),
    Key("intermediate", "intermediate_size", "feed_forward_length", 4096, COUNT),
    Key("patch", "patch_size", "patch_size", 16, COUNT),
    Key("image_size", "image_size", "image_size", 1024, COUNT),
    Key("theta", ("rope_theta", "rope_parameters.rope_theta"), "rope.freq_base", 10000.0, Real(0, above=True)),
    image_act("gelu"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for heads that two axes cannot rotate."""
    width, _, _, patch = weights["patch_embed.proj.weight"].shape
    layers = count_of(weights, "blocks.{i}.norm1.weight")
    config.values |= {"hidden": width, "patch": patch, "layers": layers}
    config.values["intermediate"] = weights["blocks.0.mlp.up.weight"].shape[0]
    if width % config.heads or width // config.heads % 4:
        why = f"rotary positions of two axes do not fit {config.heads} heads of a width of {width}"
        raise FormatError("E-ARCH-ROPE", config.path, why)


def features(net: ImageNet) -> None:
    """Output ``last_hidden_state`` [batch, patches, width]."""
    config = net.config
    patches = patch_embedding(net, net.pixels("patch_embed.proj.weight"), "patch_embed.proj")
    x = rms_norm(net, net.flatten(patches), "norm_pre", EPS)
    rotation = _rotation(net, patches, x)
    for i in range(config.layers):
        name, size = f"blocks.{i}", config.hidden // config.heads
        y = rms_norm(net, x, f"{name}.norm1", EPS)
        q, k, v = (heads_first(net, linear(net, y, f"{name}.attn.{part}"), config.heads, size) for part in "qkv")
        q, k = (net.RotaryEmbedding(item, *rotation) for item in (q, k))
        x = net.Add(x, linear(net, attend(net, q, k, v), f"{name}.attn.o"))
        y = rms_norm(net, x, f"{name}.norm2", EPS)
        gate = net.activate(linear(net, y, f"{name}.mlp.gate"), config.act)
        x = net.Add(x, linear(net, net.Mul(gate, linear(net, y, f"{name}.mlp.up")), f"{name}.mlp.down"))
    net.output("last_hidden_state", x)


def _rotation(net: ImageNet, patches: Value, tokens: Value) -> list[Value]:
    """Cosines and sines [patches, head size / 2], and the index of each patch [batch, patches]. Every other frequency
    turns with the row, the rest with the column."""
    half = net.config.hidden // net.config.heads // 2
    frequencies = net.config.theta ** (-np.arange(half) / half)
    size, axes = size_of(net, patches), []
    for axis in (0, 1):
        places, _ = coordinates(net, size, axis, 0.0)
        angles = net.Mul(net.Unsqueeze(places, [1]), net.constant(frequencies[axis::2].astype(np.float32)))
        axes.append(net.Unsqueeze(angles, [1 - axis]))
    angles = side_by_side(net, size, axes[0], axes[1], half // 2)
    shape = net.Shape(tokens, start=0, end=2)
    order = indices(net, net.Slice(shape, [1], [2], [0]))
    return [net.Cos(angles), net.Sin(angles), net.Expand(net.Unsqueeze(order, [0]), shape)]


ARCHITECTURES = (
    Architecture(
        "pixtral_vision",
        "Pixtral image encoder",
        ("pixtral",),
        ("pixtral_vision",),
        KEYS,
        (),
        (Task(IMAGE_FEATURES, {MODEL: image_graph(features)}, run_image_model, aliases=("feature-extraction",)),),
        settle=settle,
        prefixes=(),
        modules=MODULES,
    ),
)
