"""Segment Anything (SAM; Kirillov et al. 2023, arXiv:2304.02643): masks for points, boxes and masks.

Three graphs: ``vision_encoder`` and ``prompt_encoder_mask_decoder``, with the inputs and outputs that Transformers.js
and Optimum have, and ``mask_encoder``, whose result is added to the image's embeddings for a mask among the prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, TIMM, Architecture, Config, Key, Row, Task
from ...runtime.contract.hyperparameter import COUNT, NOT_NEGATIVE, Integer, Listed, flag
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, transposed_conv
from ..layers.image.decomposed_positions import placed_attention
from ..layers.image.image_net import ImageNet
from ..layers.image.patches import patch_embedding
from ..layers.image.transformer import perceptron, projected_attention
from ..layers.image.windows import cut, joined, padded, partitioned
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph
from ..pipelines.image.promptable_model import (
    DECODER,
    EMBEDDINGS,
    ENCODER,
    LABELS,
    MASK,
    MASK_ENCODER,
    MASKED,
    MASKS,
    PLACES,
    POINTS,
    SCORES,
    SINGLE_MASK,
    SINGLE_SCORE,
    PromptableModel,
)
from ..schema.network_hyperparameters import MASK_GENERATION, ClassTask, Nested, count_of, image_act

IMAGE_EPS, FINAL_EPS = 1e-6, 1e-5
"""Epsilons of norms of images, and of the last norm of tokens."""
LAYERS = {"norm1": "layer_norm1", "norm2": "layer_norm2", "attn": "attn", "mlp": "mlp"}
PATCHES = "image_encoder.patch_embed.proj.weight"
TRANSFORMER, THEIRS = "mask_decoder.", "mask_decoder.transformer."
"""Prefixes of the decoder's attention layers; own names are short, those of GGUF have 63 bytes at most."""
GAUSSIAN = "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"
POINT_GAUSSIAN = "prompt_encoder.point_gaussian_matrix"
"""The matrix for points and boxes in files that store it apart from that of the image's grid."""
PERCEPTRON = {"0": "proj_in", "1": "layers.0", "2": "proj_out"}


def _decoding(own: str, original: str | None = None, hf: str | None = None) -> Module:
    """A module of the decoder's attention layers, by its names there."""
    original = own if original is None else original
    return Module(TRANSFORMER + own, hf=THEIRS + (original if hf is None else hf), timm=THEIRS + original)


SHARED = (
    *(
        Module(f"image_encoder.neck.{i}", hf=f"vision_encoder.neck.{hf}")
        for i, hf in enumerate(("conv1", "layer_norm1", "conv2", "layer_norm2"))
    ),
    Module(GAUSSIAN, hf="shared_image_embedding.positional_embedding"),
    Module(POINT_GAUSSIAN, hf="prompt_encoder.shared_embedding.positional_embedding"),
    Module("prompt_encoder.point_embeddings.{i}", hf="prompt_encoder.point_embed.{i}"),
    Module("prompt_encoder.not_a_point_embed"),
    Module("prompt_encoder.no_mask_embed"),
    *(
        Module(f"prompt_encoder.mask_downscaling.{i}", hf=f"prompt_encoder.mask_embed.{hf}")
        for i, hf in ((0, "conv1"), (1, "layer_norm1"), (3, "conv2"), (4, "layer_norm2"), (6, "conv3"))
    ),
    *(_decoding(f"layers.{{i}}.norm{k}", hf=f"layers.{{i}}.layer_norm{k}") for k in range(1, 5)),
    _decoding("layers.{i}.token_to_image", "layers.{i}.cross_attn_token_to_image"),
    _decoding("layers.{i}.image_to_token", "layers.{i}.cross_attn_image_to_token"),
    _decoding("layers.{i}"),
    _decoding("final_attn", "final_attn_token_to_image"),
    _decoding("norm_final_attn", hf="layer_norm_final_attn"),
    Module("mask_decoder.iou_token"),
    Module("mask_decoder.mask_tokens"),
    *(
        Module(f"mask_decoder.output_upscaling.{i}", hf=f"mask_decoder.{hf}")
        for i, hf in ((0, "upscale_conv1"), (1, "upscale_layer_norm"), (3, "upscale_conv2"))
    ),
    *(
        Module(f"mask_decoder.{name}.layers.{own}", hf=f"mask_decoder.{name}.{hf}")
        for name in ("output_hypernetworks_mlps.{i}", "iou_prediction_head")
        for own, hf in PERCEPTRON.items()
    ),
)
"""Modules after the layers of the image's encoder."""
MODULES = (
    Module("image_encoder.pos_embed", hf="vision_encoder.pos_embed"),
    Module("image_encoder.patch_embed.proj", hf="vision_encoder.patch_embed.projection"),
    *(
        Module(f"image_encoder.blocks.{{i}}.{own}", hf=f"vision_encoder.layers.{{i}}.{hf}")
        for own, hf in LAYERS.items()
    ),
    *SHARED,
)
VISION_KEYS = (
    Key("hidden", "hidden_size", "embedding_length", None, COUNT),
    Key("layers", "num_hidden_layers", "block_count", None, COUNT),
    Key("heads", "num_attention_heads", "attention.head_count", 12, COUNT, at_most=("hidden",)),
    Key("inner", "mlp_dim", "feed_forward_length", None),
    Key("side", "image_size", "image_size", None, Integer(1, 1 << 16)),
    Key("patch", "patch_size", "patch_size", None, COUNT),
    Key("window", "window_size", "window_size", 14, Integer(0, 1 << 12)),
    Key("whole_layers", "global_attn_indexes", "global_layers", [2, 5, 8, 11], Listed(Integer(0, 1023))),
    Key("channels", "output_channels", "output_channels", None),
    Key("frequencies", "num_pos_feats", (), None),
    Key("relative", "use_rel_pos", (), None, flag),
    Key("qkv_bias", "qkv_bias", (), None, flag),
    Key("eps", "layer_norm_eps", "layer_norm_epsilon", IMAGE_EPS, NOT_NEGATIVE),
    image_act("gelu"),
)
PROMPT_KEYS = (
    Key("prompt_width", "hidden_size", (), None),
    Key("prompt_side", "image_size", (), None),
    Key("prompt_patch", "patch_size", (), None),
    Key("grid", "image_embedding_size", (), None),
    Key("mask_channels", "mask_input_channels", (), None),
)


def _decoder_eps(config: Config) -> float:
    return 1e-6 if config.names == HF else 1e-5


DECODER_KEYS = (
    Key("decoder_width", "hidden_size", (), None),
    Key("decoder_layers", "num_hidden_layers", (), None),
    Key("decoder_inner", "mlp_dim", (), None),
    Key("decoder_heads", "num_attention_heads", "decoder.attention.head_count", 8, COUNT),
    Key("downsample", "attention_downsample_rate", (), None),
    Key("iou_inner", "iou_head_hidden_dim", (), None),
    Key("iou_depth", "iou_head_depth", (), None),
    Key("choices", "num_multimask_outputs", (), None),
    Key("decoder_eps", "layer_norm_eps", "decoder.layer_norm_epsilon", _decoder_eps, NOT_NEGATIVE),
)
KEYS: tuple[Row, ...] = (
    ClassTask("Sam", (("Model", MASK_GENERATION),)),
    *(Nested("vision_config", row) for row in VISION_KEYS),
    *(Nested("prompt_encoder_config", row) for row in PROMPT_KEYS),
    *(Nested("mask_decoder_config", row) for row in DECODER_KEYS),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights; tables of relative positions show heads and windows.

    Raises FormatError for sizes that do not fit each other.
    """
    patches = weights["image_encoder.patch_embed.proj.weight"].shape
    grid = weights["image_encoder.pos_embed"].shape[1]
    layers = count_of(weights, "image_encoder.blocks.{i}.norm1.weight")
    tables = [weights.get(f"image_encoder.blocks.{i}.attn.rel_pos_h") for i in range(layers)]
    if tables and tables[0] is not None:
        sides = [0 if table is None else (table.shape[0] + 1) // 2 for table in tables]
        config.values["heads"] = patches[0] // max(1, tables[0].shape[1])
        config.values["whole_layers"] = [i for i, side in enumerate(sides) if side == grid]
        config.values["window"] = next((side for side in sides if side != grid), 0)
    config.values |= {
        "hidden": patches[0],
        "patch": patches[-1],
        "grid": grid,
        "side": grid * patches[-1],
        "layers": layers,
        "inner": weights["image_encoder.blocks.0.mlp.lin1.weight"].shape[0],
        "channels": weights["image_encoder.neck.0.weight"].shape[0],
        "relative": "image_encoder.blocks.0.attn.rel_pos_h" in weights,
        "qkv_bias": "image_encoder.blocks.0.attn.qkv.bias" in weights,
        "prompt_side": grid * patches[-1],
        "prompt_patch": patches[-1],
        **decoder_sizes(weights),
    }
    if patches[0] % config.heads:
        why = f"{config.heads} heads do not divide a width of {patches[0]}"
        raise FormatError("E-ARCH-KEY", config.path, why)


def decoder_sizes(weights: Mapping[str, StoredTensor]) -> dict[str, int]:
    """Hyper-parameters of the encoder of prompts and of the decoder that the weights show."""
    iou = weights["mask_decoder.iou_prediction_head.layers.0.weight"].shape
    projections = [
        weights[f"{TRANSFORMER}layers.0.{name}.q_proj.weight"].shape[0] for name in ("self_attn", "token_to_image")
    ]
    width = weights["mask_decoder.iou_token.weight"].shape[1]
    return {
        "frequencies": weights[GAUSSIAN].shape[1],
        "prompt_width": width,
        "mask_channels": weights["prompt_encoder.mask_downscaling.3.weight"].shape[0],
        "decoder_width": width,
        "decoder_layers": count_of(weights, f"{TRANSFORMER}layers.{{i}}.norm1.weight"),
        "decoder_inner": weights[f"{TRANSFORMER}layers.0.mlp.lin1.weight"].shape[0],
        "downsample": projections[0] // max(1, projections[1]),
        "iou_inner": iou[0],
        "iou_depth": count_of(weights, "mask_decoder.iou_prediction_head.layers.{i}.weight"),
        "choices": weights["mask_decoder.mask_tokens.weight"].shape[0] - 1,
    }


def encode_image(net: ImageNet) -> None:
    """``image_embeddings`` and their positions [batch, channels, side / patch, side / patch] of prepared images."""
    config = net.config
    x = net.input("pixel_values", "f32", ("batch", net.kernel(PATCHES).shape[1], config.side, config.side))
    x = net.channels_last(patch_embedding(net, x, PATCHES.removesuffix(".weight")))
    x = net.Add(x, net.vector("image_encoder.pos_embed"))
    for i in range(config.layers):
        x = _layer(net, x, f"image_encoder.blocks.{i}", 0 if i in config.whole_layers else config.window)
    neck(net, net.channels_first(x))


def neck(net: ImageNet, x: Value) -> None:
    """The outputs of the image's encoder, from what its layers compute, [batch, channels, grid, grid]."""
    x = conv(net, x, "image_encoder.neck.0")
    x = conv(net, _image_norm(net, x, "image_encoder.neck.1"), "image_encoder.neck.2")
    x = _image_norm(net, x, "image_encoder.neck.3")
    net.output(EMBEDDINGS, x)
    places = net.Transpose(_grid_places(net), perm=[2, 0, 1])
    shape = net.Concat(net.Shape(x, start=0, end=1), [1, 1, 1], axis=0)
    net.output(PLACES, net.Expand(net.Unsqueeze(places, [0]), shape))


def _layer(net: ImageNet, x: Value, name: str, window: int) -> Value:
    """Attention in windows or, for 0, in the whole image [batch, height, width, channels], then a feed-forward
    network."""
    config = net.config
    y = layer_norm(net, x, f"{name}.norm1", config.eps)
    if window:
        filled = padded(net, y, window)
        found = placed_attention(
            net, partitioned(net, filled, window, config.hidden), f"{name}.attn", config.heads, window
        )
        y = cut(net, joined(net, found, filled, window, config.hidden), x)
    else:
        tokens = net.Reshape(y, [0, -1, config.hidden])
        y = placed_attention(net, tokens, f"{name}.attn", config.heads, config.grid)
        y = net.Reshape(y, [0, config.grid, config.grid, config.hidden])
    x = net.Add(x, y)
    y = linear(net, layer_norm(net, x, f"{name}.norm2", config.eps), f"{name}.mlp.lin1")
    return net.Add(x, linear(net, net.activate(y, config.act), f"{name}.mlp.lin2"))


def _image_norm(net: ImageNet, x: Value, name: str) -> Value:
    """Layer norm over the channels of an image."""
    return net.channels_first(layer_norm(net, net.channels_last(x), name, IMAGE_EPS))


def _places(net: ImageNet, shares: Value, matrix: str = GAUSSIAN) -> Value:
    """Vectors of positions x and y, in shares of the image: sines and cosines of the frequencies in a weight."""
    centered = net.Sub(net.Mul(shares, 2.0), 1.0)
    angles = net.Mul(net.MatMul(centered, net.vector(matrix)), 2 * math.pi)
    value: Value = net.Concat(net.Sin(angles), net.Cos(angles), axis=-1)
    return value


def _grid_places(net: ImageNet) -> Value:
    """The vector of each patch, [rows, columns, channels]."""
    centers = (np.arange(net.config.grid, dtype=np.float32) + 0.5) / net.config.grid
    y, x = np.meshgrid(centers, centers, indexing="ij")
    return _places(net, net.constant(np.stack([x, y], -1)))


def encode_mask(net: ImageNet) -> None:
    """``mask_embeddings`` [batch, channels, grid, grid] of a mask's logits [batch, 1, 4 x grid, 4 x grid]: what is
    added to the embeddings of the image."""
    side = 4 * net.config.grid
    x = net.input(MASK, "f32", ("batch", 1, side, side))
    for i in (0, 3):
        stride = net.kernel(f"prompt_encoder.mask_downscaling.{i}.weight").shape[-1]
        x = conv(net, x, f"prompt_encoder.mask_downscaling.{i}", stride=stride, padding=0)
        x = net.activate(_image_norm(net, x, f"prompt_encoder.mask_downscaling.{i + 1}"), "gelu")
    x = conv(net, x, "prompt_encoder.mask_downscaling.6")
    net.output(MASKED, net.Sub(x, _no_mask(net)))


def _no_mask(net: ImageNet) -> Value:
    """The embedding of an absent mask prompt, [1, channels, 1, 1]."""
    value: Value = net.Reshape(net.vector("prompt_encoder.no_mask_embed.weight"), [1, -1, 1, 1])
    return value


def decode_masks(net: ImageNet) -> None:
    """``pred_masks`` [batch, prompts, choices, 4 x grid, 4 x grid] and their ``iou_scores``, and the same of the one
    mask for prompts that leave no choice.

    Points x, y are in pixels of the prepared image. Labels are 1 for points of the object, 0 for others, 2 and 3 for
    the corners of a box, -1 for padding: one such point without a box, -10 for points that do not count.
    """
    config = net.config
    points = net.input(POINTS, "f32", ("batch", "prompts", "points", 2))
    labels = net.input(LABELS, "i64", ("batch", "prompts", "points"))
    shape = ("batch", config.prompt_width, config.grid, config.grid)
    embeddings, places = (net.input(name, "f32", shape) for name in (EMBEDDINGS, PLACES))
    prompts = net.Shape(points, start=0, end=2)
    image, places = (_repeated(net, x, prompts) for x in (net.Add(embeddings, _no_mask(net)), places))
    tokens = [net.vector(f"mask_decoder.{name}.weight") for name in ("iou_token", "mask_tokens")]
    x = _prompt_tokens(net, points, labels)
    first = net.Unsqueeze(net.Concat(*tokens, axis=0), [0])
    first = net.Expand(first, net.Concat(net.Shape(x, start=0, end=1), [1, 1], axis=0))
    found, keys = _two_way(net, net.Concat(first, x, axis=1), net.flatten(image), net.flatten(places))
    count = config.choices + 1
    score, *masks = net.split(net.Slice(found, [0], [count + 1], [1]), [1] * (count + 1), axis=1)
    logits = _masks(net, masks, net.unflatten(keys, image))
    scores = perceptron(net, score, "mask_decoder.iou_prediction_head.layers")
    scores = net.Reshape(scores, net.Concat(prompts, [count], axis=0))
    side = 4 * config.grid
    logits = net.Reshape(logits, net.Concat(prompts, [count, side, side], axis=0))
    single_score, several_scores = net.split(scores, [1, config.choices], axis=2)
    single_mask, several_masks = net.split(logits, [1, config.choices], axis=2)
    for name, value in (
        (SCORES, several_scores),
        (MASKS, several_masks),
        (SINGLE_SCORE, single_score),
        (SINGLE_MASK, single_mask),
    ):
        net.output(name, value)


def _repeated(net: ImageNet, x: Value, prompts: Value) -> Value:
    """Images [batch, ...] once for each prompt, [batch x prompts, ...]; `prompts` is both counts."""
    rest = net.Shape(x, start=1, end=4)
    several = net.Expand(net.Unsqueeze(x, [1]), net.Concat(prompts, rest, axis=0))
    value: Value = net.Reshape(several, net.Concat([-1], rest, axis=0))
    return value


def _prompt_tokens(net: ImageNet, points: Value, labels: Value) -> Value:
    """Vectors of points, [batch x prompts, points, channels]."""
    width, first = net.config.prompt_width, 2
    flat = net.Reshape(labels, net.Concat([-1], net.Shape(labels, start=2, end=3), axis=0))
    shares = net.Div(net.Add(points, 0.5), float(net.config.side))
    matrix = POINT_GAUSSIAN if net.has(POINT_GAUSSIAN) else GAUSSIAN
    places = _places(net, shares, matrix)
    places = net.Reshape(places, net.Concat([-1], net.Shape(labels, start=2, end=3), [width], axis=0))
    kinds = [net.vector("prompt_encoder.not_a_point_embed.weight")]
    kinds += [net.vector(f"prompt_encoder.point_embeddings.{i}.weight") for i in range(4)]
    table = net.Concat(net.constant(np.zeros((1, width), np.float32)), *kinds, axis=0)
    index = net.Add(net.Max(net.Min(flat, [3]), [-first]), [first])
    counted = net.Cast(net.Unsqueeze(net.GreaterOrEqual(flat, [0]), [2]), to=1)
    value: Value = net.Add(net.Mul(places, counted), net.Gather(table, index))
    return value


def _two_way(net: ImageNet, tokens: Value, image: Value, places: Value) -> tuple[Value, Value]:
    """Tokens and pixels after layers in which both attend to each other."""
    name, eps, heads = TRANSFORMER, net.config.decoder_eps, net.config.decoder_heads
    x, keys = tokens, image
    for i in range(net.config.decoder_layers):
        layer = f"{name}layers.{i}"
        placed = net.Add(x, tokens) if i else x
        y = projected_attention(net, placed, placed, x, f"{layer}.self_attn", heads)
        x = layer_norm(net, net.Add(x, y) if i else y, f"{layer}.norm1", eps)
        seen = net.Add(keys, places)
        y = projected_attention(net, net.Add(x, tokens), seen, keys, f"{layer}.token_to_image", heads)
        x = layer_norm(net, net.Add(x, y), f"{layer}.norm2", eps)
        y = linear(net, net.Relu(linear(net, x, f"{layer}.mlp.lin1")), f"{layer}.mlp.lin2")
        x = layer_norm(net, net.Add(x, y), f"{layer}.norm3", eps)
        y = projected_attention(net, seen, net.Add(x, tokens), x, f"{layer}.image_to_token", heads)
        keys = layer_norm(net, net.Add(keys, y), f"{layer}.norm4", eps)
    seen = net.Add(keys, places)
    y = projected_attention(net, net.Add(x, tokens), seen, keys, f"{name}final_attn", heads)
    return layer_norm(net, net.Add(x, y), f"{name}norm_final_attn", FINAL_EPS), keys


def _masks(net: ImageNet, tokens: list[Value], image: Value) -> Value:
    """Logits of masks, [batch x prompts, masks, pixels]: products of pixels, four times as many in each direction, with
    a vector of each mask."""
    x = transposed_conv(net, image, "mask_decoder.output_upscaling.0")
    x = net.activate(_image_norm(net, x, "mask_decoder.output_upscaling.1"), "gelu")
    x = net.activate(transposed_conv(net, x, "mask_decoder.output_upscaling.3"), "gelu")
    vectors = [
        perceptron(net, token, f"mask_decoder.output_hypernetworks_mlps.{i}.layers") for i, token in enumerate(tokens)
    ]
    value: Value = net.MatMul(net.Concat(*vectors, axis=1), net.Reshape(x, [0, 0, -1]))
    return value


def mask_generation(encode: Callable[[ImageNet], None]) -> Task:
    """The task of a model whose encoder of images `encode` adds."""
    graphs = {ENCODER: encode, DECODER: decode_masks, MASK_ENCODER: encode_mask}
    return Task(MASK_GENERATION, {name: image_graph(build) for name, build in graphs.items()}, PromptableModel)


def stated(architecture: str, names: Mapping[str, str], source: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """An original checkpoint of `architecture`, with the hyper-parameters of `source` that `names` (ours: theirs) and
    the decoder have."""
    said = {ours: source[theirs] for ours, theirs in names.items() if theirs in source}
    heads = {"decoder_heads": source["decoder_heads"]} if "decoder_heads" in source else {}
    return TIMM, {"general.architecture": architecture, "task": MASK_GENERATION, **said, **heads}


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The original repository's checkpoints, by the names of weights."""
    if GAUSSIAN not in graph.weights or "image_encoder.blocks.0.attn.qkv.weight" not in graph.weights:
        return None
    names = {"window": "window_size", "whole_layers": "global_attn_indexes", "heads": "num_heads"}
    return stated("sam", names, source)


ARCHITECTURES = (
    Architecture(
        "sam",
        "Segment Anything",
        ("sam",),
        ("sam",),
        KEYS,
        (),
        (mask_generation(encode_image),),
        implied=implied,
        settle=settle,
        prefixes=(),
        ignored=("^pixel_(mean|std)$",),
        modules=MODULES,
    ),
)
