"""Depth Anything V1 and V2 (Yang et al. 2024, arXiv:2401.10891, arXiv:2406.09414): DINOv2 and the head of DPT (Ranftl
et al. 2021, arXiv:2103.13413)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import FormatError
from ...runtime.contract.architecture import HF, MODEL, TIMM, Architecture, Config, Key, Row, Task
from ...runtime.contract.hyperparameter import Choice, Integer, Listed, Real, checked, flag
from ...runtime.contract.naming import Module, inside
from ...runtime.ir.graph import Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import conv, transposed_conv
from ..layers.image.image_net import ImageNet, Inner
from ..layers.image.patches import patch_embedding
from ..layers.image.resize import bilinear, size_of
from ..layers.image.transformer import block
from ..layers.image.vision_transformer import embedded, prefix_count
from ..layers.norm import layer_norm
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..schema.network_hyperparameters import DEPTH_ESTIMATION, ClassTask, Implied, Nested, Stated
from ..schema.vit import vit_keys
from . import dinov2

BACKBONE = "pretrained."
LEVELS = 4
RELATIVE, METRIC = "relative", "metric"
FACTORS = [4, 2, 1, 0.5]
OUT_LAYERS = {12: [3, 6, 9, 12], 24: [5, 12, 18, 24], 40: [10, 20, 30, 40]}
"""The layers whose results the head takes, by the number of layers, in version 2."""
FUSION = {
    "out_conv": "projection",
    "resConfUnit1.conv": "residual_layer1.convolution",
    "resConfUnit2.conv": "residual_layer2.convolution",
}


def _fusion() -> tuple[Module, ...]:
    """The modules that join two levels, which transformers counts from the last one."""
    return tuple(
        Module(f"depth_head.scratch.refinenet{LEVELS - i}.{own}{k}", hf=f"neck.fusion_stage.layers.{i}.{hf}{k}")
        for i in range(LEVELS)
        for own, hf in FUSION.items()
        for k in (("",) if own == "out_conv" else ("1", "2"))
    )


MODULES = (
    *inside(BACKBONE, dinov2.MODULES, "backbone."),
    Module("depth_head.projects.{i}", hf="neck.reassemble_stage.layers.{i}.projection"),
    Module("depth_head.resize_layers.{i}", hf="neck.reassemble_stage.layers.{i}.resize"),
    *(Module(f"depth_head.scratch.layer{i + 1}_rn", hf=f"neck.convs.{i}") for i in range(LEVELS)),
    *_fusion(),
    Module("depth_head.scratch.output_conv1", hf="head.conv1"),
    Module("depth_head.scratch.output_conv2.0", hf="head.conv2"),
    Module("depth_head.scratch.output_conv2.2", hf="head.conv3"),
)


class OutLayers:
    """Hyper-parameter: the layers whose results the head takes, counted from 1."""

    name = "out_layers"
    kind = Listed(Integer(1, 1024), LEVELS, LEVELS)

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> list[int] | None:
        key = "out_indices" if names == HF else self.name
        said = source.get(key)
        if said is None and source.get("out_features") is not None:
            stages = checked("out_features", source["out_features"], Listed(str, LEVELS, LEVELS))
            said = [int(stage.removeprefix("stage")) for stage in stages]
        return None if said is None else list(checked(key, said, self.kind))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        if names != HF:
            return {self.name: config.out_layers}
        stages = [f"stage{layer}" for layer in config.out_layers]
        return {"out_indices": config.out_layers, "out_features": stages}


def factor(value: Any) -> float:
    """The size of a level in patches, an integer where it is one. ValueError for what is not a factor."""
    found = Real(1 / 16, 16)(value)
    return int(found) if found.is_integer() else found


BACKBONE_ROWS = [
    row
    for row in vit_keys(ClassTask("Dinov2"), 1e-6)
    if row.name not in ("task", "labels", "label_names", "intermediate")
]
KEYS: tuple[Row, ...] = (
    ClassTask("DepthAnything", (("ForDepthEstimation", DEPTH_ESTIMATION),)),
    Stated("backbone_config.model_type", "dinov2"),
    Stated("backbone_config.reshape_hidden_states", False),
    Stated("backbone", None),
    *(Nested("backbone_config", row) for row in (*BACKBONE_ROWS, *dinov2.MLP_KEYS, OutLayers())),
    Nested("backbone_config", Key("normalized", "apply_layernorm", "out_layers_normalized", True, flag)),
    Key("factors", "reassemble_factors", "reassemble_factors", FACTORS, Listed(factor, LEVELS, LEVELS)),
    Key("inputs", "reassemble_hidden_size", (), None),
    Key("widths", "neck_hidden_sizes", (), None, Listed(Integer(1, 1 << 16), LEVELS, LEVELS)),
    Key("fusion", "fusion_hidden_size", (), None),
    Key("inner", "head_hidden_size", (), None),
    Key("head_patch", "patch_size", (), None),
    Key("kind", "depth_estimation_type", "depth_type", RELATIVE, Choice((RELATIVE, METRIC))),
    Key("max_depth", "max_depth", "max_depth", 1, Integer(1, 1 << 16)),
)


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take sizes from the weights. FormatError for layers that the backbone does not have."""
    backbone = {name.removeprefix(BACKBONE): held for name, held in weights.items() if name.startswith(BACKBONE)}
    dinov2.settle(config, backbone)
    if config.out_layers is None:
        config.values["out_layers"] = OUT_LAYERS.get(config.layers, list(range(config.layers - 3, config.layers + 1)))
    if not all(1 <= layer <= config.layers for layer in config.out_layers):
        why = f"the head takes layers {config.out_layers} of a backbone of {config.layers} layers"
        raise FormatError("E-ARCH-KEY", config.path, why)
    projects = [weights[f"depth_head.projects.{i}.weight"].shape for i in range(LEVELS)]
    config.values |= {
        "inputs": projects[0][1],
        "widths": [shape[0] for shape in projects],
        "fusion": weights["depth_head.scratch.output_conv1.weight"].shape[1],
        "inner": weights["depth_head.scratch.output_conv2.0.weight"].shape[0],
        "head_patch": config.patch,
    }


def depth(net: ImageNet) -> None:
    """``predicted_depth`` [batch, height, width] of images whose sizes are multiples of the patch."""
    config = net.config
    backbone = Inner(net, BACKBONE, config)
    patches = patch_embedding(backbone, backbone.pixels("patch_embed.proj.weight"), "patch_embed.proj")
    found = _levels(net, _layers_of(backbone, patches), patches)
    x = found[-1]
    for i in reversed(range(LEVELS)):
        name = f"depth_head.scratch.refinenet{i + 1}"
        if i + 1 < LEVELS:
            x = net.Add(x, _residual(net, found[i], f"{name}.resConfUnit1"))
        x = _residual(net, x, f"{name}.resConfUnit2")
        size = size_of(net, found[i - 1]) if i else net.Mul(size_of(net, x), [2, 2])
        x = conv(net, bilinear(net, x, size, align_corners=True), f"{name}.out_conv")
    x = conv(net, x, "depth_head.scratch.output_conv1")
    x = bilinear(net, x, net.Mul(size_of(net, patches), [config.patch] * 2), align_corners=True)
    x = net.Relu(conv(net, x, "depth_head.scratch.output_conv2.0"))
    x = conv(net, x, "depth_head.scratch.output_conv2.2")
    x = net.Sigmoid(x) if config.kind == METRIC else net.Relu(x)
    net.output("predicted_depth", net.Squeeze(net.Mul(x, float(config.max_depth)), [1]))


def _layers_of(net: ImageNet, patches: Value) -> list[Value]:
    """The results of the layers that the head takes, without the tokens before the patches."""
    x = embedded(net, patches)
    found = []
    for i in range(max(net.config.out_layers)):
        x = block(net, x, f"blocks.{i}", net.config.heads)
        if i + 1 in net.config.out_layers:
            y = layer_norm(net, x, "norm", net.config.eps) if net.config.normalized else x
            found.append(net.Slice(y, [prefix_count(net)], [np.iinfo(np.int64).max], [1]))
    return found


def _levels(net: ImageNet, found: list[Value], patches: Value) -> list[Value]:
    """Images of four sizes, from tokens."""
    images = []
    for i, (tokens, factor) in enumerate(zip(found, net.config.factors, strict=True)):
        x = conv(net, net.unflatten(tokens, patches), f"depth_head.projects.{i}")
        name = f"depth_head.resize_layers.{i}"
        if factor > 1:
            x = transposed_conv(net, x, name)
        elif factor < 1:
            x = conv(net, x, name, stride=int(1 / factor))
        images.append(conv(net, x, f"depth_head.scratch.layer{i + 1}_rn"))
    return images


def _residual(net: ImageNet, x: Value, name: str) -> Value:
    """Two convolutions with ReLU before each, added to the input."""
    y = conv(net, net.Relu(x), f"{name}.conv1")
    return net.Add(x, conv(net, net.Relu(y), f"{name}.conv2"))


ARCHITECTURES = (
    Architecture(
        "depth_anything",
        "Depth Anything",
        ("depth_anything",),
        ("depth_anything",),
        KEYS,
        (),
        (Task(DEPTH_ESTIMATION, {MODEL: image_graph(depth)}, run_image_model),),
        implied=Implied(
            "depth_anything",
            r"depth_anything\w*",
            {TIMM: ("pretrained.patch_embed.proj.weight", "depth_head.projects.0.weight")},
            (),
            task=DEPTH_ESTIMATION,
        ),
        settle=settle,
        prefixes=(),
        ignored=("mask_token$", r"refinenet4\.resConfUnit1\.", r"fusion_stage\.layers\.0\.residual_layer1\."),
        modules=MODULES,
    ),
)
