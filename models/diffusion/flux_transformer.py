"""Transformer of FLUX.1 (Black Forest Labs 2024): blocks in which text and latent patches have weights of their own,
then blocks in which they share all weights; from diffusers' files and from the authors'."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import COMPONENT, MODEL, Architecture, Component, Config, Key, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, Only, checked, flag
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.diffusion.axial_rope import Angles, AxisSizes, axial_angles, rotated
from ..layers.diffusion.checkpoint_sizes import PREFIX, ImpliedDenoiser, layer_count, length
from ..layers.diffusion.conditioning import (
    EPSILON,
    feed_forward,
    gated,
    modulated,
    modulation,
    plain_norm,
    sinusoidal,
    two_layers,
)
from ..layers.diffusion.layer_weights import SCALE_FIRST, affine, fused, parameter
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import head_norm
from ..pipelines.diffusion.denoiser import COMPONENT_OUTPUT, SAMPLE, Denoiser, run_component
from ..pipelines.diffusion.picture_gguf import PictureGguf
from ..schema.fused_weight_layout import RowShare
from ..schema.hyperparameters import LAYERS
from ..schema.network_hyperparameters import Stated

CLASS, NAME = "FluxTransformer2DModel", "flux_transformer"
THETA = 10000
STEPS = 1000.0
"""Timesteps and guidance are multiplied by it."""
KEYS = (
    Key("patch", "patch_size", default=1, kind=COUNT),
    Key("channels", "in_channels", default=64, kind=COUNT),
    Key("out_channels", "out_channels", default=lambda config: config.channels, kind=COUNT),
    Key("layers", "num_layers", default=19, kind=LAYERS),
    Key("single_layers", "num_single_layers", default=38, kind=LAYERS),
    Key("head_dim", "attention_head_dim", default=128, kind=COUNT),
    Key("heads", "num_attention_heads", default=24, kind=COUNT),
    Key("text_width", "joint_attention_dim", default=4096, kind=COUNT),
    Key("pooled", "pooled_projection_dim", default=768, kind=COUNT),
    Key("guidance", "guidance_embeds", default=False, kind=flag),
    AxisSizes("axes", "axes_dims_rope", default=[16, 56, 56]),
    Stated("_class_name", CLASS),
)
HIDDEN = "heads*head_dim"
MARKS = (
    "img_in.weight",
    "vector_in.in_layer.weight",
    "double_blocks.0.img_attn.norm.query_norm.scale",
    "single_blocks.0.linear1.weight",
)
"""Weights of the authors' files."""


def _guided(config: Config, i: int) -> bool:
    return bool(config.guidance)


BLOCK, SINGLE, TIME = "transformer_blocks.{i}", "single_transformer_blocks.{i}", "time_text_embed"
DOUBLE, SHARED = "double_blocks.{i}", "single_blocks.{i}"
"""The blocks' names in the authors' files."""


def _embedder(name: str, original: str, width: str | int, **when: Any) -> tuple[Weight, ...]:
    return (
        *affine(f"{TIME}.{name}.linear_1", f"{original}.in_layer", HIDDEN, width, **when),
        *affine(f"{TIME}.{name}.linear_2", f"{original}.out_layer", HIDDEN, HIDDEN, **when),
    )


def _stream(
    original: str, norm: str, projections: tuple[str, ...], norms: str, out: str, ff: str
) -> tuple[Weight, ...]:
    """Rows of a block for text or patches, `original` in the authors' names."""
    attention, theirs = f"{BLOCK}.attn", f"{DOUBLE}.{original}"
    return (
        *affine(f"{BLOCK}.{norm}.linear", f"{theirs}_mod.lin", f"6*{HIDDEN}", HIDDEN),
        *fused(tuple(f"{attention}.{part}" for part in projections), f"{theirs}_attn.qkv", HIDDEN),
        parameter(f"{attention}.{norms}_q.weight", ("head_dim",), f"{theirs}_attn.norm.query_norm.scale"),
        parameter(f"{attention}.{norms}_k.weight", ("head_dim",), f"{theirs}_attn.norm.key_norm.scale"),
        *affine(f"{attention}.{out}", f"{theirs}_attn.proj", HIDDEN, HIDDEN),
        *affine(f"{BLOCK}.{ff}.net.0.proj", f"{theirs}_mlp.0", f"4*{HIDDEN}", HIDDEN),
        *affine(f"{BLOCK}.{ff}.net.2", f"{theirs}_mlp.2", HIDDEN, f"4*{HIDDEN}"),
    )


def _single_block() -> tuple[Weight, ...]:
    in_singles: dict[str, Any] = {"layers": "single_layers"}
    attention = f"{SINGLE}.attn"
    return (
        *affine(f"{SINGLE}.norm.linear", f"{SHARED}.modulation.lin", f"3*{HIDDEN}", HIDDEN, **in_singles),
        *fused(tuple(f"{attention}.to_{part}" for part in "qkv"), f"{SHARED}.linear1", HIDDEN, of=7, **in_singles),
        *affine(
            f"{SINGLE}.proj_mlp", f"{SHARED}.linear1", f"4*{HIDDEN}", HIDDEN, layout=RowShare(3, 7, 7), **in_singles
        ),
        parameter(f"{attention}.norm_q.weight", ("head_dim",), f"{SHARED}.norm.query_norm.scale", **in_singles),
        parameter(f"{attention}.norm_k.weight", ("head_dim",), f"{SHARED}.norm.key_norm.scale", **in_singles),
        *affine(f"{SINGLE}.proj_out", f"{SHARED}.linear2", HIDDEN, f"5*{HIDDEN}", **in_singles),
    )


WEIGHTS = (
    *affine("x_embedder", "img_in", HIDDEN, "channels"),
    *affine("context_embedder", "txt_in", HIDDEN, "text_width"),
    *_embedder("timestep_embedder", "time_in", 256),
    *_embedder("guidance_embedder", "guidance_in", 256, when=_guided),
    *_embedder("text_embedder", "vector_in", "pooled"),
    *_stream("img", "norm1", ("to_q", "to_k", "to_v"), "norm", "to_out.0", "ff"),
    *_stream(
        "txt", "norm1_context", ("add_q_proj", "add_k_proj", "add_v_proj"), "norm_added", "to_add_out", "ff_context"
    ),
    *_single_block(),
    *affine("norm_out.linear", "final_layer.adaLN_modulation.1", f"2*{HIDDEN}", HIDDEN, layout=SCALE_FIRST),
    *affine("proj_out", "final_layer.linear", "patch*patch*out_channels", HIDDEN),
)


def _projected(net: Net, x: Value, names: tuple[str, ...], norms: str) -> list[Value]:
    """Queries, keys and values of `x` [batch, length, hidden], the first two with a norm of each head."""
    q, k, v = (linear(net, x, name) for name in names)
    heads, size = net.config.heads, net.config.head_dim
    return [
        head_norm(net, q, f"{norms}_q", heads, size, EPSILON),
        head_norm(net, k, f"{norms}_k", heads, size, EPSILON),
        v,
    ]


def _attended(net: Net, q: Value, k: Value, v: Value, angles: Angles) -> Value:
    """Attention of all tokens to all others after RoPE, [batch, length, hidden]."""
    heads = net.config.heads
    y: Value = net.Attention(rotated(net, q, angles), rotated(net, k, angles), v, q_num_heads=heads, kv_num_heads=heads)
    return y


def split_text(net: Net, y: Value, text: Value) -> tuple[Value, Value]:
    """Text tokens, as many as `text` has, and the patches after them."""
    tokens = net.Shape(text, start=1, end=2)
    return net.Slice(y, [0], tokens, [1]), net.Slice(y, tokens, [2**31 - 1], [1])


def joint_attention(net: Net, x: Value, context: Value, angles: Angles, name: str) -> tuple[Value, Value]:
    """Attention among text tokens and patches, each with projections of its own; patches, then text."""
    patches = _projected(net, x, tuple(f"{name}.to_{part}" for part in "qkv"), f"{name}.norm")
    text = _projected(net, context, tuple(f"{name}.add_{part}_proj" for part in "qkv"), f"{name}.norm_added")
    q, k, v = (net.Concat(first, second, axis=1) for first, second in zip(text, patches, strict=True))
    text_y, y = split_text(net, _attended(net, q, k, v, angles), context)
    return linear(net, y, f"{name}.to_out.0"), linear(net, text_y, f"{name}.to_add_out")


def double_block(net: Net, x: Value, context: Value, condition: Value, angles: Angles, i: int) -> tuple[Value, Value]:
    """Layer `i` of those with two streams: patches and text tokens."""
    name, width = f"transformer_blocks.{i}", net.config.heads * net.config.head_dim
    streams = []
    for stream, norm in ((x, "norm1"), (context, "norm1_context")):
        shift, scale, *rest = modulation(net, condition, f"{name}.{norm}.linear", 6)
        streams.append((modulated(net, plain_norm(net, stream, width), shift, scale), rest))
    (normed, patches), (normed_context, text) = streams
    attended = joint_attention(net, normed, normed_context, angles, f"{name}.attn")
    results = []
    for stream, y, rest, mlp in zip((x, context), attended, (patches, text), ("ff", "ff_context"), strict=True):
        gate, shift, scale, mlp_gate = rest
        z = gated(net, stream, gate, y)
        normed = modulated(net, plain_norm(net, z, width), shift, scale)
        results.append(gated(net, z, mlp_gate, feed_forward(net, normed, f"{name}.{mlp}")))
    return results[0], results[1]


def single_block(net: Net, x: Value, condition: Value, angles: Angles, i: int) -> Value:
    """Layer `i` of those with one stream: attention next to a feed-forward layer, with one projection of both."""
    name, width = f"single_transformer_blocks.{i}", net.config.heads * net.config.head_dim
    shift, scale, gate = modulation(net, condition, f"{name}.norm.linear", 3)
    y = modulated(net, plain_norm(net, x, width), shift, scale)
    q, k, v = _projected(net, y, tuple(f"{name}.attn.to_{part}" for part in "qkv"), f"{name}.attn.norm")
    inner = net.Gelu(linear(net, y, f"{name}.proj_mlp"), approximate="tanh")
    both = net.Concat(_attended(net, q, k, v, angles), inner, axis=-1)
    return gated(net, x, gate, linear(net, both, f"{name}.proj_out"))


def _condition(net: Net, pooled: Value) -> Value:
    """The sum of the embeddings of timestep, guidance and text, [batch, hidden]."""
    timestep = net.input("timestep", "f32", ("batch",))
    condition = two_layers(net, sinusoidal(net, net.Mul(timestep, STEPS)), f"{TIME}.timestep_embedder")
    if net.config.guidance:
        guidance = net.Mul(net.input("guidance", "f32", ("batch",)), STEPS)
        condition = net.Add(condition, two_layers(net, sinusoidal(net, guidance), f"{TIME}.guidance_embedder"))
    total: Value = net.Add(condition, two_layers(net, pooled, f"{TIME}.text_embedder"))
    return total


def build(
    graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool, output: str = SAMPLE
) -> None:
    """The prediction `output` [batch, patches, patch x patch x out_channels] of packed latents [batch, patches,
    channels] at timesteps [batch] of 0 to 1, from embeddings of the text's tokens [batch, tokens, text_width] and of
    the text [batch, pooled]; models with guidance embeddings take its scale [batch]. ``img_ids`` [patches, axes] and
    ``txt_ids`` [tokens, axes] are positions."""
    net = Net(graph, config, weights)
    latents = net.input("hidden_states", "f32", ("batch", "patches", config.channels))
    text = net.input("encoder_hidden_states", "f32", ("batch", "tokens", config.text_width))
    pooled = net.input("pooled_projections", "f32", ("batch", config.pooled))
    condition = _condition(net, pooled)
    patch_ids = net.input("img_ids", "f32", ("patches", len(config.axes)))
    text_ids = net.input("txt_ids", "f32", ("tokens", len(config.axes)))
    positions = net.Concat(text_ids, patch_ids, axis=0)
    angles = axial_angles(net, positions, net.Shape(latents, start=0, end=1), config.axes, THETA)
    x, context = linear(net, latents, "x_embedder"), linear(net, text, "context_embedder")
    for i in range(config.layers):
        x, context = double_block(net, x, context, condition, angles, i)
    both = net.Concat(context, x, axis=1)
    for i in range(config.single_layers):
        both = single_block(net, both, condition, angles, i)
    _, x = split_text(net, both, context)
    scale, shift = modulation(net, condition, "norm_out.linear", 2)
    normed = modulated(net, plain_norm(net, x, config.heads * config.head_dim), shift, scale)
    net.output(output, linear(net, normed, "proj_out"))


def original_sizes(source: Mapping[str, Any], weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The configuration of the authors' files, by our names: sizes are those of the weights. The authors' config.json
    has to agree; files without it have the rotary axes of `KEYS`."""
    hidden = length(weights, MARKS[0], 0)
    sizes = {
        "in_channels": ("channels", length(weights, MARKS[0], 1)),
        "out_channels": ("out_channels", length(weights, "final_layer.linear.weight", 0)),
        "vec_in_dim": ("pooled", length(weights, MARKS[1], 1)),
        "context_in_dim": ("text_width", length(weights, "txt_in.weight", 1)),
        "num_heads": ("heads", max(1, hidden // length(weights, MARKS[2], 0))),
        "depth": ("layers", layer_count(weights, "double_blocks")),
        "depth_single_blocks": ("single_layers", layer_count(weights, "single_blocks")),
        "guidance_embed": ("guidance", "guidance_in.in_layer.weight" in weights),
    }
    fixed = {"hidden_size": hidden, "theta": THETA, "mlp_ratio": 4, "qkv_bias": True}
    for key, value in {**{key: value for key, (_, value) in sizes.items()}, **fixed}.items():
        if source.get(key) is not None:
            checked(key, source[key], Only(value))
    stated: dict[str, Any] = {**dict(sizes.values()), "head_dim": length(weights, MARKS[2], 0)}
    return stated if source.get("axes_dim") is None else {**stated, "axes": source["axes_dim"]}


ARCHITECTURES = (
    Architecture(
        NAME,
        "FLUX.1 transformer",
        (CLASS,),
        (),
        KEYS,
        WEIGHTS,
        (Task("denoising", {MODEL: build}, Denoiser),),
        implied=ImpliedDenoiser(NAME, CLASS, MARKS, original_sizes),
        prefixes=(PREFIX,),
        ignored=(),
        component=Component({COMPONENT: functools.partial(build, output=COMPONENT_OUTPUT)}, run_component),
        wide_activations=True,
    ),
)
PICTURE_GGUF = (PictureGguf("flux", NAME),)
