"""Gradients of element-wise operators."""

from __future__ import annotations

import math

from ...cast import cast
from ...elementwise import (
    arithmetic,
    comparison,
    erf,
    exponential_activation,
    logic,
    piecewise_activation,
    trigonometry,
    unary,
    variadic,
    where,
)
from ...elementwise.exponential_activation import SQRT_2_OVER_PI, SQRT_HALF
from ...quantized import quantize_linear
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated, differentiated_as, elementwise, without_gradient


def _gelu(x: Term, y: Term, g: Term, approximate: str) -> Term:
    if approximate == "tanh":
        bent = (SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x))).call("Tanh")
        return g * (0.5 * (1 + bent) + 0.5 * x * (1 - bent * bent) * (SQRT_2_OVER_PI * (1 + 3 * 0.044715 * (x * x))))
    density = (-0.5 * (x * x)).call("Exp") * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 * (1 + (x * SQRT_HALF).call("Erf")) + x * density)


def _swish(x: Term, y: Term, g: Term, alpha: float) -> Term:
    share = (alpha * x).call("Sigmoid")
    return g * (share + alpha * x * share * (1 - share))


def _mish(x: Term, y: Term, g: Term) -> Term:
    bent = x.call("Softplus").call("Tanh")
    return g * (bent + x * (1 - bent * bent) * x.call("Sigmoid"))


def _hard_sigmoid(x: Term, y: Term, g: Term, alpha: float, beta: float) -> Term:
    inside = alpha * x + beta
    return (inside > 0).call("And", inside < 1).where(alpha * g, 0)


elementwise(
    {
        unary.identity: lambda x, y, g: g,
        unary.neg: lambda x, y, g: -g,
        unary.abs_: lambda x, y, g: g * x.call("Sign"),
        unary.sqrt: lambda x, y, g: g * 0.5 / y,
        unary.reciprocal: lambda x, y, g: -(g * y * y),
        unary.exp: lambda x, y, g: g * y,
        unary.log: lambda x, y, g: g / x,
        erf.erf: lambda x, y, g: g * (-(x * x)).call("Exp") * (2 / math.sqrt(math.pi)),
        trigonometry.sin: lambda x, y, g: g * x.call("Cos"),
        trigonometry.cos: lambda x, y, g: -(g * x.call("Sin")),
        trigonometry.tan: lambda x, y, g: g * (1 + y * y),
        trigonometry.asin: lambda x, y, g: g / (1 - x * x).call("Sqrt"),
        trigonometry.acos: lambda x, y, g: -(g / (1 - x * x).call("Sqrt")),
        trigonometry.atan: lambda x, y, g: g / (1 + x * x),
        trigonometry.sinh: lambda x, y, g: g * x.call("Cosh"),
        trigonometry.cosh: lambda x, y, g: g * x.call("Sinh"),
        trigonometry.tanh: lambda x, y, g: g * (1 - y * y),
        trigonometry.asinh: lambda x, y, g: g / (x * x + 1).call("Sqrt"),
        trigonometry.acosh: lambda x, y, g: g / (x * x - 1).call("Sqrt"),
        trigonometry.atanh: lambda x, y, g: g / (1 - x * x),
        exponential_activation.sigmoid: lambda x, y, g: g * y * (1 - y),
        exponential_activation.hard_sigmoid: _hard_sigmoid,
        exponential_activation.hard_swish: lambda x, y, g: (x < -3).where(0, (x > 3).where(g, g * (x * (1 / 3) + 0.5))),
        exponential_activation.swish: _swish,
        exponential_activation.softplus: lambda x, y, g: g * x.call("Sigmoid"),
        exponential_activation.mish: _mish,
        exponential_activation.gelu: _gelu,
        piecewise_activation.relu: lambda x, y, g: (x > 0).where(g, 0),
        piecewise_activation.leaky_relu: lambda x, y, g, alpha: (x < 0).where(alpha * g, g),
        piecewise_activation.thresholded_relu: lambda x, y, g, alpha: (x > alpha).where(g, 0),
        piecewise_activation.elu: lambda x, y, g, alpha: (x < 0).where(g * (y + alpha), g),
        piecewise_activation.selu: lambda x, y, g, alpha, gamma: (x <= 0).where(g * (y + alpha * gamma), gamma * g),
        piecewise_activation.celu: lambda x, y, g, alpha: (x < 0).where(g * (x * (1 / alpha)).call("Exp"), g),
        piecewise_activation.softsign: lambda x, y, g: g / (1 + x.call("Abs")) / (1 + x.call("Abs")),
        piecewise_activation.shrink: lambda x, y, g, bias, lambd: (x.call("Abs") > lambd).where(g, 0),
    }
)

without_gradient(
    unary.sign,
    unary.floor,
    unary.ceil,
    unary.round_,
    comparison.equal,
    comparison.less,
    comparison.less_or_equal,
    comparison.greater,
    comparison.greater_or_equal,
    comparison.is_nan,
    comparison.is_inf,
    logic.and_,
    logic.or_,
    logic.xor,
    logic.not_,
    cast.bit_cast,
    logic.bitwise_and,
    logic.bitwise_or,
    logic.bitwise_xor,
    logic.bitwise_not,
    logic.bit_shift,
    quantize_linear.quantize_linear,
)


@differentiated(arithmetic.add)
def _add(step: Step) -> list[Term | None]:
    return [step.grad.summed_to(step.input(0)), step.grad.summed_to(step.input(1))]


@differentiated(arithmetic.sub)
def _sub(step: Step) -> list[Term | None]:
    return [step.grad.summed_to(step.input(0)), (-step.grad).summed_to(step.input(1))]


@differentiated(arithmetic.mul)
def _mul(step: Step) -> list[Term | None]:
    a, b, g = step.input(0), step.input(1), step.grad
    return [(g * b).summed_to(a), (g * a).summed_to(b)]


@differentiated(arithmetic.div)
def _div(step: Step) -> list[Term | None]:
    a, b, g = step.input(0), step.input(1), step.grad
    return [(g / b).summed_to(a), (-(g * a / (b * b))).summed_to(b)]


@differentiated(arithmetic.mod)
def _mod(step: Step) -> list[Term | None]:
    a, b, g = step.input(0), step.input(1), step.grad
    return [g.summed_to(a), (-(g * ((a - step.of("Mod", [a, b], **step.attributes)) / b))).summed_to(b)]


@differentiated(arithmetic.pow_)
def _pow(step: Step) -> list[Term | None]:
    x, y, g = step.input(0), step.input(1), step.grad
    power = y.call("CastLike", x)
    by_base = g * power * x.call("Pow", power - 1)
    by_power = g * x.call("Pow", y) * (x > 0).where(x, 1).call("Log")
    return [
        (power.call("Equal", power.number(0))).where(0, by_base).summed_to(x),
        by_power.summed_to(y).call("CastLike", y),
    ]


@differentiated(variadic.sum_)
def _sum(step: Step) -> list[Term | None]:
    return [step.grad.summed_to(x) for x in step.x if x is not None]


@differentiated(variadic.mean)
def _mean(step: Step) -> list[Term | None]:
    return [(step.grad * (1 / len(step.x))).summed_to(x) for x in step.x if x is not None]


@differentiated(variadic.max_, variadic.min_)
def _extreme(step: Step) -> list[Term | None]:
    """Inputs that are equally far out share the gradient."""
    result, g = step.of(step.node.op.name, step.x), step.grad
    hits = [x.call("Equal", result).call("CastLike", g) for x in step.x if x is not None]
    share = g / (hits[0] if len(hits) == 1 else step.of("Sum", hits))
    return [(share * hit).summed_to(x) for hit, x in zip(hits, (x for x in step.x if x is not None), strict=True)]


@differentiated(piecewise_activation.prelu)
def _prelu(step: Step) -> list[Term | None]:
    x, grad, g = step.input(0), step.input(1), step.grad
    return [(x < 0).where(g * grad, g), (x < 0).where(g * x, 0).summed_to(grad)]


@differentiated(piecewise_activation.clip)
def _clip(step: Step) -> list[Term | None]:
    x, low, high = (*step.x, None, None)[:3]
    assert x is not None
    g, by_low, by_high = step.grad, None, None
    if high is not None:
        raised = x if low is None else x.call("Max", low)
        by_high = (raised > high).where(g, 0).call("ReduceSum", keepdims=0).like(high)
        g = (raised > high).where(0, g)
    if low is not None:
        by_low = (x < low).where(g, 0).call("ReduceSum", keepdims=0).like(low)
        g = (x < low).where(0, g)
    return [g, by_low, by_high]


@differentiated(where.where)
def _where(step: Step) -> list[Term | None]:
    condition, x, y, g = step.input(0), step.input(1), step.input(2), step.grad
    return [None, condition.where(g, 0).summed_to(x), condition.where(0, g).summed_to(y)]


@differentiated(cast.cast, cast.cast_like)
def _cast(step: Step) -> list[Term | None]:
    """Casts to integers and booleans lose the gradient."""
    to = step.attributes.get("to")
    whole = to is not None and not cast.element_type(to).is_float
    return [None if whole else step.grad.call("CastLike", step.input(0))]


@differentiated_as(quantize_linear.dequantize_linear)
def _dequantize_linear(step: Step) -> list[Term | None]:
    """Integers less their zero point, which have no gradient, times the scale."""
    x, scale, zero = (*step.x, None)[:3]
    assert x is not None
    assert scale is not None
    options = step.attributes
    kept = {name: options[name] for name in ("axis", "block_size")}
    integers = step.of("DequantizeLinear", [x, scale.filled(1), zero], **kept)
    rank, block = x.axes, options["block_size"]
    axis = options["axis"] % rank if rank else 0
    if block:
        wide = scale.unsqueezed(axis + 1)
        wide = wide.call("Expand", step.integers([*(1,) * (axis + 1), block, *(1,) * (rank - axis - 1)]))
        scale = wide.reshaped(*scale.lengths[:axis], -1, *scale.lengths[axis + 1 :]).part(axis, 0, x.lengths[axis])
    elif scale.rank and scale.lengths != [1]:
        scale = scale.reshaped(-1, *(1,) * (rank - 1 - axis))
    found = integers * scale.scalar if scale.rank and scale.lengths == [1] else integers * scale
    return [found.call("Cast", to=options["output_dtype"]) if options["output_dtype"] else found]
