"""Transformer of Z-Image (Alibaba 2025, arXiv:2511.22699): patches and the caption are refined apart from each other,
then share all layers; from diffusers' files and from single ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Task, Weight
from ...runtime.contract.hyperparameter import COUNT, POSITIVE, Listed, Only, flag
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.diffusion.axial_rope import MAX_AXES, Angles, AxisSizes, axial_angles, rotated
from ..layers.diffusion.checkpoint_sizes import PREFIX, ImpliedDenoiser, layer_count, length
from ..layers.diffusion.conditioning import plain_norm, silu, sinusoidal
from ..layers.diffusion.layer_weights import affine, fused, parameter
from ..layers.diffusion.patch_grid import PatchGrid, caption_positions, padded
from ..layers.linear import linear
from ..layers.net import Net
from ..layers.norm import head_norm, norm
from ..pipelines.diffusion.denoiser import PatchDenoiser
from ..pipelines.diffusion.picture_gguf import PictureGguf
from ..schema.hyperparameters import FREQUENCY_BASE, LAYERS, OWN_HEAD_DIM
from ..schema.network_hyperparameters import Stated

CLASS, NAME = "ZImageTransformer2DModel", "z_image_transformer"
PATCH = 2
"""Rows and columns of a patch, which has one frame."""
MULTIPLE = 32
"""Patches and captions are padded to a multiple of this number of tokens."""
HEAD_EPSILON = 1e-5


KEYS = (
    Key("patch", "all_patch_size", default=[PATCH], kind=Only([PATCH])),
    Key("frames", "all_f_patch_size", default=[1], kind=Only([1])),
    Key("channels", "in_channels", default=16, kind=COUNT),
    Key("hidden", "dim", default=3840, kind=COUNT),
    Key("layers", "n_layers", default=30, kind=LAYERS),
    Key("refiners", "n_refiner_layers", default=2, kind=LAYERS),
    Key("heads", "n_heads", default=30, kind=COUNT),
    Key("kv_heads", "n_kv_heads", default=30, kind=COUNT),  # diffusers gives every head keys and values of its own
    Key("eps", "norm_eps", default=1e-5, kind=POSITIVE),
    Key("qk_norm", "qk_norm", default=True, kind=flag),
    Key("text_width", "cap_feat_dim", default=2560, kind=COUNT),
    Key("image_width", "siglip_feat_dim", default=None, kind=Only(None)),
    Key("theta", "rope_theta", default=256.0, kind=FREQUENCY_BASE),
    Key("steps", "t_scale", default=1000.0, kind=POSITIVE),
    OWN_HEAD_DIM,
    AxisSizes("axes", "axes_dims", default=[32, 48, 48]),
    Key("axis_lengths", "axes_lens", default=[1024, 512, 512], kind=Listed(COUNT, 1, MAX_AXES)),
    Key("inner", default=lambda config: int(config.hidden / 3 * 8), kind=COUNT),
    Key("condition", default=lambda config: min(config.hidden, 256), kind=COUNT),
    Stated("_class_name", CLASS),
)
MARKS = ("x_pad_token", "cap_embedder.1.weight", "x_embedder.weight", "layers.0.attention.qkv.weight")
"""Weights of single files."""
EMBEDDER, FINAL = f"all_x_embedder.{PATCH}-1", f"all_final_layer.{PATCH}-1"


def _normed(config: Config, i: int) -> bool:
    return bool(config.qk_norm)


def _block(stack: str, layers: str, *, conditioned: bool = True) -> tuple[Weight, ...]:
    """Rows of the layers of a stack."""
    name = f"{stack}.{{i}}"
    attention = f"{name}.attention"
    every: dict[str, Any] = {"layers": layers}
    return (
        *fused(tuple(f"{attention}.to_{part}" for part in "qkv"), f"{attention}.qkv", "hidden", bias=False, **every),
        *affine(f"{attention}.to_out.0", f"{attention}.out", "hidden", "hidden", bias=False, **every),
        *(
            parameter(f"{attention}.norm_{part}.weight", ("head_dim",), original, when=_normed, **every)
            for part, original in (("q", f"{attention}.q_norm.weight"), ("k", f"{attention}.k_norm.weight"))
        ),
        *(
            row
            for part, out, width in (("w1", "inner", "hidden"), ("w2", "hidden", "inner"), ("w3", "inner", "hidden"))
            for row in affine(
                f"{name}.feed_forward.{part}", f"{name}.feed_forward.{part}", out, width, bias=False, **every
            )
        ),
        *(
            parameter(f"{name}.{part}.weight", ("hidden",), f"{name}.{part}.weight", **every)
            for part in ("attention_norm1", "ffn_norm1", "attention_norm2", "ffn_norm2")
        ),
        *(_same(f"{name}.adaLN_modulation.0", "4*hidden", "condition", **every) if conditioned else ()),
    )


def _same(name: str, out: str | int, width: str | int, **rest: Any) -> tuple[Weight, ...]:
    """Rows of a linear layer with one name in all files."""
    return affine(name, name, out, width, **rest)


WEIGHTS = (
    *affine(EMBEDDER, "x_embedder", "hidden", f"{PATCH * PATCH}*channels"),
    parameter("x_pad_token", (1, "hidden"), "x_pad_token"),
    parameter("cap_pad_token", (1, "hidden"), "cap_pad_token"),
    *_same("t_embedder.mlp.0", 1024, 256),
    *_same("t_embedder.mlp.2", "condition", 1024),
    parameter("cap_embedder.0.weight", ("text_width",), "cap_embedder.0.weight"),
    *_same("cap_embedder.1", "hidden", "text_width"),
    *_block("noise_refiner", "refiners"),
    *_block("context_refiner", "refiners", conditioned=False),
    *_block("layers", "layers"),
    *affine(f"{FINAL}.adaLN_modulation.1", "final_layer.adaLN_modulation.1", "hidden", "condition"),
    *affine(f"{FINAL}.linear", "final_layer.linear", f"{PATCH * PATCH}*channels", "hidden"),
)


def _attention(net: Net, x: Value, angles: Angles, name: str) -> Value:
    """Attention of all tokens to all others, [batch, length, hidden]."""
    heads = net.config.heads
    q, k, v = (linear(net, x, f"{name}.to_{part}") for part in "qkv")
    if net.config.qk_norm:
        q = head_norm(net, q, f"{name}.norm_q", heads, net.config.head_dim, HEAD_EPSILON)
        k = head_norm(net, k, f"{name}.norm_k", heads, net.config.head_dim, HEAD_EPSILON)
    y = net.Attention(rotated(net, q, angles), rotated(net, k, angles), v, q_num_heads=heads, kv_num_heads=heads)
    return linear(net, y, f"{name}.to_out.0")


def _feed_forward(net: Net, x: Value, name: str) -> Value:
    inner = net.Mul(silu(net, linear(net, x, f"{name}.w1")), linear(net, x, f"{name}.w3"))
    return linear(net, inner, f"{name}.w2")


def _scaled(net: Net, x: Value, scale: Value | None) -> Value:
    y: Value = x if scale is None else net.Mul(x, net.Add(scale, 1.0))
    return y


def _added(net: Net, residual: Value, x: Value, gate: Value | None) -> Value:
    y: Value = net.Add(residual, x if gate is None else net.Mul(net.Tanh(gate), x))
    return y


def block(net: Net, x: Value, angles: Angles, name: str, condition: Value | None = None) -> Value:
    """A layer: attention and a feed-forward network between norms, with scales and gates of the condition
    [batch, 1, condition] if given."""
    scale = gate = mlp_scale = mlp_gate = None
    if condition is not None:
        pieces = net.Split(linear(net, condition, f"{name}.adaLN_modulation.0"), axis=-1, num_outputs=4, outputs=4)
        scale, gate, mlp_scale, mlp_gate = pieces
    y = _scaled(net, norm(net, x, f"{name}.attention_norm1"), scale)
    y = norm(net, _attention(net, y, angles, f"{name}.attention"), f"{name}.attention_norm2")
    x = _added(net, x, y, gate)
    y = _scaled(net, norm(net, x, f"{name}.ffn_norm1"), mlp_scale)
    return _added(net, x, norm(net, _feed_forward(net, y, f"{name}.feed_forward"), f"{name}.ffn_norm2"), mlp_gate)


def build(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The prediction ``sample`` of latents ``x``, both [batch, channels, frames, height, width], at times ``t`` [batch]
    of 0 to 1, from embeddings ``cap_feats`` [batch, tokens, text_width] of captions of one length."""
    net = Net(graph, config, weights)
    latents = net.input("x", "f32", ("batch", config.channels, "frames", "height", "width"))
    time = net.input("t", "f32", ("batch",))
    text = net.input("cap_feats", "f32", ("batch", "tokens", config.text_width))
    grid = PatchGrid(net, latents, PATCH)
    condition = linear(net, sinusoidal(net, net.Mul(time, config.steps)), "t_embedder.mlp.0")
    condition = net.Unsqueeze(linear(net, silu(net, condition), "t_embedder.mlp.2"), [1])
    patches = linear(net, grid.patches(latents), EMBEDDER)
    x, padding = padded(net, patches, "x_pad_token", MULTIPLE)
    caption = linear(net, norm(net, text, "cap_embedder.0"), "cap_embedder.1")
    caption, _ = padded(net, caption, "cap_pad_token", MULTIPLE)
    tokens = net.Shape(caption, start=1, end=2)
    caption_ids = caption_positions(net, tokens)
    patch_ids = grid.positions(net.Add(net.Cast(tokens, to=1), 1.0), padding)

    def angles(positions: Value) -> Angles:
        return axial_angles(net, positions, grid.batch, config.axes, config.theta)

    patch_angles, caption_angles = angles(patch_ids), angles(caption_ids)
    for i in range(config.refiners):
        x = block(net, x, patch_angles, f"noise_refiner.{i}", condition)
        caption = block(net, caption, caption_angles, f"context_refiner.{i}")
    x, all_angles = net.Concat(x, caption, axis=1), angles(net.Concat(patch_ids, caption_ids, axis=0))
    for i in range(config.layers):
        x = block(net, x, all_angles, f"layers.{i}", condition)
    x = net.Slice(x, [0], net.Shape(patches, start=1, end=2), [1])
    scale = net.Add(linear(net, silu(net, condition), f"{FINAL}.adaLN_modulation.1"), 1.0)
    predicted = linear(net, net.Mul(plain_norm(net, x, config.hidden), scale), f"{FINAL}.linear")
    net.output("sample", grid.latents(predicted))


def original_sizes(source: Mapping[str, Any], weights: Mapping[str, StoredTensor]) -> dict[str, Any]:
    """The configuration of a single file by our names, as the shapes of the weights say; the rest is that of the
    published models."""
    hidden, normed = length(weights, "x_embedder.weight", 0), "layers.0.attention.q_norm.weight"
    return {
        "channels": max(1, length(weights, "x_embedder.weight", 1) // PATCH**2),
        "hidden": hidden,
        "layers": layer_count(weights, "layers"),
        "refiners": layer_count(weights, "noise_refiner"),
        "heads": max(1, hidden // length(weights, normed, 0)),
        "text_width": length(weights, "cap_embedder.1.weight", 1),
    }


ARCHITECTURES = (
    Architecture(
        NAME,
        "Z-Image transformer",
        (CLASS,),
        (),
        KEYS,
        WEIGHTS,
        (Task("denoising", {MODEL: build}, partial(PatchDenoiser, patch=PATCH)),),
        implied=ImpliedDenoiser(NAME, CLASS, MARKS, original_sizes),
        prefixes=(PREFIX,),
        ignored=(r"^(model\.diffusion_model\.)?norm_final\.weight$",),
        wide_activations=True,
    ),
)
PICTURE_GGUF = (PictureGguf("lumina2", NAME),)
