"""QLinear operators of the static 8-bit format: float operators between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.ir.op import Example, Op, Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import of_numpy
from ...elementwise.exponential_activation import sigmoid_of
from ...nn.softmax import softmax
from ...pool.pool import average_pool
from ...quantized.quantize_linear import dequantize_linear, quantized
from ...rules.contrib_domain import DOMAIN
from ...rules.shape_rules import broadcast, same_as_input, shape_error
from ...rules.sliding_window import window

ONE_OFF = Tolerance(0, 1)
"""Sums in another order may round to the neighbour."""

F = np.float32


def real(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """The values that integers stand for."""
    assert dequantize_linear.compute is not None
    made: np.ndarray = dequantize_linear.compute(x, scale.reshape(()), None if zero is None else zero.reshape(()))
    return made


def stored(y: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    """Values as integers of the dtype of `like`."""
    with np.errstate(all="ignore"):
        return quantized(
            np.asarray(y / scale.reshape(()), np.float32),
            None if zero is None else zero.reshape(()),
            of_numpy(like.dtype),
        )


def _pair(node: Inference) -> None:
    node.set(0, node.dtype(0), broadcast(node.shape(0), node.shape(3)))


def fixed_part(
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    c_scale: np.ndarray,
    a_zero: np.ndarray,
    b_zero: np.ndarray,
    c_zero: np.ndarray,
) -> np.floating[Any]:
    """What zero points add to a sum, in steps of the result."""
    one, other = (np.float64(F(scale / c_scale)) for scale in (a_scale, b_scale))
    both = F(one * np.float64(a_zero) + np.float64(F(other) * F(b_zero)))
    return F(c_zero) - both


def _binary(name: str, function: Callable[..., np.ndarray]) -> Op:
    examples = [
        case("u8[2,3,4]", F(0.1), np.uint8(20), "u8[3,1]", F(0.2), np.uint8(10), F(0.3), np.uint8(100)),
        case("i8[4]", F(0.1), np.int8(2), "i8[3,4]", F(0.2), np.int8(-10), F(0.3), np.int8(7)),
    ]

    @op(name, DOMAIN, infer=_pair, examples=examples, tolerance=ONE_OFF)
    def made(
        a: np.ndarray,
        a_scale: np.ndarray,
        a_zero: np.ndarray | None,
        b: np.ndarray,
        b_scale: np.ndarray,
        b_zero: np.ndarray | None,
        c_scale: np.ndarray,
        c_zero: np.ndarray | None = None,
    ) -> np.ndarray:
        steps = (a_scale, b_scale, c_scale, a_zero, b_zero, c_zero)
        with np.errstate(all="ignore"):
            return function(a, b, *(np.asarray(0 if item is None else item).reshape(()) for item in steps))

    return made


def _sum(a: np.ndarray, b: np.ndarray, *steps: np.ndarray) -> np.ndarray:
    """Codes times ratios of the steps, each product and sum rounded once, as onnxruntime computes it."""
    one, other = (np.float64(F(step / steps[2])) for step in steps[:2])
    part = (b.astype(np.float64) * other + np.float64(fixed_part(*steps))).astype(F)
    return quantized((a.astype(np.float64) * one + part).astype(F), None, of_numpy(a.dtype))


def _product(a: np.ndarray, b: np.ndarray, *steps: np.ndarray) -> np.ndarray:
    """The exact product of the differences from the zero points, scaled and moved before it is rounded, as onnxruntime
    computes it."""
    a_scale, b_scale, c_scale, a_zero, b_zero, c_zero = steps
    product = (a.astype(F) - F(a_zero)) * (b.astype(F) - F(b_zero))
    return quantized(product * F(a_scale * b_scale / c_scale) + F(c_zero), None, of_numpy(a.dtype))


qlinear_add = _binary("QLinearAdd", _sum)
qlinear_mul = _binary("QLinearMul", _product)

UNARY = [
    case("u8[2,3,4]", F(0.1), np.uint8(20), F(0.05), np.uint8(10)),
    case("i8[3,4]", F(0.2), np.int8(-3), F(0.01), np.int8(-100)),
]


@op("QLinearSigmoid", DOMAIN, infer=same_as_input, examples=UNARY, tolerance=ONE_OFF)
def qlinear_sigmoid(
    x: np.ndarray, x_scale: np.ndarray, x_zero: np.ndarray | None, y_scale: np.ndarray, y_zero: np.ndarray | None = None
) -> np.ndarray:
    """Sigmoid of the real values."""
    return stored(sigmoid_of(real(x, x_scale, x_zero)), y_scale, y_zero, x)


@op(
    "QLinearLeakyRelu",
    DOMAIN,
    infer=same_as_input,
    tolerance=ONE_OFF,
    examples=[*UNARY, Example(UNARY[1].inputs, {"alpha": 0.3})],
)
def qlinear_leaky_relu(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero: np.ndarray | None = None,
    *,
    alpha: float = 0.01,
) -> np.ndarray:
    """LeakyRelu of the real values."""
    wide = real(x, x_scale, x_zero)
    return stored(np.where(wide < 0, F(alpha) * wide, wide), y_scale, y_zero, x)


@op(
    "QLinearSoftmax",
    DOMAIN,
    infer=same_as_input,
    tolerance=ONE_OFF,
    examples=[
        case("u8[2,3,4]", F(0.1), np.uint8(20), F(0.004), np.uint8(0), opset=13),
        case("i8[2,3,4]", F(0.1), np.int8(2), F(0.004), np.int8(-128), opset=13, axis=1),
        case("u8[2,3,4]", F(0.1), np.uint8(20), F(0.004), np.uint8(0), opset=12, axis=1),
    ],
)
def qlinear_softmax(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    *,
    opset: int,
    axis: int = -1,
) -> np.ndarray:
    """Softmax of the real values; below opset 13 over all axes from `axis` on."""
    assert softmax.compute is not None
    wide = real(x, x_scale, x_zero)
    if opset < 13:
        rows = wide.reshape(int(np.prod(x.shape[: axis % max(1, x.ndim)])), -1)
        return stored(softmax.compute(rows, axis=-1).reshape(x.shape), y_scale, y_zero, x)
    return stored(softmax.compute(wide, axis=axis), y_scale, y_zero, x)


def _chosen(node: Inference) -> None:
    node.set(0, node.dtype(1), broadcast(broadcast(node.shape(0), node.shape(1)), node.shape(4)))


@op(
    "QLinearWhere",
    DOMAIN,
    infer=_chosen,
    tolerance=ONE_OFF,
    examples=[
        case("bool[2,1,4]", "u8[2,3,4]", F(0.1), np.uint8(20), "u8[3,1]", F(0.2), np.uint8(10), F(0.15), np.uint8(50))
    ],
)
def qlinear_where(
    condition: np.ndarray,
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    y: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    z_scale: np.ndarray,
    z_zero: np.ndarray,
) -> np.ndarray:
    """The real values of `x` where the condition holds, of `y` elsewhere."""
    return np.where(
        condition,
        stored(real(x, x_scale, x_zero), z_scale, z_zero, x),
        stored(real(y, y_scale, y_zero), z_scale, z_zero, x),
    )


def _concat(node: Inference) -> None:
    shapes = [node.shape(index) for index in range(2, len(node), 3)]
    if not shapes or any(shape is None for shape in shapes):
        node.set(0, node.dtype(1), None)
        return
    known = [shape for shape in shapes if shape is not None]
    axis = node.attributes["axis"] % max(1, len(known[0]))
    lengths = [shape[axis] for shape in known]
    whole = [length for length in lengths if isinstance(length, int)]
    node.set(
        0, node.dtype(1), (*known[0][:axis], sum(whole) if len(whole) == len(lengths) else None, *known[0][axis + 1 :])
    )


@op(
    "QLinearConcat",
    DOMAIN,
    infer=_concat,
    tolerance=ONE_OFF,
    examples=[case(F(0.3), np.uint8(40), "u8[2,3]", F(0.1), np.uint8(20), "u8[2,4]", F(0.2), np.uint8(10), axis=1)],
)
def qlinear_concat(y_scale: np.ndarray, y_zero: np.ndarray, *inputs: np.ndarray, axis: int) -> np.ndarray:
    """The real values one after another along an axis; inputs are tensor, scale and zero point in turn."""
    if not inputs or len(inputs) % 3:
        raise shape_error("QLinearConcat", f"{len(inputs)} inputs are not tensors, scales and zero points")
    parts = [
        stored(real(x, scale, zero), y_scale, y_zero, y_zero)
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    return np.concatenate(parts, axis)


def _global(node: Inference) -> None:
    x = node.shape(0)
    last = node.attributes["channels_last"]
    node.set(
        0,
        node.dtype(0),
        None if x is None else (x[0], *(1,) * (len(x) - 2), x[-1]) if last else (x[0], x[1], *(1,) * (len(x) - 2)),
    )


@op(
    "QLinearGlobalAveragePool",
    DOMAIN,
    infer=_global,
    tolerance=ONE_OFF,
    examples=[
        case("u8[2,3,4,5]", F(0.1), np.uint8(20), F(0.05), np.uint8(10)),
        case("u8[2,4,5,3]", F(0.1), np.uint8(20), F(0.05), np.uint8(10), channels_last=1),
    ],
)
def qlinear_global_average_pool(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    *,
    channels_last: int = 0,
) -> np.ndarray:
    """The average of each channel of the real values."""
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return stored(real(x, x_scale, x_zero).mean(axes, keepdims=True), y_scale, y_zero, x)


def _average(node: Inference) -> None:
    x, last = node.shape(0), node.attributes["channels_last"]
    if x is not None:
        given = node.attributes
        made = window(
            "QLinearAveragePool",
            len(x) - 2,
            given["kernel_shape"],
            given["strides"],
            given["pads"],
            None,
            given["auto_pad"],
            given["ceil_mode"],
        )
        x = (x[0], *made.lengths(x[1:-1]), x[-1]) if last else (*x[:2], *made.lengths(x[2:]))
    node.set(0, node.dtype(0), x)


@op(
    "QLinearAveragePool",
    DOMAIN,
    infer=_average,
    tolerance=ONE_OFF,
    examples=[
        case(
            "u8[2,3,6,5]",
            F(0.1),
            np.uint8(20),
            F(0.05),
            np.uint8(10),
            kernel_shape=[3, 2],
            strides=[2, 1],
            pads=[1, 0, 1, 1],
        ),
        case(
            "u8[2,6,5,3]",
            F(0.1),
            np.uint8(20),
            F(0.05),
            np.uint8(10),
            kernel_shape=[3, 2],
            channels_last=1,
            count_include_pad=1,
            pads=[1, 0, 1, 1],
        ),
    ],
)
def qlinear_average_pool(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero: np.ndarray | None,
    y_scale: np.ndarray,
    y_zero: np.ndarray | None = None,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """AveragePool of the real values."""
    assert average_pool.compute is not None
    wide = real(x, x_scale, x_zero)
    y = average_pool.compute(
        np.moveaxis(wide, -1, 1) if channels_last else wide,
        kernel_shape=kernel_shape,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        pads=pads,
        strides=strides,
    )
    return stored(np.moveaxis(y, 1, -1) if channels_last else y, y_scale, y_zero, x)
