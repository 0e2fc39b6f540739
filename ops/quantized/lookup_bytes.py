"""LookupBytes: what every byte becomes is an entry of a table; and QLinearConv whose results are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I32
from ..rules.decomposition import attributes_of, composed
from ..rules.expression import Term
from .conv_integer import conv_shape, qlinear_conv
from .quantize_linear import coded, grid

CODES = 256


def _infer(node: Inference) -> None:
    if node.shape(1) not in (None, (CODES,)):
        node.fail(f"its table has shape {node.shape(1)}, not ({CODES},)")
    node.set(0, node.dtype(1), node.shape(0))


def _lower(node: Node, build: Builder) -> None:
    x, table = node.inputs
    # Negative indices count from the end, as the bits of negative bytes do.
    build.add("Gather", [table, build.add("Cast", [x], {"to": I32.onnx})], outputs=node.outputs, name=node.name)


EXAMPLE = np.random.default_rng(3).permutation(CODES).astype(np.uint8)


@op(
    "LookupBytes",
    CANDLE,
    types="byte byte",
    infer=_infer,
    lower=_lower,
    examples=[case("u8[2,3,5]", EXAMPLE), case("i8[70]", EXAMPLE), case("i8[2,150]", EXAMPLE.view(np.int8))],
)
def lookup_bytes(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """``table[x]``: the table has 256 entries, by the bits of a byte."""
    if table.shape != (CODES,):
        raise UsageError("E-OP-SHAPE", None, f"a table of shape {table.shape} does not have {CODES} entries")
    y: np.ndarray = table[x.view(np.uint8)]
    return y


def _convolution(node: Inference) -> None:
    node.set(0, node.dtype(9), conv_shape(node, node.shape(0), node.shape(3)))


@composed(
    "QLinearConvLookup",
    CANDLE,
    types="T=byte f32 T U=byte f32 U f32 byte i32 byte",
    infer=_convolution,
    in_f32=False,
    examples=[
        case(
            *coded("u8[1,6,7,9]", 0.04, 20),
            *coded("i8[6,1,3,3]", 0.03, 0),
            *grid("u8", 0.2, 90),
            np.array([5, -300, 1000, 7, 0, 1], np.int32),
            EXAMPLE,
            group=6,
            pads=[1, 1, 1, 1],
        ),
        case(*coded("u8[2,3,7,5]", 0.04, 20), *coded("i8[40,3,3,2]", 0.03, 0), *grid("u8", 0.2, 90), None, EXAMPLE),
    ],
)
@attributes_of(qlinear_conv)
def qlinear_conv_lookup(
    x: Term,
    x_scale: Term,
    x_zero_point: Term,
    w: Term,
    w_scale: Term,
    w_zero_point: Term,
    y_scale: Term,
    y_zero_point: Term,
    b: Term | None,
    table: Term,
    **geometry: Any,
) -> Term:
    """QLinearConv, then LookupBytes."""
    codes = x.call("QLinearConv", x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b, **geometry)
    return codes.call("LookupBytes", table, domain=CANDLE)
