"""Templates of products, convolutions and pools, with what follows them, in floats and in eight bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from candle_convert.tests.fuzz.graphs.arithmetic import same
from candle_convert.tests.fuzz.graphs.draw import Draw, Rejected

ACTIVATIONS = ("Relu", "Sigmoid", "Gelu", "HardSwish")


def weight(draw: Draw, shape: tuple[int, ...], terms: int, dtype: Any = None) -> str:
    return draw.const(draw.array(shape, dtype, scale=max(terms, 1) ** -0.5))


def finished(draw: Draw, y: str) -> str:
    """What follows a product: some of bias, residual, activation."""
    if draw.chance(0.5):
        bias = draw.const(draw.array(draw.shape(y)[-1:] if draw.chance(0.8) else (), draw.dtype(y)))
        y = draw.add("Add", *draw.random.sample((y, bias), 2))
    if draw.chance(0.25):
        y = draw.add("Add", y, same(draw, y))
    if draw.chance(0.35):
        y = draw.add(draw.random.choice(ACTIVATIONS), y)
    return y


def linear(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim > 0)
    terms, columns = draw.shape(x)[-1], draw.length()
    return finished(draw, draw.add("MatMul", x, weight(draw, (terms, columns), terms, draw.dtype(x))))


def shared_linear(draw: Draw) -> None:
    """Several products of one value, as of queries, keys and values."""
    x = draw.pick(lambda array: array.ndim > 1)
    terms, columns = draw.shape(x)[-1], draw.length()
    made = [draw.add("MatMul", x, weight(draw, (terms, columns), terms, draw.dtype(x))) for _ in range(3)]
    made = [finished(draw, y) for y in made]
    if draw.chance(0.5):
        draw.add("Concat", *made, axis=draw.random.choice((-1, 0)))


def matmul(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim > 1)
    batch, terms = draw.shape(x)[:-2], draw.shape(x)[-1]

    def fits(array: np.ndarray) -> bool:
        if array.dtype != draw.dtype(x) or array.ndim < 2 or array.shape[-2] != terms:
            return False
        return all(1 in pair or pair[0] == pair[1] for pair in zip(array.shape[-3::-1], batch[::-1], strict=False))

    return finished(draw, draw.add("MatMul", x, draw.pick(fits)))


def gemm(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim == 2)
    across, other = draw.random.randint(0, 1), draw.random.randint(0, 1)
    rows, terms = draw.shape(x) if not across else draw.shape(x)[::-1]
    columns = draw.length()
    w = weight(draw, (columns, terms) if other else (terms, columns), terms, draw.dtype(x))
    shape = draw.random.choice(((columns,), (1,), (1, columns), (rows, 1), (rows, columns), ()))
    more = [draw.const(draw.array(shape, draw.dtype(x)))] if draw.chance(0.8) else []
    alpha, beta = (draw.random.choice((1.0, 1.0, 0.5)) for _ in range(2))
    return finished(draw, draw.add("Gemm", x, w, *more, transA=across, transB=other, alpha=alpha, beta=beta))


def scores(draw: Draw) -> None:
    """Softmax of scaled products, times values: attention."""
    x = draw.pick(lambda array: array.ndim > 1 and 0 not in array.shape)
    columns = draw.length()
    q, k, v = (
        draw.add("MatMul", x, weight(draw, (draw.shape(x)[-1], columns), draw.shape(x)[-1], draw.dtype(x)))
        for _ in range(3)
    )
    perm = [*range(draw.rank(x))]
    perm[-2:] = perm[:-3:-1]
    product = draw.add("MatMul", q, draw.add("Transpose", k, perm=perm))
    product = draw.add("Mul", product, draw.const(max(columns, 1) ** -0.5, draw.dtype(x)))
    if draw.chance(0.5):
        product = draw.add("Add", product, same(draw, product))
    draw.add("MatMul", draw.add("Softmax", product, axis=-1), v)


def conv(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim in (3, 4) and 0 not in array.shape)
    channels, axes = draw.shape(x)[1], draw.rank(x) - 2
    groups = draw.random.choice([count for count in range(1, channels + 1) if channels % count == 0])
    made = groups * draw.random.choice((1, 1, 2, 3, 8))
    window = [draw.random.choice((1, 1, 2, 3)) for _ in range(axes)]
    terms = channels // groups * int(np.prod(window))
    w = weight(draw, (made, channels // groups, *window), terms, draw.dtype(x))
    bias = [draw.const(draw.array((made,), draw.dtype(x)))] if draw.chance(0.5) else []
    attributes: dict[str, Any] = {"group": groups, "strides": [draw.random.choice((1, 1, 2)) for _ in range(axes)]}
    if draw.chance(0.7):
        attributes["pads"] = [draw.random.choice((0, 1, 1)) for _ in range(2 * axes)]
        attributes["dilations"] = [draw.random.choice((1, 1, 2)) for _ in range(axes)]
    else:
        attributes["auto_pad"] = draw.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    y = draw.add("Conv", x, w, *bias, **attributes)
    if draw.chance(0.3):
        dtype = draw.dtype(y)
        scale, shift, mean = (draw.const(draw.array((made,), dtype)) for _ in range(3))
        spread = draw.const(np.abs(draw.array((made,), dtype)) + 0.5, dtype)
        y = draw.add("BatchNormalization", y, scale, shift, mean, spread)
    if draw.chance(0.3):
        y = draw.add("Add", y, same(draw, y))
    return draw.add(draw.random.choice(ACTIVATIONS), y) if draw.chance(0.4) else y


def padded_conv(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim == 4 and 0 not in array.shape)
    channels = draw.shape(x)[1]
    pads = [0, 0, *(draw.random.choice((0, 1, 2)) for _ in range(2))]
    y = draw.add("Pad", x, draw.ints(*pads, *pads))
    return draw.add("Conv", y, weight(draw, (4, channels, 2, 2), 4 * channels, draw.dtype(x)))


def transposed_conv(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim in (3, 4) and 0 not in array.shape)
    channels, axes = draw.shape(x)[1], draw.rank(x) - 2
    w = weight(draw, (channels, 3, *[2] * axes), 2 * channels, draw.dtype(x))
    return draw.add("ConvTranspose", x, w, strides=[draw.random.choice((1, 2)) for _ in range(axes)])


def pool(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim in (3, 4) and 0 not in array.shape)
    axes = draw.rank(x) - 2
    op = draw.random.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        return draw.add(op, x)
    more = {"count_include_pad": draw.random.randint(0, 1)} if op == "AveragePool" else {}
    window = [draw.random.choice((2, 3)) for _ in range(axes)]
    pads = [draw.random.choice((0, 0, 1)) for _ in range(2 * axes)]
    strides = [draw.random.choice((1, 2)) for _ in range(axes)]
    return draw.add(op, x, kernel_shape=window, pads=pads, strides=strides, **more)


def einsum(draw: Draw) -> str:
    x = draw.pick(lambda array: array.ndim == 3)
    y = draw.pick(lambda array: array.ndim == 3 and array.dtype == draw.dtype(x))
    equation = draw.random.choice(("bij,bjk->bik", "bij,bkj->bik", "bij,bij->b", "aij,bjk->abik", "bij,bij->bji"))
    return draw.add("Einsum", x, y, equation=equation)


def recurrent(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim == 3 and array.dtype == np.float32 and array.size > 0 and array.shape[0] < 9)
    width, size = draw.shape(x)[2], 4
    op, gates = draw.random.choice((("LSTM", 4), ("GRU", 3)))
    w, r = (draw.const(draw.array((1, gates * size, terms), np.float32, 0.3)) for terms in (width, size))
    bias = draw.const(draw.array((1, 2 * gates * size), np.float32, 0.3))
    draw.add(op, x, w, r, bias, hidden_size=size, outputs=2)


def scale(draw: Draw, x: str) -> str:
    return draw.const(max(float(np.abs(draw.values[x]).max(initial=0)), 0.01) / 100, np.float32)


def quantized(draw: Draw, x: str) -> tuple[str, str, str]:
    """A value in eight bits, its scale and its zero point."""
    size = scale(draw, x)
    zero = draw.const(draw.random.choice((128, 117)), np.uint8) if draw.chance(0.7) else draw.const(0, np.int8)
    return draw.add("QuantizeLinear", x, size, zero), size, zero


def singles(array: np.ndarray) -> bool:
    return array.dtype == np.float32 and array.size > 0


def rounded(draw: Draw) -> None:
    """Through eight bits and back."""
    x = draw.pick(singles)
    draw.add("DequantizeLinear", *quantized(draw, x))


def quantized_linear(draw: Draw) -> None:
    """A product of values and weights that are stored in eight bits."""
    x = draw.pick(lambda array: singles(array) and array.ndim > 1)
    terms, columns = draw.shape(x)[-1], draw.length()
    seen = draw.add("DequantizeLinear", *quantized(draw, x))
    each = draw.chance(0.5)
    steps = draw.const(np.full(columns, 0.01) if each else 0.01, np.float32)
    stored = draw.const(draw.numbers.integers(-60, 60, (terms, columns)), np.int8)
    zero = draw.const(np.zeros(columns) if each else 0, np.int8)
    w = draw.add("DequantizeLinear", stored, steps, zero, axis=1)
    y = finished(draw, draw.add("MatMul", seen, w))
    if draw.chance(0.6) and singles(draw.values[y]):
        draw.add("DequantizeLinear", *quantized(draw, y))


def dynamic_linear(draw: Draw) -> None:
    """A product in eight bits, with a scale that is measured."""
    x = draw.pick(lambda array: singles(array) and array.ndim > 1)
    terms, columns = draw.shape(x)[-1], draw.length()
    seen, size, zero = draw.add("DynamicQuantizeLinear", x, outputs=3)
    w = draw.const(draw.numbers.integers(-60, 60, (terms, columns)), np.int8)
    total = draw.add("MatMulInteger", seen, w, zero, draw.const(0, np.int8))
    draw.add("Mul", draw.add("Cast", total, to=1), draw.add("Mul", size, draw.const(0.01, np.float32)))


def integer_product(draw: Draw) -> None:
    """QLinearMatMul."""
    x = draw.pick(lambda array: singles(array) and array.ndim > 1)
    terms, columns = draw.shape(x)[-1], draw.length()
    seen, size, zero = quantized(draw, x)
    if draw.dtype(seen) != np.uint8:
        raise Rejected
    w = draw.const(draw.numbers.integers(100, 150, (terms, columns)), np.uint8)
    other = draw.const(0.02, np.float32), draw.const(128, np.uint8)
    target = draw.const(0.05, np.float32), draw.const(128, np.uint8)
    y = draw.add("QLinearMatMul", seen, size, zero, w, *other, *target)
    if draw.chance(0.7):
        draw.add("DequantizeLinear", y, *target)


def integer_conv(draw: Draw) -> None:
    """QLinearConv."""
    x = draw.pick(lambda array: singles(array) and array.ndim == 4)
    channels, made = draw.shape(x)[1], draw.random.choice((1, 3, 8))
    seen, size, zero = quantized(draw, x)
    if draw.dtype(seen) != np.uint8:
        raise Rejected
    w = draw.const(draw.numbers.integers(-60, 60, (made, channels, 2, 2)), np.int8)
    other = draw.const(np.full(made, 0.01), np.float32), draw.const(np.zeros(made), np.int8)
    target = draw.const(0.05, np.float32), draw.const(128, np.uint8)
    bias = [draw.const(draw.numbers.integers(-500, 500, made), np.int32)] if draw.chance(0.5) else []
    y = draw.add("QLinearConv", seen, size, zero, w, *other, *target, *bias, pads=[1, 0, 1, 0])
    draw.add("DequantizeLinear", y, *target)


PRODUCTS = {
    linear: 8,
    shared_linear: 2,
    matmul: 4,
    gemm: 4,
    scores: 2,
    conv: 5,
    padded_conv: 1,
    transposed_conv: 1,
    pool: 2,
    einsum: 1,
    recurrent: 0.5,
    rounded: 1,
    quantized_linear: 1.5,
    dynamic_linear: 1.5,
    integer_product: 1,
    integer_conv: 1,
}
