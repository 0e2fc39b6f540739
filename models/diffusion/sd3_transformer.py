"""Transformer of Stable Diffusion 3 (MMDiT; Esser et al. 2024, arXiv:2403.03206) and 3.5: joint attention of text and
latent patches, with adaptive layer norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime.contract.architecture import HF, MODEL, Architecture, Config, Key, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, Choice, Integer, Listed
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
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
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import rms_norm
from ..pipelines.diffusion.denoiser import Denoiser

CLASS = "SD3Transformer2DModel"
KEYS = (
    Key("patch", "patch_size", default=2, kind=COUNT),
    Key("channels", "in_channels", default=16, kind=COUNT),
    Key("out_channels", "out_channels", default=16, kind=COUNT),
    Key("layers", "num_layers", default=18, kind=COUNT),
    Key("head_dim", "attention_head_dim", default=64, kind=COUNT),
    Key("heads", "num_attention_heads", default=18, kind=COUNT),
    Key("text_width", "joint_attention_dim", default=4096, kind=COUNT),
    Key("context", "caption_projection_dim", default=1152, kind=COUNT),
    Key("pooled", "pooled_projection_dim", default=2048, kind=COUNT),
    Key("positions", "pos_embed_max_size", default=96, kind=COUNT),
    Key("dual", "dual_attention_layers", default=[], kind=Listed(Integer(0))),
    Key("qk_norm", "qk_norm", default="none", kind=Choice(("none", "rms_norm"))),
    Key("sample_size", "sample_size", default=128, kind=Integer(1, 1024)),
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


def _affine(name: str, out: str, width: str | int, when: Any = None) -> tuple[Weight, Weight]:
    """Rows of a linear layer with a bias."""
    return (
        Weight(f"{name}.weight", f"{name}.weight", shape=(out, width), when=when),
        Weight(f"{name}.bias", f"{name}.bias", shape=(out,), when=when),
    )


def _feed_forward(name: str, when: Any = None) -> tuple[Weight, ...]:
    inner = f"4*{HIDDEN}"
    return (*_affine(f"{name}.net.0.proj", inner, HIDDEN, when), *_affine(f"{name}.net.2", HIDDEN, inner, when))


BLOCK = "transformer_blocks.{i}"
TIME = "time_text_embed"
WEIGHTS = (
    Weight("pos_embed.pos_embed", "pos_embed.pos_embed", shape=(1, "positions*positions", HIDDEN)),
    Weight("pos_embed.proj.weight", "pos_embed.proj.weight", shape=(HIDDEN, "channels", "patch", "patch")),
    Weight("pos_embed.proj.bias", "pos_embed.proj.bias", shape=(HIDDEN,)),
    *_affine(f"{TIME}.timestep_embedder.linear_1", HIDDEN, 256),
    *_affine(f"{TIME}.timestep_embedder.linear_2", HIDDEN, HIDDEN),
    *_affine(f"{TIME}.text_embedder.linear_1", HIDDEN, "pooled"),
    *_affine(f"{TIME}.text_embedder.linear_2", HIDDEN, HIDDEN),
    *_affine("context_embedder", "context", "text_width"),
    *_affine(f"{BLOCK}.norm1.linear", f"9*{HIDDEN}", HIDDEN, _dual),
    *_affine(f"{BLOCK}.norm1.linear", f"6*{HIDDEN}", HIDDEN, _single),
    *_affine(f"{BLOCK}.norm1_context.linear", f"6*{HIDDEN}", HIDDEN, _not_last),
    *_affine(f"{BLOCK}.norm1_context.linear", f"2*{HIDDEN}", HIDDEN, _last),
    *(
        row
        for part in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0")
        for row in _affine(f"{BLOCK}.attn.{part}", HIDDEN, HIDDEN)
    ),
    *_affine(f"{BLOCK}.attn.to_add_out", HIDDEN, HIDDEN, _not_last),
    *(
        row
        for part in ("to_q", "to_k", "to_v", "to_out.0")
        for row in _affine(f"{BLOCK}.attn2.{part}", HIDDEN, HIDDEN, _dual)
    ),
    *(
        Weight(f"{BLOCK}.attn.{part}.weight", f"{BLOCK}.attn.{part}.weight", shape=("head_dim",), when=_normed)
        for part in ("norm_q", "norm_k", "norm_added_q", "norm_added_k")
    ),
    *(
        Weight(f"{BLOCK}.attn2.{part}.weight", f"{BLOCK}.attn2.{part}.weight", shape=("head_dim",), when=_normed_dual)
        for part in ("norm_q", "norm_k")
    ),
    *_feed_forward(f"{BLOCK}.ff"),
    *_feed_forward(f"{BLOCK}.ff_context", _not_last),
    *_affine("norm_out.linear", f"2*{HIDDEN}", HIDDEN),
    *_affine("proj_out", "patch*patch*out_channels", HIDDEN),
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


def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The prediction ``sample`` [batch, out_channels, height, width] of latents with that shape at timesteps [batch] of
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
    net.output("sample", net.Reshape(pixels, net.Concat([0], [config.out_channels], height, breadth, axis=0)))


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The config.json of diffusers, which names a class in place of a model type."""
    return (HF, {**source, "model_type": CLASS}) if source.get("_class_name") == CLASS else None


ARCHITECTURES = (
    Architecture(
        "sd3_transformer",
        "Stable Diffusion 3 transformer",
        (CLASS,),
        (),
        KEYS,
        WEIGHTS,
        (Task("denoising", {MODEL: build}, Denoiser),),
        implied=implied,
        prefixes=(),
        ignored=(),
    ),
)
