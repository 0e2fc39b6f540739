"""Transformer of Stable Diffusion 3 (MMDiT; Esser et al. 2024, arXiv:2403.03206) and 3.5: joint attention of text and
latent patches, with adaptive layer norms."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import COMPONENT, MODEL, Architecture, Component, Config, Key, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
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
from ..layers.diffusion.layer_weights import SCALE_FIRST, When, affine, fused, parameter
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import rms_norm
from ..pipelines.diffusion.denoiser import COMPONENT_OUTPUT, SAMPLE, Denoiser, run_component
from ..pipelines.diffusion.picture_gguf import PictureGguf
from ..schema.hyperparameters import LAYERS
from ..schema.network_hyperparameters import Stated

CLASS, NAME = "SD3Transformer2DModel", "sd3_transformer"
KEYS = (
    Key("patch", "patch_size", default=2, kind=COUNT),
    Key("channels", "in_channels", default=16, kind=COUNT),
    Key("out_channels", "out_channels", default=16, kind=COUNT),
    Key("layers", "num_layers", default=18, kind=LAYERS),
    Key("head_dim", "attention_head_dim", default=64, kind=COUNT),
    Key("heads", "num_attention_heads", default=18, kind=COUNT),
    Key("text_width", "joint_attention_dim", default=4096, kind=COUNT),
    Key("context", "caption_projection_dim", default=1152, kind=COUNT),
    Key("pooled", "pooled_projection_dim", default=2048, kind=COUNT),
    Key("positions", "pos_embed_max_size", default=96, kind=COUNT),
    Key("dual", "dual_attention_layers", default=[], kind=Listed(Integer(0))),
    Key("qk_norm", "qk_norm", default="none", kind=Choice(("none", "rms_norm"))),
    Key("sample_size", "sample_size", default=128, kind=Integer(1, 1024)),
    Stated("_class_name", CLASS),
)
HIDDEN = "heads*head_dim"


def _dual(config: Config, i: int) -> bool:
    return i in config.dual


def _single(config: Config, i: int) -> bool:
    return i not in config.dual


def _not_last(config: Config, i: int) -> bool:
    return i < int(config.layers) - 1


def _last(config: Config, i: int) -> bool:
    return not _not_last(config, i)


def _normed(config: Config, i: int) -> bool:
    return bool(config.qk_norm != "none")


def _normed_dual(config: Config, i: int) -> bool:
    return _normed(config, i) and _dual(config, i)


BLOCK, TIME = "transformer_blocks.{i}", "time_text_embed"
PATCHES, TEXT = "joint_blocks.{i}.x_block", "joint_blocks.{i}.context_block"
"""The two halves of a block in the authors' names."""
MARKS = (
    "pos_embed",
    "x_embedder.proj.weight",
    "y_embedder.mlp.0.weight",
    "joint_blocks.0.context_block.attn.qkv.weight",
)
"""Weights of the authors' files."""
HEAD_DIM = 64
"""Elements of a head of the published models, which files without norms of heads do not show."""


def _feed_forward(name: str, original: str, when: When | None = None) -> tuple[Weight, ...]:
    inner = f"4*{HIDDEN}"
    return (
        *affine(f"{name}.net.0.proj", f"{original}.fc1", inner, HIDDEN, when=when),
        *affine(f"{name}.net.2", f"{original}.fc2", HIDDEN, inner, when=when),
    )


def _norms(names: tuple[str, str], original: str, when: When) -> tuple[Weight, ...]:
    """Rows of the norms of queries and keys."""
    return tuple(
        parameter(f"{BLOCK}.{name}.weight", ("head_dim",), f"{original}.ln_{part}.weight", when=when)
        for name, part in zip(names, "qk", strict=True)
    )


WEIGHTS = (
    parameter("pos_embed.pos_embed", (1, "positions*positions", HIDDEN), "pos_embed"),
    parameter("pos_embed.proj.weight", (HIDDEN, "channels", "patch", "patch"), "x_embedder.proj.weight"),
    parameter("pos_embed.proj.bias", (HIDDEN,), "x_embedder.proj.bias"),
    *affine(f"{TIME}.timestep_embedder.linear_1", "t_embedder.mlp.0", HIDDEN, 256),
    *affine(f"{TIME}.timestep_embedder.linear_2", "t_embedder.mlp.2", HIDDEN, HIDDEN),
    *affine(f"{TIME}.text_embedder.linear_1", "y_embedder.mlp.0", HIDDEN, "pooled"),
    *affine(f"{TIME}.text_embedder.linear_2", "y_embedder.mlp.2", HIDDEN, HIDDEN),
    *affine("context_embedder", "context_embedder", "context", "text_width"),
    *affine(f"{BLOCK}.norm1.linear", f"{PATCHES}.adaLN_modulation.1", f"9*{HIDDEN}", HIDDEN, when=_dual),
    *affine(f"{BLOCK}.norm1.linear", f"{PATCHES}.adaLN_modulation.1", f"6*{HIDDEN}", HIDDEN, when=_single),
    *affine(f"{BLOCK}.norm1_context.linear", f"{TEXT}.adaLN_modulation.1", f"6*{HIDDEN}", HIDDEN, when=_not_last),
    *affine(
        f"{BLOCK}.norm1_context.linear",
        f"{TEXT}.adaLN_modulation.1",
        f"2*{HIDDEN}",
        HIDDEN,
        layout=SCALE_FIRST,
        when=_last,
    ),
    *fused(tuple(f"{BLOCK}.attn.to_{part}" for part in "qkv"), f"{PATCHES}.attn.qkv", HIDDEN),
    *fused(tuple(f"{BLOCK}.attn.add_{part}_proj" for part in "qkv"), f"{TEXT}.attn.qkv", HIDDEN),
    *affine(f"{BLOCK}.attn.to_out.0", f"{PATCHES}.attn.proj", HIDDEN, HIDDEN),
    *affine(f"{BLOCK}.attn.to_add_out", f"{TEXT}.attn.proj", HIDDEN, HIDDEN, when=_not_last),
    *fused(tuple(f"{BLOCK}.attn2.to_{part}" for part in "qkv"), f"{PATCHES}.attn2.qkv", HIDDEN, when=_dual),
    *affine(f"{BLOCK}.attn2.to_out.0", f"{PATCHES}.attn2.proj", HIDDEN, HIDDEN, when=_dual),
    *_norms(("attn.norm_q", "attn.norm_k"), f"{PATCHES}.attn", _normed),
    *_norms(("attn.norm_added_q", "attn.norm_added_k"), f"{TEXT}.attn", _normed),
    *_norms(("attn2.norm_q", "attn2.norm_k"), f"{PATCHES}.attn2", _normed_dual),
    *_feed_forward(f"{BLOCK}.ff", f"{PATCHES}.mlp"),
    *_feed_forward(f"{BLOCK}.ff_context", f"{TEXT}.mlp", _not_last),
    *affine("norm_out.linear", "final_layer.adaLN_modulation.1", f"2*{HIDDEN}", HIDDEN, layout=SCALE_FIRST),
    *affine("proj_out", "final_layer.linear", "patch*patch*out_channels", HIDDEN),
)


def _heads(net: Net, x: Value, name: str, normed: str) -> Value:
    """The projection ``NAME`` of `x` [batch, length, hidden] by heads, normalized if there is ``NORMED.weight``."""
    y = net.split_heads(linear(net, x, name), net.config.heads, net.config.head_dim)
    y = rms_norm(net, y, normed, EPSILON) if net.has(f"{normed}.weight") else y
    by_heads: Value = net.Transpose(y, perm=[0, 2, 1, 3])
    return by_heads


def joint_attention(net: Net, x: Value, context: Value | None, name: str) -> tuple[Value, Value | None]:
    """Attention among patches and text tokens, both [batch, length, hidden], each with projections of its own.

    The second result, before its projection if the model lacks ``to_add_out``, is None without a context.
    """
    qkv = [_heads(net, x, f"{name}.to_{part}", f"{name}.norm_{part}") for part in "qkv"]
    if context is not None:
        added = [_heads(net, context, f"{name}.add_{part}_proj", f"{name}.norm_added_{part}") for part in "qkv"]
        qkv = [net.Concat(one, other, axis=2) for one, other in zip(qkv, added, strict=True)]
    y = net.merge_heads(net.Transpose(net.Attention(*qkv), perm=[0, 2, 1, 3]))
    if context is None:
        return linear(net, y, f"{name}.to_out.0"), None
    length = net.Shape(x, start=1, end=2)
    patches, text = net.Slice(y, [0], length, [1]), net.Slice(y, length, [2**31 - 1], [1])
    return linear(net, patches, f"{name}.to_out.0"), text


def block(net: Net, x: Value, context: Value, condition: Value, i: int) -> tuple[Value, Value]:
    """Layer `i`: patches and text tokens, of which the last layer leaves the text as it is."""
    config, name = net.config, f"transformer_blocks.{i}"
    width, dual, last = config.heads * config.head_dim, _dual(config, i), _last(config, i)
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate, *second = modulation(
        net, condition, f"{name}.norm1.linear", 9 if dual else 6
    )
    normed, normed_context = plain_norm(net, x, width), plain_norm(net, context, width)
    if last:
        text_scale, text_shift = modulation(net, condition, f"{name}.norm1_context.linear", 2)
        text = []
    else:
        text_shift, text_scale, *text = modulation(net, condition, f"{name}.norm1_context.linear", 6)
    y, text_y = joint_attention(
        net,
        modulated(net, normed, shift, scale),
        modulated(net, normed_context, text_shift, text_scale),
        f"{name}.attn",
    )
    x = gated(net, x, gate, y)
    if dual:
        shift, scale, gate = second
        y, _ = joint_attention(net, modulated(net, normed, shift, scale), None, f"{name}.attn2")
        x = gated(net, x, gate, y)
    x = gated(
        net,
        x,
        mlp_gate,
        feed_forward(net, modulated(net, plain_norm(net, x, width), mlp_shift, mlp_scale), f"{name}.ff"),
    )
    if last or text_y is None:
        return x, context
    gate, mlp_shift, mlp_scale, mlp_gate = text
    context = gated(net, context, gate, linear(net, text_y, f"{name}.attn.to_add_out"))
    normed = modulated(net, plain_norm(net, context, width), mlp_shift, mlp_scale)
    return x, gated(net, context, mlp_gate, feed_forward(net, normed, f"{name}.ff_context"))


def cropped_positions(net: Net, rows: Value, columns: Value) -> Value:
    """The middle of the table of positions, [1, rows x columns, hidden]; `rows` and `columns` are int64 [1]."""
    side = net.config.positions
    table = net.Reshape(net.vector("pos_embed.pos_embed"), [side, side, -1])
    count = net.Concat(rows, columns, axis=0)
    first = net.Div(net.Sub([side, side], count), [2])
    cropped: Value = net.Reshape(net.Slice(table, first, net.Add(first, count), [0, 1]), [1, -1, table_width(net)])
    return cropped


def table_width(net: Net) -> int:
    """Width of a token."""
    return int(net.config.heads * net.config.head_dim)


def build(
    graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool, output: str = SAMPLE
) -> None:
    """The prediction `output` [batch, out_channels, height, width] of latents with that shape at timesteps [batch] of
    0 to 1,000, from embeddings of the text's tokens [batch, tokens, text_width] and of the text [batch, pooled]."""
    net = Net(graph, config, weights)
    latents = net.input("hidden_states", "f32", ("batch", config.channels, "height", "width"))
    text = net.input("encoder_hidden_states", "f32", ("batch", "tokens", config.text_width))
    pooled = net.input("pooled_projections", "f32", ("batch", config.pooled))
    timestep = net.input("timestep", "f32", ("batch",))
    patch, width = config.patch, table_width(net)
    planes = net.Conv(
        latents, net.vector("pos_embed.proj.weight"), net.vector("pos_embed.proj.bias"), strides=[patch, patch]
    )
    rows, columns = net.Shape(planes, start=2, end=3), net.Shape(planes, start=3, end=4)
    x = net.Transpose(net.Reshape(planes, [0, width, -1]), perm=[0, 2, 1])
    x = net.Add(x, cropped_positions(net, rows, columns))
    condition = net.Add(
        two_layers(net, sinusoidal(net, timestep), f"{TIME}.timestep_embedder"),
        two_layers(net, pooled, f"{TIME}.text_embedder"),
    )
    context = linear(net, text, "context_embedder")
    for i in range(config.layers):
        x, context = block(net, x, context, condition, i)
    scale, shift = modulation(net, condition, "norm_out.linear", 2)
    x = linear(net, modulated(net, plain_norm(net, x, width), shift, scale), "proj_out")
    sizes = net.Concat([0], rows, columns, [patch, patch, config.out_channels], axis=0)
    pixels = net.Transpose(net.Reshape(x, sizes), perm=[0, 5, 1, 3, 2, 4])
    height, breadth = net.Mul(rows, [patch]), net.Mul(columns, [patch])
    net.output(output, net.Reshape(pixels, net.Concat([0], [config.out_channels], height, breadth, axis=0)))


def original_sizes(source: Mapping[str, Any], weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The configuration of the authors' files by our names, as names and shapes of the weights say."""
    hidden, normed = length(weights, MARKS[1], 0), f"{PATCHES.format(i=0)}.attn.ln_q.weight"
    head_dim = length(weights, normed, 0) if normed in weights else HEAD_DIM
    patch, layers = length(weights, MARKS[1], 2), layer_count(weights, "joint_blocks")
    doubled = (f"{PATCHES.format(i=i)}.attn2.qkv.weight" in weights for i in range(layers))
    return {
        "patch": patch,
        "channels": length(weights, MARKS[1], 1),
        "out_channels": max(1, length(weights, "final_layer.linear.weight", 0) // patch**2),
        "layers": layers,
        "head_dim": head_dim,
        "heads": max(1, hidden // head_dim),
        "text_width": length(weights, "context_embedder.weight", 1),
        "context": length(weights, "context_embedder.weight", 0),
        "pooled": length(weights, MARKS[2], 1),
        "positions": max(1, math.isqrt(length(weights, MARKS[0], 1))),
        "dual": [i for i, each in enumerate(doubled) if each],
        "qk_norm": "rms_norm" if normed in weights else "none",
    }


ARCHITECTURES = (
    Architecture(
        NAME,
        "Stable Diffusion 3 transformer",
        (CLASS,),
        (),
        KEYS,
        WEIGHTS,
        (Task("denoising", {MODEL: build}, Denoiser),),
        implied=ImpliedDenoiser(NAME, CLASS, MARKS, original_sizes),
        prefixes=(PREFIX,),
        ignored=(),
        component=Component({COMPONENT: functools.partial(build, output=COMPONENT_OUTPUT)}, run_component),
    ),
)
PICTURE_GGUF = (PictureGguf("sd3", NAME),)
