"""Dropout: elements set to zero at random in training; otherwise the identity (Srivastava et al., 2014)."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.call import Call
from ...runtime.ir.graph import Node, Value
from ...runtime.ir.op import case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BOOL
from ..rules.precision import widened
from ..rules.shape_rules import model_error
from .bit_generator import stream


def infer_dropout(node: Inference) -> None:
    """As the input, and a bool mask of its shape."""
    node.set(0, node.dtype(0), node.shape(0))
    node.set(1, BOOL, node.shape(0))


TRAINING = np.array(True)


@op(
    "Dropout",
    since=22,
    types="f8+float f8+float bool -> 2",
    infer=infer_dropout,
    random=True,
    examples=[
        case("f32[2,3]"),
        case("f32[2,3]", np.float32(0.7), outputs=2),
        case("f32[4,5]", np.float32(0.3), TRAINING, seed=7, outputs=2),
        case("f32[4,5]", np.float32(0.5), TRAINING, seed=7),
        case("f32[0,3]", np.float32(0.3), TRAINING, seed=7, outputs=2),
    ],
)
@widened
def dropout(
    x: np.ndarray,
    ratio: np.ndarray | None = None,
    training_mode: np.ndarray | None = None,
    *,
    seed: int | None = None,
    call: Call,
) -> tuple[np.ndarray, np.ndarray | None]:
    """`x` and where it was kept; in training each element is dropped with probability `ratio` (0.5), the others are
    scaled by 1 / (1 - ratio)."""
    chance = 0.5 if ratio is None else float(ratio.reshape(()))
    wants_mask = len(call.used_outputs) > 1 and call.used_outputs[1]
    if training_mode is None or not training_mode.item() or chance == 0:
        return x, np.ones(x.shape, bool) if wants_mask else None
    if not 0 <= chance < 1:
        raise model_error("Dropout drops a share of its input", expected="0 up to 1", found=chance)
    kept = np.asarray(stream(seed).uniform(0, 1, x.shape)) >= chance
    return (kept * x * (1 / (1 - chance))).astype(x.dtype), kept


@upgrade(dropout, below=7)
def trained_unless_told(node: Node, build: Builder) -> None:
    """Before opset 7 a node trained unless it said that it is a test."""
    node.attributes.pop("consumed_inputs", None)
    if not node.attributes.pop("is_test", 0):
        node.inputs += [build.constant(node.attributes.get("ratio", 0.5), "float32"), build.constant(1, "bool")]


@upgrade(dropout, below=10)
def mask_was_a_number(node: Node, build: Builder) -> None:
    """Before opset 10 the mask had the input's dtype."""
    node.attributes.pop("ratio", None)
    if len(node.outputs) > 1 and node.outputs[1].name:
        output, mask = node.outputs
        node.outputs = [output, Value(build.name("mask"))]
        build.keep(node)
        build.add("CastLike", [node.outputs[1], node.inputs[0]], outputs=[mask])


@upgrade(dropout, below=12)
def ratio_was_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 12 the ratio was an attribute, which only training looks at."""
    node.attributes.pop("ratio", None)
