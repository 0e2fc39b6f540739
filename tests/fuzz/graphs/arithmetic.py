"""Templates of element-wise nodes, reductions, scans and norms, alone and as exporters compose them."""

from __future__ import annotations

import numpy as np
from candle_convert.tests.fuzz.graphs.draw import Draw, Rejected

UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "LeakyRelu", "HardSigmoid", "HardSwish", "Gelu", "Floor", "Exp"),
)
BINARY = ("Add", "Add", "Add", "Sub", "Sub", "Mul", "Mul", "Min", "Max")
REDUCTIONS = ("Sum", "Mean", "Mean", "Max", "L2", "LogSumExp")


def same(draw: Draw, x: str) -> str:
    """A value, or a constant, that broadcasts to another."""
    shape, dtype = draw.shape(x), draw.dtype(x)

    def fits(array: np.ndarray) -> bool:
        return (
            array.dtype == dtype
            and array.ndim <= len(shape)
            and all(a in (1, b) for a, b in zip(array.shape[::-1], shape[::-1], strict=False))
        )

    if draw.chance(0.6):
        return draw.pick(fits, dtype.kind)
    dims = [length if draw.chance(0.6) else 1 for length in shape][draw.random.randint(0, len(shape)) :]
    return draw.const(draw.array(dims, dtype))


def unary(draw: Draw) -> str:
    return draw.add(draw.random.choice(UNARY), draw.pick())


def binary(draw: Draw) -> str:
    x = draw.pick()
    pair = [x, same(draw, x)]
    if draw.chance(0.5):
        pair.reverse()
    return draw.add(draw.random.choice(BINARY), *pair)


def outer(draw: Draw) -> str:
    """Both sides broadcast."""
    x = draw.pick(lambda array: array.ndim in (1, 2) and array.size < 100)
    y = draw.pick(lambda array: array.ndim in (1, 2) and array.size < 100 and array.dtype == draw.dtype(x))
    return draw.add("Mul", draw.add("Unsqueeze", x, draw.ints(-1)), draw.add("Unsqueeze", y, draw.ints(0)))


def divided(draw: Draw) -> str:
    x = draw.pick()
    return draw.add("Div", x, draw.const(draw.random.choice((2, 3, 0.5, -4)), draw.dtype(x)))


def scaled(draw: Draw) -> str:
    """A constant times a value, plus a constant."""
    x = draw.pick()
    y = draw.add("Mul", x, draw.const(draw.random.choice((0.5, 0.125, -1, 2)), draw.dtype(x)))
    return draw.add("Add", y, draw.const(draw.random.choice((1, -0.5)), draw.dtype(x)))


def power(draw: Draw) -> str:
    x = draw.pick()
    if draw.chance(0.5):
        return draw.add("Pow", x, draw.const(draw.random.choice((2, 3)), draw.dtype(x)))
    return draw.add("Sqrt", draw.add("Abs", x))


def clip(draw: Draw) -> str:
    x = draw.pick()
    low, high = (
        draw.const(number, draw.dtype(x)) for number in (draw.random.choice((0, -1)), draw.random.choice((6, 1)))
    )
    return draw.add("Clip", x, draw.random.choice((low, "")), high)


def chosen(draw: Draw) -> str:
    x = draw.pick()
    y = same(draw, x)
    test = draw.add(draw.random.choice(("Greater", "Less", "GreaterOrEqual", "Equal")), x, y)
    if draw.chance(0.3):
        test = draw.add("Not", test)
    return draw.add("Where", test, x, draw.random.choice((y, same(draw, x))))


def variadic(draw: Draw) -> str:
    x = draw.pick()
    op = draw.random.choice(("Sum", "Mean", "Max", "Min"))
    return draw.add(op, x, *(same(draw, x) for _ in range(draw.random.randint(0, 2))))


def integers(draw: Draw) -> None:
    """Integer arithmetic."""
    x = draw.pick(lambda array: array.dtype.name in ("int32", "int64"), "i")
    op = draw.random.choice(("Add", "Sub", "Mul", "Min", "Max", "Mod", "Div", "Equal"))
    if op in ("Mod", "Div"):
        draw.add(op, x, draw.const(draw.random.choice((2, 3, 5)), draw.dtype(x)))
    else:
        draw.add(op, x, same(draw, x))


def cast(draw: Draw) -> None:
    x = draw.pick(lambda array: array.dtype.name not in ("uint8", "int8"), "fib")
    kind = draw.dtype(x).kind
    draw.add("Cast", x, to=draw.random.choice((6, 7, 9) if kind == "f" else (1, 7)))


def widened(draw: Draw) -> None:
    """Through another float and back."""
    x = draw.pick()
    there, back = (1, 10) if draw.dtype(x) == np.float16 else (10, 1)
    draw.add("Cast", draw.add("Relu", draw.add("Cast", x, to=there)), to=back)


def swish(draw: Draw) -> str:
    x = draw.pick()
    return draw.add("Mul", x, draw.add("Sigmoid", x))


def gelu(draw: Draw) -> str:
    x = draw.pick()
    number = lambda value: draw.const(value, draw.dtype(x))  # noqa: E731
    if draw.chance(0.5):
        erf = draw.add("Erf", draw.add("Div", x, number(np.sqrt(2))))
        return draw.add("Mul", draw.add("Mul", x, draw.add("Add", erf, number(1))), number(0.5))
    cubed = draw.add("Mul", draw.add("Pow", x, number(3)), number(0.044715))
    inner = draw.add("Mul", draw.add("Add", x, cubed), number(np.sqrt(2 / np.pi)))
    return draw.add("Mul", draw.add("Mul", x, number(0.5)), draw.add("Add", draw.add("Tanh", inner), number(1)))


def reduction(draw: Draw) -> str:
    x = draw.pick(lambda array: array.size > 0)
    rank = draw.rank(x)
    axes = draw.random.sample(range(-rank, 0), draw.random.randint(1, rank)) if rank and draw.chance(0.85) else []
    given = [draw.ints(*axes)] if axes else []
    op = f"Reduce{draw.random.choice(REDUCTIONS)}"
    return draw.add(op, x, *given, keepdims=draw.random.randint(0, 1))


def places(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0 and array.size > 0)
    op = draw.random.choice(("ArgMax", "ArgMin"))
    draw.add(op, x, axis=draw.axis(x), keepdims=draw.random.randint(0, 1))


def top(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0 and array.size > 0)
    axis = draw.axis(x)
    count = draw.random.randint(1, draw.shape(x)[axis])
    draw.add("TopK", x, draw.ints(count), axis=axis, largest=draw.random.randint(0, 1), outputs=2)


def cumulative(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim > 0)
    axis = draw.const(draw.axis(x), np.int64)
    return draw.add("CumSum", x, axis, exclusive=draw.random.randint(0, 1), reverse=draw.random.randint(0, 1))


def softmax(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim > 0)
    return draw.add(draw.random.choice(("Softmax", "Softmax", "LogSoftmax")), x, axis=draw.axis(x))


def layer_norm(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim > 0)
    axis = draw.random.randint(-min(draw.rank(x), 2), -1)
    shape = draw.shape(x)[axis:]
    more = [draw.const(draw.array(shape, draw.dtype(x))) for _ in range(draw.random.randint(1, 2))]
    return draw.add("LayerNormalization", x, *more, axis=axis, epsilon=0.01)


def composed_norm(draw: Draw) -> str:
    """LayerNorm or RMSNorm, as exporters write them."""
    x = draw.pick(lambda array: array.ndim > 0 and array.size > 0)
    dtype, axes = draw.dtype(x), draw.ints(-1)
    away = x
    if draw.chance(0.6):
        away = draw.add("Sub", x, draw.add("ReduceMean", x, axes))
    square = draw.add("Pow", away, draw.const(2, dtype)) if draw.chance(0.6) else draw.add("Mul", away, away)
    mean = draw.add("ReduceMean", square, axes)
    root = draw.add("Sqrt", draw.add("Add", mean, draw.const(0.01, dtype)))
    made = draw.add("Div", away, root)
    made = draw.add("Mul", made, draw.const(draw.array(draw.shape(x)[-1:], dtype)))
    return draw.add("Add", made, draw.const(draw.array(draw.shape(x)[-1:], dtype))) if draw.chance(0.5) else made


def channel_norm(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim in (3, 4) and array.size > 0)
    channels, dtype = draw.shape(x)[1], draw.dtype(x)
    scale, bias, mean = (draw.const(draw.array((channels,), dtype)) for _ in range(3))
    op = draw.random.choice(("BatchNormalization", "InstanceNormalization", "GroupNormalization"))
    if op == "BatchNormalization":
        return draw.add(op, x, scale, bias, mean, draw.const(np.abs(draw.array((channels,), dtype)) + 0.5, dtype))
    if op == "InstanceNormalization":
        return draw.add(op, x, scale, bias, epsilon=0.01)
    groups = [count for count in range(1, channels + 1) if channels % count == 0]
    return draw.add(op, x, scale, bias, num_groups=draw.random.choice(groups), epsilon=0.01)


def resized(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim == 4 and array.size > 0 and array.dtype == np.float32)
    mode = draw.random.choice(("nearest", "linear"))
    scales = [1, 1, *(draw.random.choice((1, 2, 2, 3)) for _ in range(2))]
    more = {"coordinate_transformation_mode": draw.random.choice(("asymmetric", "half_pixel"))}
    more |= {"nearest_mode": "floor"} if mode == "nearest" else {}
    return draw.add("Resize", x, "", draw.const(scales, np.float32), mode=mode, **more)


def zeroed(draw: Draw) -> str:
    """Arithmetic that changes nothing."""
    x = draw.pick()
    op, number = draw.random.choice((("Add", 0), ("Mul", 1), ("Sub", 0), ("Div", 1), ("Pow", 1)))
    shape = [1] * draw.random.randint(0, draw.rank(x) + 1)
    return draw.add(op, x, draw.const(np.full(shape, number), draw.dtype(x)))


def one_hot(draw: Draw) -> None:
    x = draw.pick(lambda array: array.dtype == np.int64 and array.size > 0 and array.ndim < 3, "i")
    if draw.values[x].min() < -8:
        raise Rejected
    draw.add("OneHot", x, draw.const(9, np.int64), draw.const([0, 1], np.float32))


ARITHMETIC = {
    unary: 10,
    binary: 12,
    outer: 1,
    divided: 2,
    scaled: 2,
    power: 2,
    clip: 2,
    chosen: 3,
    variadic: 2,
    integers: 3,
    cast: 2,
    widened: 1,
    swish: 2,
    gelu: 2,
    reduction: 5,
    places: 1,
    top: 1,
    cumulative: 1,
    softmax: 3,
    layer_norm: 2,
    composed_norm: 2,
    channel_norm: 2,
    resized: 1,
    zeroed: 2,
    one_hot: 1,
}
