"""QLinear operators of the static 8-bit format: float operators between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....runtime.base.units import counted
from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Example, Op, Tolerance, case
from ....runtime.ir.shape_inference import Inference
from ....runtime.tensor.dtype import F32, F64
from ...pool.pool import average_pool
from ...quantized.quantize_linear import coded, grid
from ...rules.decomposition import attributes_of, composed, evaluated
from ...rules.expression import Term
from ...rules.shape_rules import along_axis, broadcast, same_as_input, shape_error
from ...rules.sliding_window import window

ONE_OFF = Tolerance(0, 1)
"""Sums in another order may round to the neighbour."""


def dequantized(x: Term, scale: Term, zero: Term | None) -> Term:
    """The values that integers stand for."""
    return x.call("DequantizeLinear", scale, zero)


def requantized(y: Term, scale: Term, zero: Term | None, like: Term) -> Term:
    """Values as integers of the dtype of `like`."""
    return y.call("QuantizeLinear", scale, zero, output_dtype=None if zero is not None else like.dtype.onnx)


real, stored = evaluated("DequantizeLinear", dequantized), evaluated("QuantizeLinear", requantized)
"""Both of arrays."""


def _pair(node: Inference) -> None:
    node.set(0, node.dtype(0), broadcast(node.shape(0), node.shape(3)))


def _binary(name: str, function: Callable[..., Term]) -> Op:
    examples = [
        case(*coded("u8[2,3,4]", 0.1, 20), *coded("u8[3,1]", 0.2, 10), *grid("u8", 0.3, 100)),
        case(*coded("i8[4]", 0.1, 2), *coded("i8[3,4]", 0.2, -10), *grid("i8", 0.3, 7)),
    ]

    @composed(name, MICROSOFT, types="T=byte f32 T T f32 T f32 T", infer=_pair, examples=examples, tolerance=ONE_OFF)
    def made(
        a: Term,
        a_scale: Term,
        a_zero: Term | None,
        b: Term,
        b_scale: Term,
        b_zero: Term | None,
        c_scale: Term,
        c_zero: Term | None = None,
    ) -> Term:
        steps = (a_scale, b_scale, c_scale, a_zero, b_zero, c_zero)
        y = function(a, b, *(a.constant(0, "float32") if item is None else item.scalar.cast(F32) for item in steps))
        return requantized(y, y.constant(1, "float32"), None, a)

    return made


def _fixed(a_scale: Term, b_scale: Term, c_scale: Term, a_zero: Term, b_zero: Term, c_zero: Term) -> Term:
    """The constant term of the sum, from the zero points, in steps of the result."""
    one, other = a_scale / c_scale, b_scale / c_scale
    both = one.cast(F64) * a_zero.cast(F64) + (other * b_zero.cast(F32)).cast(F64)
    return c_zero.cast(F32) - both.cast(F32)


fixed_part = evaluated("QLinearAdd", _fixed)


def _sum(a: Term, b: Term, a_scale: Term, b_scale: Term, c_scale: Term, *zeros: Term) -> Term:
    """Codes times ratios of the steps, each product and sum rounded once, as onnxruntime computes it: f64 holds
    products of two f32 exactly."""
    one, other = ((scale / c_scale).cast(F64) for scale in (a_scale, b_scale))
    part = (b.cast(F64) * other + _fixed(a_scale, b_scale, c_scale, *zeros).cast(F64)).cast(F32)
    return (a.cast(F64) * one + part.cast(F64)).cast(F32)


def _product(
    a: Term, b: Term, a_scale: Term, b_scale: Term, c_scale: Term, a_zero: Term, b_zero: Term, c_zero: Term
) -> Term:
    """The exact product of the differences from the zero points, scaled and moved before it is rounded, as onnxruntime
    computes it."""
    return (a.cast(F32) - a_zero) * (b.cast(F32) - b_zero) * (a_scale * b_scale / c_scale) + c_zero


qlinear_add = _binary("QLinearAdd", _sum)
qlinear_mul = _binary("QLinearMul", _product)

UNARY = [
    case(*coded("u8[2,3,4]", 0.1, 20), *grid("u8", 0.05, 10)),
    case(*coded("i8[3,4]", 0.2, -3), *grid("i8", 0.01, -100)),
]


@composed(
    "QLinearSigmoid", MICROSOFT, types="T=byte f32 T f32 T", infer=same_as_input, examples=UNARY, tolerance=ONE_OFF
)
def qlinear_sigmoid(x: Term, x_scale: Term, x_zero: Term | None, y_scale: Term, y_zero: Term | None = None) -> Term:
    """Sigmoid of the real values."""
    return requantized(dequantized(x, x_scale, x_zero).call("Sigmoid"), y_scale, y_zero, x)


@composed(
    "QLinearLeakyRelu",
    MICROSOFT,
    types="T=byte f32 T f32 T",
    infer=same_as_input,
    tolerance=ONE_OFF,
    examples=[*UNARY, Example(UNARY[1].inputs, {"alpha": 0.3})],
)
def qlinear_leaky_relu(
    x: Term, x_scale: Term, x_zero: Term | None, y_scale: Term, y_zero: Term | None = None, *, alpha: float = 0.01
) -> Term:
    """LeakyRelu of the real values."""
    return requantized(dequantized(x, x_scale, x_zero).call("LeakyRelu", alpha=alpha), y_scale, y_zero, x)


@composed(
    "QLinearSoftmax",
    MICROSOFT,
    types="T=byte f32 T f32 T",
    infer=along_axis,
    tolerance=ONE_OFF,
    examples=[
        case(*coded("u8[2,3,4]", 0.1, 20), *grid("u8", 0.004, 0), opset=13),
        case(*coded("i8[2,3,4]", 0.1, 2), *grid("i8", 0.004, -128), opset=13, axis=1),
        case(*coded("u8[2,3,4]", 0.1, 20), *grid("u8", 0.004, 0), opset=12, axis=1),
    ],
)
def qlinear_softmax(
    x: Term, x_scale: Term, x_zero: Term | None, y_scale: Term, y_zero: Term, *, opset: int, axis: int = -1
) -> Term:
    """Softmax of the real values; below opset 13 over all axes from `axis` on."""
    wide = dequantized(x, x_scale, x_zero)
    if opset < 13:
        y = wide.call("Flatten", axis=axis).call("Softmax", axis=-1).like(wide)
    else:
        y = wide.call("Softmax", axis=axis)
    return requantized(y, y_scale, y_zero, x)


def _chosen(node: Inference) -> None:
    node.set(0, node.dtype(1), broadcast(broadcast(node.shape(0), node.shape(1)), node.shape(4)))


@composed(
    "QLinearWhere",
    MICROSOFT,
    types="bool T=byte f32 T T f32 T f32 T",
    infer=_chosen,
    tolerance=ONE_OFF,
    examples=[case("bool[2,1,4]", *coded("u8[2,3,4]", 0.1, 20), *coded("u8[3,1]", 0.2, 10), *grid("u8", 0.15, 50))],
)
def qlinear_where(
    condition: Term,
    x: Term,
    x_scale: Term,
    x_zero: Term,
    y: Term,
    y_scale: Term,
    y_zero: Term,
    z_scale: Term,
    z_zero: Term,
) -> Term:
    """The real values of `x` where the condition holds, of `y` elsewhere."""
    return requantized(
        condition.call("Where", dequantized(x, x_scale, x_zero), dequantized(y, y_scale, y_zero)), z_scale, z_zero, x
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


@composed(
    "QLinearConcat",
    MICROSOFT,
    types="f32 byte byte+f32**",
    infer=_concat,
    tolerance=ONE_OFF,
    examples=[case(*grid("u8", 0.3, 40), *coded("u8[2,3]", 0.1, 20), *coded("u8[2,4]", 0.2, 10), axis=1)],
)
def qlinear_concat(y_scale: Term, y_zero: Term, *inputs: Term, axis: int) -> Term:
    """The real values one after another along an axis; inputs are tensor, scale and zero point in turn."""
    if not inputs or len(inputs) % 3:
        raise shape_error(
            "QLinearConcat", f"{counted(len(inputs), 'input', verb='is')} not tensors, scales and zero points"
        )
    parts = [
        requantized(dequantized(x, scale, zero), y_scale, y_zero, y_zero)
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    return parts[0].concatenated(*parts[1:], axis=axis)


def _global(node: Inference) -> None:
    x = node.shape(0)
    last = node.attributes["channels_last"]
    node.set(
        0,
        node.dtype(0),
        None if x is None else (x[0], *(1,) * (len(x) - 2), x[-1]) if last else (x[0], x[1], *(1,) * (len(x) - 2)),
    )


@composed(
    "QLinearGlobalAveragePool",
    MICROSOFT,
    types="T=byte f32 T f32 T",
    infer=_global,
    tolerance=ONE_OFF,
    examples=[
        case(*coded("u8[2,3,4,5]", 0.1, 20), *grid("u8", 0.05, 10)),
        case(*coded("u8[2,4,5,3]", 0.1, 20), *grid("u8", 0.05, 10), channels_last=1),
    ],
)
def qlinear_global_average_pool(
    x: Term, x_scale: Term, x_zero: Term, y_scale: Term, y_zero: Term, *, channels_last: int = 0
) -> Term:
    """The average of each channel of the real values."""
    wide = dequantized(x, x_scale, x_zero)
    y = (wide.channels_first() if channels_last else wide).call("GlobalAveragePool")
    return requantized(y.channels_last() if channels_last else y, y_scale, y_zero, x)


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


@composed(
    "QLinearAveragePool",
    MICROSOFT,
    types="T=byte f32 T f32 T",
    infer=_average,
    tolerance=ONE_OFF,
    examples=[
        case(
            *coded("u8[2,3,6,5]", 0.1, 20),
            *grid("u8", 0.05, 10),
            kernel_shape=[3, 2],
            strides=[2, 1],
            pads=[1, 0, 1, 1],
        ),
        case(
            *coded("u8[2,6,5,3]", 0.1, 20),
            *grid("u8", 0.05, 10),
            kernel_shape=[3, 2],
            channels_last=1,
            count_include_pad=1,
            pads=[1, 0, 1, 1],
        ),
    ],
)
@attributes_of(average_pool, "dilations")
def qlinear_average_pool(
    x: Term,
    x_scale: Term,
    x_zero: Term | None,
    y_scale: Term,
    y_zero: Term | None = None,
    *,
    channels_last: int = 0,
    **geometry: Any,
) -> Term:
    """AveragePool of the real values."""
    wide = dequantized(x, x_scale, x_zero)
    y = (wide.channels_first() if channels_last else wide).call("AveragePool", **geometry)
    return requantized(y.channels_last() if channels_last else y, y_scale, y_zero, x)
