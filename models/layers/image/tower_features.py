"""Features of an image encoder that is part of a multimodal model: hidden states after one of its layers."""

from __future__ import annotations

from collections.abc import Mapping

from ....runtime.base.errors import FormatError
from ....runtime.contract.architecture import FEATURE_EXTRACTION, Config
from ....runtime.contract.part_graph import add_part
from ....runtime.ir.graph import Graph, Value
from ....runtime.tensor.stored_tensor import StoredTensor
from ...schema.clip.vision_part import VISION
from ..linear import linear
from ..net import Net

FINAL = ("norm.weight", "norm.bias")
"""Weights that are applied to the last hidden states only."""
PIXELS = "pixel_values"
BOOLEAN = 9
"""ONNX's number of the dtype."""


def tower_features(net: Net, part: str, layer: int | None = None, *, patches_only: bool = False) -> Value:
    """Hidden states [batch, tokens, width] of ``pixel_values``.

    Args:
        part: the encoder.
        layer: as transformers' ``hidden_states`` are numbered, 0 before the first layer and -1 after the last one,
            without the norm that follows; None for the normalized last ones.
        patches_only: whether the first token, which stands for the whole picture, is left out.

    Raises FormatError for a layer that the encoder does not have.
    """
    config, weights = net.config, net.weights
    if layer is not None:
        layers = config.values[f"{part}.layers"]
        kept = layers + 1 + layer if layer < 0 else layer
        if not 0 <= kept <= layers:
            why = f"features of layer {layer} of an image encoder with {layers} layers"
            raise FormatError("E-ARCH-KEY", config.path, why, hint="Correct vision_feature_layer in config.json")
        config = Config({**config.values, f"{part}.layers": kept})
        weights = {name: weights[name] for name in weights if name not in {f"{part}.{end}" for end in FINAL}}
    x = add_part(net.graph, config, weights, part, task=FEATURE_EXTRACTION)["last_hidden_state"]
    return net.Slice(x, [1], [2**62], [1]) if patches_only else x


def number_last_layer(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Number the last layer of the encoder as -1, as files that have no key for the layer imply."""
    if config.layer == config.values[f"{VISION}.layers"]:
        config.values["layer"] = -1


def projected_features(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
    """The graph of an encoder and a linear layer: ``image_features`` [batch, patches, hidden of the text] of
    ``pixel_values``."""
    net = Net(graph, config, weights)
    net.output("image_features", linear(net, tower_features(net, VISION), "projector"))


def take_batches_of_tiles(net: Net) -> None:
    """Let a graph whose input ``pixel_values`` is [tiles, channels, height, width] take [texts, tiles, channels,
    height, width]. Tiles of zeros, which fill up a batch, are left out."""

    def tiles(pixels: Value) -> Value:
        every = net.Reshape(pixels, net.Concat([-1], net.Shape(pixels, start=2), axis=0))
        largest = net.ReduceMax(net.Abs(every), [1, 2, 3], keepdims=0)
        value: Value = net.Compress(every, net.Cast(largest, to=BOOLEAN), axis=0)
        return value

    old = net.graph.values[PIXELS]
    assert old.shape is not None
    net.compute_input(PIXELS, ("texts", "tiles", *old.shape[1:]), tiles)
