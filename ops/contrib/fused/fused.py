"""FusedMatMul, FusedConv, FusedGemm, NhwcConv and NhwcMaxPool: standard operators with fused transposes, activations
and layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case
from ....runtime.ir.shape_inference import Inference, Shape
from ...conv.conv import conv
from ...linalg.gemm import product as gemm_shape
from ...linalg.matmul import product_shape
from ...pool.pool import max_pool
from ...quantized.conv_integer import conv_shape
from ...recurrent import recurrent
from ...rules.decomposition import attributes_of, composed
from ...rules.expression import Term
from ...rules.sliding_window import window


def activated(x: Term, name: str, parameters: Sequence[float]) -> Term:
    """An activation by its name, with its parameters in order."""
    if not name:
        return x
    if name.lower() == "clip":
        low, high = (*parameters, *(-math.inf, math.inf)[len(parameters) :])
        return x.call("Clip", x.number(low), x.number(high))
    return recurrent.activated(x, name, parameters)


def _order(rank: int, transposed: int, batch: int) -> list[int]:
    """Axes of a stack of matrices: the row axis before the batch where `batch`, the two last ones swapped where
    `transposed`."""
    axes = [*range(1, rank - 1), 0, rank - 1] if batch and rank > 2 else list(range(rank))
    if transposed and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return axes


def _product(node: Inference) -> None:
    def view(shape: Shape | None, transposed: int, batch: int) -> Shape | None:
        return None if shape is None else tuple(shape[axis] for axis in _order(len(shape), transposed, batch))

    left = view(node.shape(0), node.attributes["transA"], node.attributes["transBatchA"])
    right = view(node.shape(1), node.attributes["transB"], node.attributes["transBatchB"])
    node.set(0, node.dtype(0), product_shape(node, left, right))


@composed(
    "FusedMatMul",
    MICROSOFT,
    types="T=float T",
    infer=_product,
    examples=[
        case("f32[2,3,4]", "f32[2,5,4]", transB=1, alpha=0.5),
        case("f32[2,4,3]", "f32[4,5]", transA=1),
        case("f32[3,2,4]", "f32[4,2,5]", transBatchA=1, transBatchB=1),
    ],
)
def fused_matmul(
    a: Term,
    b: Term,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Term:
    """``alpha * a @ b`` of the transposed factors."""
    left = a.transposed(_order(a.axes, transA, transBatchA))
    y = left.call("MatMul", b.transposed(_order(b.axes, transB, transBatchB)))
    return y if alpha == 1 else y * alpha


def _conv(node: Inference) -> None:
    node.set(0, node.dtype(0), conv_shape(node, node.shape(0), node.shape(1)))


@composed(
    "FusedConv",
    MICROSOFT,
    types="T=ieee T T T",
    infer=_conv,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[1,2,5,6]", "f32[4,2,3,3]", "f32[4]", activation="Relu", pads=[1, 1, 1, 1], strides=[2, 1]),
        case("f32[1,2,5,6]", "f32[4,2,3,3]", "f32[4]", activation="LeakyRelu", activation_params=[0.3]),
        case("f32[1,2,5,6]", "f32[4,2,3,3]", "f32[4]", "f32[1,4,3,4]", activation="Relu"),
        case("f32[1,2,5,6]", "f32[4,2,3,3]", activation="Clip", activation_params=[-0.5, 0.7]),
    ],
)
@attributes_of(conv)
def fused_conv(
    x: Term,
    w: Term,
    b: Term | None = None,
    z: Term | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    **geometry: Any,
) -> Term:
    """``activation(Conv(x, w, b) + z)``."""
    y = x.call("Conv", w, b, **geometry)
    return activated(y if z is None else y + z, activation, activation_params or [])


@composed(
    "FusedGemm",
    MICROSOFT,
    types="T=long+ieee T T",
    infer=gemm_shape,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3]", "f32[3,4]", "f32[4]", activation="Relu"),
        case(
            "f32[3,2]",
            "f32[4,3]",
            "f32[2,4]",
            activation="LeakyRelu",
            activation_alpha=0.2,
            transA=1,
            transB=1,
            alpha=0.5,
            beta=2.0,
        ),
    ],
)
def fused_gemm(
    a: Term,
    b: Term,
    c: Term | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Term:
    """``activation(Gemm(a, b, c))``."""
    y = a.call("Gemm", b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = [value for value in (activation_alpha, activation_beta, activation_gamma) if value is not None]
    return activated(y, activation, given)


def _last_first(shape: Shape | None) -> Shape | None:
    return None if shape is None else (shape[0], shape[-1], *shape[1:-1])


def _nhwc_conv(node: Inference) -> None:
    shape = conv_shape(node, _last_first(node.shape(0)), _last_first(node.shape(1)))
    node.set(0, node.dtype(0), None if shape is None else (shape[0], *shape[2:], shape[1]))


@composed(
    "NhwcConv",
    MICROSOFT,
    types="T=ieee T T",
    infer=_nhwc_conv,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[1,5,6,2]", "f32[4,3,2,2]", "f32[4]", pads=[1, 0, 2, 1]),
        case("f32[1,5,6,4]", "f32[4,3,3,2]", group=2),
    ],
)
@attributes_of(conv)
def nhwc_conv(x: Term, w: Term, b: Term | None = None, **geometry: Any) -> Term:
    """Conv of [n, spatial..., channels] with kernels [out, spatial..., channels / group]."""
    return x.channels_first().call("Conv", w.channels_first(), b, **geometry).channels_last()


def _nhwc_pool(node: Inference) -> None:
    x = node.shape(0)
    if x is not None:
        names = ("strides", "pads", "dilations", "auto_pad", "ceil_mode")
        made = window(
            node.node.op.name, len(x) - 2, node.attributes["kernel_shape"], *(node.attributes[name] for name in names)
        )
        x = (x[0], *made.lengths(x[1:-1]), x[-1])
    node.set(0, node.dtype(0), x)


@composed(
    "NhwcMaxPool",
    MICROSOFT,
    types="byte",
    infer=_nhwc_pool,
    examples=[
        case("u8[1,5,6,3]", kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 1]),
        case("i8[2,7,5,2]", kernel_shape=[3, 2], dilations=[2, 1]),
    ],
)
@attributes_of(max_pool, "storage_order")
def nhwc_max_pool(x: Term, **geometry: Any) -> Term:
    """MaxPool of [n, spatial..., channels]."""
    return x.channels_first().call("MaxPool", **geometry).channels_last()
