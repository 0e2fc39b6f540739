"""Reach: how far apart in time an input and an output of a graph of convolutions can be that depend on each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from .....runtime.ir.graph import Graph, Node
from .....runtime.ir.op import Trait
from .....runtime.ir.registry import onnx


def reach_of(graph: Graph, steps: Sequence[int], attends: bool = False) -> int | None:
    """Samples before and after an output on which it depends at most, None for any number.

    Args:
        graph: convolutions are what joins elements of different times, and operators with `Trait.MIXES_POSITIONS`.
        steps: samples of audio that an element of each of the graph's inputs stands for.
        attends: whether the reach of attention is known otherwise.
    """
    names = (value.name for value in graph.inputs)
    seen = {name: (Fraction(step), Fraction(0)) for name, step in zip(names, steps, strict=True)}
    farthest = Fraction(0)
    for node in graph.nodes:
        attention = node.op in (onnx.Attention, onnx.Softmax)
        if Trait.MIXES_POSITIONS in node.op.traits and not (attends and attention):
            return None
        inputs = [seen[value.name] for value in node.inputs if value is not None and value.name in seen]
        if not inputs:
            continue
        scale, reach = min(scale for scale, _ in inputs), max(reach for _, reach in inputs)
        if node.op in (onnx.Conv, onnx.ConvTranspose):
            scale, own = _convolved(node, graph, scale)
            reach += own
        farthest = max(farthest, reach)
        seen |= {value.name: (scale, reach) for value in node.outputs}
    return math.ceil(farthest)


def _convolved(node: Node, graph: Graph, scale: Fraction) -> tuple[Fraction, Fraction]:
    """Samples that an element of the result of a convolution stands for, and the reach of its kernel."""
    weight = node.inputs[1]
    shape = () if weight is None else weight.shape or graph.weights[weight.name].shape
    width = shape[-1] if shape and isinstance(shape[-1], int) else 1
    stride, dilation = ((node.attributes.get(name) or [1])[0] for name in ("strides", "dilations"))
    if node.op is onnx.Conv:
        return scale * stride, (width - 1) * dilation * scale
    return scale / stride, Fraction(-(-width // stride) * scale)
