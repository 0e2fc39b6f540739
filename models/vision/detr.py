"""DETR (Carion et al. 2020, arXiv:2005.12872): object detection with a ResNet and an encoder-decoder transformer."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.architecture import MODEL, Architecture, Config, Key, Row, Task
from ...runtime.contract.hyperparameter import COUNT, Choice, flag
from ...runtime.contract.naming import Module, inside
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv
from ..layers.image.grid import side_by_side
from ..layers.image.image_net import ImageNet, Inner
from ..layers.image.resize import nearest, size_of
from ..layers.image.transformer import mlp, perceptron, projected_attention
from ..layers.linear import linear
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import (
    IMAGE_FEATURES,
    LABELS,
    OBJECT_DETECTION,
    ClassTask,
    Nested,
    Stated,
    count_of,
    image_act,
)
from . import resnet

EPS = 1e-5
SINE, LEARNED = "sine", "learned"
TEMPERATURE = 10000
BACKBONE = "backbone."
UNSEEN = 3e4
"""Taken from the attention scores of padding, which softmax makes 0; f16 holds it."""
TASKS = (("ForObjectDetection", OBJECT_DETECTION), ("Model", IMAGE_FEATURES))


def _layers(own: str, modules: dict[str, str]) -> tuple[Module, ...]:
    return tuple(Module(f"{own}.layers.{{i}}.{name}", hf=f"{own}.layers.{{i}}.{hf}") for name, hf in modules.items())


FEED_FORWARD = {"norm1": "self_attn_layer_norm", "mlp.fc1": "fc1", "mlp.fc2": "fc2"}
MODULES = (
    *inside(BACKBONE, resnet.MODULES, "backbone.conv_encoder.model."),
    Module("backbone", hf="backbone.conv_encoder.model"),
    Module("input_proj", hf="input_projection"),
    Module("query_embed", hf="query_position_embeddings"),
    Module("position_embedding"),
    *_layers("encoder", {"self_attn": "self_attn", "norm2": "final_layer_norm", **FEED_FORWARD}),
    *_layers("decoder", {"self_attn": "self_attn", "cross_attn": "encoder_attn", **FEED_FORWARD}),
    *_layers("decoder", {"norm2": "encoder_attn_layer_norm", "norm3": "final_layer_norm"}),
    Module("decoder.norm", hf="decoder.layernorm"),
    Module("class_embed", hf="class_labels_classifier"),
    Module("bbox_embed", hf="bbox_predictor.layers"),
)
OF_BACKBONE = ("depths", "widths", "stem_width", "block", "downsample_first", "downsample_before", "act")
"""Hyper-parameters of ResNet that the backbone has."""


def _of_backbone(row: Row) -> Row:
    act = Key("backbone_act", "hidden_act", "backbone_activation", "relu", Choice(("relu",)))
    return Nested("backbone_config", act if row.name == "act" else row)


KEYS: tuple[Row, ...] = (
    ClassTask("Detr", TASKS),
    *LABELS,
    Stated("use_timm_backbone", False),
    Stated("backbone", None),
    Stated("backbone_config.model_type", "resnet"),
    Stated("backbone_config.out_features", ["stage4"]),
    *(_of_backbone(row) for row in resnet.KEYS if row.name in OF_BACKBONE),
    Key("hidden", "d_model", "embedding_length", None, COUNT),
    Key("encoder_layers", "encoder_layers", "encoder.block_count", None),
    Key("decoder_layers", "decoder_layers", "decoder.block_count", None),
    Key("encoder_heads", "encoder_attention_heads", "encoder.attention.head_count", 8, COUNT),
    Key("decoder_heads", "decoder_attention_heads", "decoder.attention.head_count", 8, COUNT),
    Key("encoder_inner", "encoder_ffn_dim", "encoder.feed_forward_length", None),
    Key("decoder_inner", "decoder_ffn_dim", "decoder.feed_forward_length", None),
    Key("queries", "num_queries", "query_count", None),
    Key("positions", "position_embedding_type", "position_embedding", SINE, Choice((SINE, LEARNED))),
    Key("dilation", "dilation", (), False, flag),
    image_act("relu", "activation_function"),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. UnsupportedError for backbones with dilated convolutions (DC5)."""
    if config.dilation:
        raise UnsupportedError("E-ARCH-VARIANT", config.path, "a backbone with dilated convolutions is not supported")
    backbone = {name.removeprefix(BACKBONE): held for name, held in weights.items() if name.startswith(BACKBONE)}
    resnet.settle(config, backbone)
    config.values["labels"] = weights["class_embed.weight"].shape[0] - 1 if "class_embed.weight" in weights else None
    config.values["queries"], config.values["hidden"] = weights["query_embed.weight"].shape
    for side in ("encoder", "decoder"):
        config.values[f"{side}_layers"] = count_of(weights, f"{side}.layers.{{i}}.norm1.weight")
        config.values[f"{side}_inner"] = weights[f"{side}.layers.0.mlp.fc1.weight"].shape[0]


def hidden_states(net: ImageNet) -> Value:
    """The decoder's output for each query, [batch, queries, width]."""
    backbone = Config({**net.config.values, "act": net.config.backbone_act, "inner_act": net.config.backbone_act})
    image = conv(net, resnet.features(Inner(net, BACKBONE, backbone)), "input_proj")
    mask = _mask(net, image)
    places = _learned(net, image) if net.config.positions == LEARNED else _sines(net, mask)
    hides = net.Mul(net.Sub(net.Unsqueeze(net.Reshape(mask, [0, -1]), [1, 2]), 1.0), UNSEEN)
    seen = net.flatten(image)
    of_pixels = net.Expand(hides, net.Concat([1, 1], net.Shape(seen, start=1, end=2), [1], axis=0))
    of_queries = net.Expand(hides, [1, 1, net.config.queries, 1])
    for i in range(net.config.encoder_layers):
        name, heads = f"encoder.layers.{i}", net.config.encoder_heads
        placed = net.Add(seen, places)
        found = projected_attention(net, placed, placed, seen, f"{name}.self_attn", heads, of_pixels)
        seen = _added(net, seen, found, name, 1)
        seen = _added(net, seen, mlp(net, seen, f"{name}.mlp"), name, 2)
    queries = net.Unsqueeze(net.vector("query_embed.weight"), [0])
    batch = net.Concat(net.Shape(image, start=0, end=1), [1, 1], axis=0)
    x = net.Expand(net.Mul(queries, 0.0), batch)
    keys = net.Add(seen, places)
    for i in range(net.config.decoder_layers):
        name, heads = f"decoder.layers.{i}", net.config.decoder_heads
        placed = net.Add(x, queries)
        x = _added(net, x, projected_attention(net, placed, placed, x, f"{name}.self_attn", heads), name, 1)
        found = projected_attention(net, net.Add(x, queries), keys, seen, f"{name}.cross_attn", heads, of_queries)
        x = _added(net, x, found, name, 2)
        x = _added(net, x, mlp(net, x, f"{name}.mlp"), name, 3)
    return layer_norm(net, x, "decoder.norm", EPS)


def _added(net: ImageNet, x: Value, y: Value, name: str, index: int) -> Value:
    """The norm of a sum."""
    return layer_norm(net, net.Add(x, y), f"{name}.norm{index}", EPS)


def _mask(net: ImageNet, image: Value) -> Value:
    """1 for the pixels of `image` that are of pictures and 0 for padding, f32 [batch or 1, height, width]; the input
    ``pixel_mask``, which has other sizes, says so. Nothing is padding where it is not fed."""
    given = net.optional_input("pixel_mask", np.ones((1, 1, 1), np.int64), ("masks", "mask_height", "mask_width"))
    planes = net.Unsqueeze(net.Cast(given, to=1), [1])
    mask: Value = net.Squeeze(nearest(net, planes, size_of(net, image)), [1])
    return mask


def _sines(net: ImageNet, mask: Value) -> Value:
    """Sines and cosines of pixel positions in pictures, [batch or 1, height x width, width]: half of each vector
    by rows, half by columns, in shares of the picture."""
    half = net.config.hidden // 2
    steps = 2 * math.pi / TEMPERATURE ** (2 * np.arange(half // 2) / half)
    found = []
    for axis in (1, 2):
        places = net.CumSum(mask, net.constant(np.array(axis)))
        length = net.Slice(places, [-1], [np.iinfo(np.int64).max], [axis])
        shares = net.Unsqueeze(net.Div(places, net.Add(length, 1e-6)), [3])
        angles = net.Unsqueeze(net.Mul(shares, net.constant(steps.astype(np.float32))), [4])
        pairs = net.Concat(net.Sin(angles), net.Cos(angles), axis=4)
        found.append(net.Reshape(pairs, [0, 0, 0, -1]))
    value: Value = net.Reshape(net.Concat(*found, axis=3), [0, -1, 2 * half])
    return value


def _learned(net: ImageNet, image: Value) -> Value:
    """Learned vectors of columns and rows, [height x width, width]."""
    size = size_of(net, image)
    tables = (net.vector(f"position_embedding.{axis}_embeddings.weight") for axis in ("row", "column"))
    rows, columns = (
        net.Unsqueeze(net.Slice(table, [0], net.Slice(size, [axis], [axis + 1], [0]), [0]), [1 - axis])
        for axis, table in enumerate(tables)
    )
    return side_by_side(net, size, columns, rows, net.config.hidden // 2)


def detected(net: ImageNet) -> None:
    """Logits of the classes and of none, and boxes as center, width and height in shares of the image."""
    x = hidden_states(net)
    net.output("logits", linear(net, x, "class_embed"))
    net.output("pred_boxes", net.Sigmoid(perceptron(net, x, "bbox_embed")))


def hidden(net: ImageNet) -> None:
    """The decoder's output for each query."""
    net.output("last_hidden_state", hidden_states(net))


ARCHITECTURES = (
    Architecture(
        "detr",
        "DETR",
        ("detr",),
        ("detr",),
        KEYS,
        (),
        (
            Task(OBJECT_DETECTION, {MODEL: image_graph(detected)}, run_image_model),
            Task(IMAGE_FEATURES, {MODEL: image_graph(hidden)}, run_image_model),
        ),
        settle=settle,
        prefixes=("model.",),
        ignored=(),
        modules=MODULES,
    ),
)
