"""Graphs of dual encoders: vectors of texts and pictures in one space, and their similarities (CLIP; Radford et al.
2021, arXiv:2103.00020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .....runtime.contract.architecture import Config, GraphBuilder
from .....runtime.contract.part_graph import add_part
from .....runtime.ir.graph import Graph, Value
from .....runtime.tensor.stored_tensor import StoredTensor
from ....layers.net import Net

TEXT, VISION = "text", "vision"
"""Names of the parts."""
Vector = Callable[[Net, Mapping[str, Value]], Value]
"""Makes the vectors [batch, width] of the outputs of a tower."""
TEXT_MODEL, VISION_MODEL = "text_model", "vision_model"
"""Names of the graphs of towers, as exporters to ONNX have them."""
ZERO_SHOT = "zero-shot-image-classification"
"""Hugging Face's name of the task."""
MASK = "attention_mask"
EMBEDS = {TEXT: "text_embeds", VISION: "image_embeds"}


def output(*names: str) -> Vector:
    """The first output of these names that a tower has."""
    return lambda net, outputs: next(outputs[name] for name in names if name in outputs)


def see_padding(net: Net) -> None:
    """Leave the mask out of a graph: every token is seen, those of padding too."""

    def ones(mask: Value) -> Value:
        value: Value = net.Expand([1], net.Shape(net.graph.values["input_ids"]))
        return value

    if MASK in net.graph.values:
        net.compute_input(MASK, None, ones)


def similarities(text: Vector, image: Vector, *, masked: bool = True) -> GraphBuilder:
    """The graph of both towers. Outputs ``logits_per_image`` [images, texts], ``logits_per_text``, and ``text_embeds``
    and ``image_embeds`` of length 1; the logits are cosines times exp(`logit_scale`), plus `logit_bias` if the model
    has it. Exported graphs of models that are not `masked` see padding, as transformers' processor of these passes no
    mask."""

    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        net = Net(graph, config, weights)
        towers = {name: add_part(graph, config, weights, name, fixed=fixed) for name in (TEXT, VISION)}
        texts, images = (
            net.LpNormalization(vector(net, towers[name]), axis=-1, p=2)
            for name, vector in ((TEXT, text), (VISION, image))
        )
        logits = net.MatMul(net.Mul(images, net.Exp(net.vector("logit_scale"))), net.Transpose(texts, perm=[1, 0]))
        if net.has("logit_bias"):
            logits = net.Add(logits, net.vector("logit_bias"))
        net.output("logits_per_image", logits)
        net.output("logits_per_text", net.Transpose(logits, perm=[1, 0]))
        net.output(EMBEDS[TEXT], texts)
        net.output(EMBEDS[VISION], images)
        if not masked and not fixed:
            see_padding(net)

    return graph


def tower(name: str, vector: Vector, *, masked: bool = True) -> GraphBuilder:
    """The graph of one tower, with its outputs and the vectors that are not among them as `EMBEDS` names them; `masked`
    as of `similarities`."""

    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        net = Net(graph, config, weights)
        outputs = add_part(graph, config, weights, name, fixed=fixed)
        vectors = vector(net, outputs)
        for own, value in outputs.items():
            net.output(own, value)
        if vectors not in outputs.values():
            net.output(EMBEDS[name], vectors)
        if not masked and not fixed:
            see_padding(net)

    return graph
