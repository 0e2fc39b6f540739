"""Templates of groups of nodes that passes look for, and of their neighbours that only look like them."""

from __future__ import annotations

from typing import Any

import numpy as np
from candle_convert.tests.fuzz.graphs.arithmetic import same
from candle_convert.tests.fuzz.graphs.draw import Draw, Rejected
from candle_convert.tests.fuzz.graphs.products import ACTIVATIONS, quantized, singles, weight


def _by_channel(draw: Draw, y: str) -> str:
    """A constant with one element for each channel, or one that only broadcasts."""
    shape = draw.shape(y)
    channels, rest = shape[1], len(shape) - 2
    kinds: tuple[tuple[int, ...], ...] = (
        *((channels, *[1] * rest),) * 3,
        *((1, channels, *[1] * rest),) * 3,
        *((), (1,), shape[-1:], (channels, *shape[2:]), (shape[0], channels, *[1] * rest), (1, 1, *shape[2:])),
    )
    number = draw.array(draw.random.choice(kinds), draw.dtype(y))
    return draw.const(np.sign(number) * np.maximum(np.abs(number), 0.25), draw.dtype(y))


def conv_and_constants(draw: Draw) -> str:
    """Constants that belong into a convolution."""
    x = draw.pick(lambda array: array.ndim in (3, 4) and 0 not in array.shape)
    axes, channels, dtype = draw.rank(x) - 2, draw.shape(x)[1], draw.dtype(x)
    depthwise = draw.chance(0.3)
    made = channels if depthwise else draw.random.choice((1, 2, 3, 16))
    terms = 1 if depthwise else channels
    w = weight(draw, (made, terms, *[draw.random.choice((1, 2)) for _ in range(axes)]), 2 * terms, dtype)
    bias = [draw.const(draw.array((made,), dtype))] if draw.chance(0.5) else []
    y = draw.add("Conv", x, w, *bias, group=channels if depthwise else 1)
    for _ in range(draw.random.randint(1, 3)):
        op = draw.random.choice(("Add", "Sub", "Mul", "Div", *ACTIVATIONS[:2]))
        if op in ACTIVATIONS:
            y = draw.add(op, y)
            continue
        pair = [y, _by_channel(draw, y)]
        if op != "Div" and draw.chance(0.3):
            pair.reverse()
        y = draw.add(op, *pair)
    return y


def conv_chain(draw: Draw) -> None:
    """Convolutions of many channels, joined, added, pooled: what is kept in blocks of 16 channels."""
    x = draw.pick(lambda array: array.ndim == 4 and 0 not in array.shape)
    made = [x]
    for _ in range(draw.random.randint(2, 5)):
        x = draw.random.choice(made[-2:])
        channels, dtype = draw.shape(x)[1], draw.dtype(x)
        how = draw.random.choice(("conv", "conv", "conv", "depthwise", "concat", "add", "pool", "act", "mean"))
        if how == "conv":
            count = draw.random.choice((8, 16, 16, 24, 32))
            w = weight(draw, (count, channels, 3, 3), 9 * channels, dtype)
            made.append(draw.add("Conv", x, w, draw.const(draw.array((count,), dtype)), pads=[1] * 4))
        elif how == "depthwise":
            w = weight(draw, (channels, 1, 3, 3), 9, dtype)
            made.append(draw.add("Conv", x, w, pads=[1] * 4, group=channels))
        elif how == "concat":
            fits = [name for name in made if draw.shape(name)[2:] == draw.shape(x)[2:]]
            made.append(draw.add("Concat", *draw.random.choices(fits, k=2), axis=1))
        elif how == "add":
            made.append(draw.add("Add", x, same(draw, x)))
        elif how == "pool":
            op = draw.random.choice(("MaxPool", "AveragePool"))
            made.append(
                draw.add(op, x, kernel_shape=[2, 2], strides=[draw.random.choice((1, 2))] * 2, pads=[0, 0, 1, 1])
            )
        elif how == "mean":
            made.append(draw.add("GlobalAveragePool", x))
        else:
            made.append(draw.add(draw.random.choice(ACTIVATIONS), x))


def padded(draw: Draw) -> str:
    """Pads that belong into a convolution or pool, or not."""
    x = draw.pick(lambda array: array.ndim == 4 and 0 not in array.shape)
    dtype = draw.dtype(x)
    pads = [0, 0, *(draw.random.choice((0, 1, 2)) for _ in range(2))] * 2
    if draw.chance(0.2):
        pads[draw.random.choice((0, 1, 4, 5))] = 1
    number = (
        [draw.const(draw.random.choice((0, 0, 1, -1e3 if draw.chance(0.2) else 0.5)), dtype)]
        if draw.chance(0.6)
        else []
    )
    y = draw.add("Pad", x, draw.ints(*pads), *number)
    how = draw.random.choice(("Conv", "MaxPool", "AveragePool"))
    if how == "Conv":
        return draw.add(
            "Conv", y, weight(draw, (2, draw.shape(y)[1], 2, 2), 8, dtype), pads=[draw.random.randint(0, 1)] * 4
        )
    more = {"count_include_pad": draw.random.randint(0, 1)} if how == "AveragePool" else {}
    return draw.add(how, y, kernel_shape=[2, 2], pads=[draw.random.randint(0, 1)] * 4, **more)


def sum_of_parts(draw: Draw) -> str:
    """Parts between zeros, added."""
    x = draw.pick(lambda array: array.ndim > 0 and array.shape[-1] > 1)
    length = draw.shape(x)[-1]
    cut, shift = draw.random.randint(1, length - 1), draw.random.choice((0, 0, 0, 1))
    one, other = draw.add("Split", x, draw.ints(cut, length - cut), axis=-1, outputs=2)
    zeros = [0] * (draw.rank(x) - 1)
    one = draw.add("Pad", draw.add("Tanh", one), draw.ints(*zeros, 0, *zeros, length - cut))
    other = draw.add("Pad", draw.add("Neg", other), draw.ints(*zeros, cut - shift, *zeros, shift))
    return draw.add("Add", one, other)


def sum_of_products(draw: Draw) -> str:
    """The sum of several products, transposed at times."""
    x = draw.pick(lambda array: array.ndim == 2)
    fits = [draw.pick(lambda array: array.shape == draw.shape(x) and array.dtype == draw.dtype(x)) for _ in range(5)]
    total = None
    for one, other in zip(fits, [x, *fits], strict=False):
        product = draw.add("Gemm", one, other, transA=1)
        total = product if total is None else draw.add("Add", total, product)
    assert total is not None
    return total


def rotary(draw: Draw) -> str:
    """Rotary embedding of halves or of neighbours."""
    x = draw.pick(lambda array: array.ndim > 1 and array.shape[-1] % 2 == 0 and array.shape[-1] > 0)
    dtype, width = draw.dtype(x), draw.shape(x)[-1]
    rows = draw.shape(x)[-2] if draw.chance(0.7) else 1
    cos, sin = (draw.const(draw.array((rows, width), dtype)) for _ in range(2))
    far = (1 << 62) + 1
    if draw.chance(0.6):
        low = draw.add("Slice", x, draw.ints(0), draw.ints(width // 2), draw.ints(-1))
        high = draw.add("Slice", x, draw.ints(width // 2), draw.ints(far), draw.ints(-1))
        swapped = draw.add(
            "Concat", *draw.random.choice(((draw.add("Neg", high), low), (high, draw.add("Neg", low)))), axis=-1
        )
    else:
        even = draw.add("Slice", x, draw.ints(0), draw.ints(far), draw.ints(-1), draw.ints(2))
        odd = draw.add("Slice", x, draw.ints(1), draw.ints(far), draw.ints(-1), draw.ints(2))
        pair = [draw.add("Unsqueeze", draw.add("Neg", odd), draw.ints(-1)), draw.add("Unsqueeze", even, draw.ints(-1))]
        swapped = draw.add("Reshape", draw.add("Concat", *pair, axis=-1), draw.ints(*draw.shape(x)))
    return draw.add("Add", draw.add("Mul", x, cos), draw.add("Mul", swapped, sin))


def heads(draw: Draw) -> str:
    """Attention of heads, some of which share keys."""
    x = draw.pick(lambda array: array.ndim == 3 and 0 not in array.shape)
    batch, rows, terms = draw.shape(x)
    dtype, size = draw.dtype(x), draw.random.choice((1, 2, 4))
    shared, times = draw.random.choice(((1, 1), (2, 1), (1, 2), (2, 2))), draw.random.choice((1.0, 0.5))

    def project(count: int) -> str:
        y = draw.add("MatMul", x, weight(draw, (terms, count * size), terms, dtype))
        return draw.add("Transpose", draw.add("Reshape", y, draw.ints(0, 0, count, size)), perm=[0, 2, 1, 3])

    keys, group = shared
    q, k, v = project(keys * group), project(keys), project(keys)
    if group > 1:
        k, v = (_repeated(draw, item, group) for item in (k, v))
    k = draw.add("Transpose", k, perm=[0, 1, 3, 2])
    product = draw.add("Mul", draw.add("MatMul", q, k), draw.const(times, dtype))
    if draw.chance(0.6):
        shape = draw.random.choice(((rows, rows), (1, 1, rows, rows), (batch, 1, 1, rows), (rows,), (1,)))
        product = draw.add("Add", product, draw.const(draw.array(shape, dtype)))
    mixed = draw.add("Transpose", draw.add("MatMul", draw.add("Softmax", product, axis=-1), v), perm=[0, 2, 1, 3])
    return draw.add("Reshape", mixed, draw.ints(0, 0, -1))


def _repeated(draw: Draw, x: str, group: int) -> str:
    batch, count, rows, size = draw.shape(x)
    wide = draw.add("Expand", draw.add("Unsqueeze", x, draw.ints(2)), draw.ints(batch, count, group, rows, size))
    return draw.add("Reshape", wide, draw.ints(0, count * group, -1, size))


def group_norm(draw: Draw) -> str:
    """GroupNorm as older exporters write it."""
    x = draw.pick(lambda array: array.ndim in (3, 4) and array.size > 0)
    channels, dtype = draw.shape(x)[1], draw.dtype(x)
    groups = draw.random.choice([count for count in range(1, channels + 1) if channels % count == 0])
    folded = draw.add("Reshape", x, draw.ints(0, groups, -1))
    ones, zeros = draw.const(np.ones(groups), dtype), draw.const(np.zeros(groups), dtype)
    normed = draw.add("InstanceNormalization", folded, ones, zeros, epsilon=0.01)
    y = draw.add("Reshape", normed, draw.add("Shape", x))
    return draw.add("Add", draw.add("Mul", y, _by_channel(draw, y)), _by_channel(draw, y))


def last_rows(draw: Draw) -> str:
    """Layers of which some rows are needed."""
    x = draw.pick(lambda array: array.ndim in (2, 3) and array.size > 0)
    y, dtype = x, draw.dtype(x)
    for _ in range(draw.random.randint(1, 3)):
        terms = draw.shape(y)[-1]
        y = draw.add("MatMul", y, weight(draw, (terms, terms), terms, dtype))
        y = draw.add("Add", y, draw.random.choice((same(draw, y), x)))
        if draw.chance(0.5):
            y = draw.add("LayerNormalization", y, draw.const(draw.array((terms,), dtype)), epsilon=0.01)
    axis = draw.random.choice((-2, -2, draw.axis(y)))
    start, stop = draw.random.choice(((-1, 1 << 40), (0, 1), (1, 1 << 40), (0, -1)))
    return draw.add("Slice", y, draw.ints(start), draw.ints(stop), draw.ints(axis))


def half_weights(draw: Draw) -> str:
    """Weights that are stored in f16."""
    x = draw.pick(lambda array: array.ndim > 0 and array.dtype == np.float32)
    terms, columns = draw.shape(x)[-1], draw.length()
    w = draw.add("Cast", weight(draw, (terms, columns), terms, np.float16), to=1)
    return draw.add("MatMul", x, w)


def mish(draw: Draw) -> str:
    x = draw.pick()
    if draw.chance(0.5):
        return draw.add("Mul", x, draw.add("Tanh", draw.add("Softplus", x)))
    six, zero, three = (draw.const(number, draw.dtype(x)) for number in (6, 0, 3))
    y = draw.add("Mul", x, draw.add("Clip", draw.add("Add", x, three), zero, six))
    return draw.add("Div", y, six)


def bytes_between(draw: Draw) -> None:
    """What moves, joins, or computes by tables between eight bits and eight bits."""
    x = draw.pick(singles)
    stored, size, zero = quantized(draw, x)
    for _ in range(draw.random.randint(1, 3)):
        how = draw.random.choice(("act", "add", "concat", "move", "reduce"))
        y = draw.add("DequantizeLinear", stored, size, zero)
        if how == "act":
            y = draw.add(draw.random.choice(("Sigmoid", "Tanh", "Relu", "HardSwish", "LeakyRelu")), y)
        elif how == "add":
            y = draw.add(draw.random.choice(("Add", "Mul")), y, draw.random.choice((y, same(draw, y))))
        elif how == "concat" and draw.rank(y):
            y = draw.add(
                "Concat", y, draw.random.choice((x if draw.shape(x) == draw.shape(y) else y, y)), axis=draw.axis(y)
            )
        elif how == "reduce" and draw.rank(y):
            y = draw.add("ReduceMean", y, draw.ints(-1))
        elif draw.rank(y) > 1:
            y = draw.add("Transpose", y, perm=draw.random.sample(range(draw.rank(y)), draw.rank(y)))
        stored, size, zero = quantized(draw, y)
    draw.add("DequantizeLinear", stored, size, zero)


def quantized_convs(draw: Draw) -> None:
    """Convolutions between eight bits, and their sum."""
    x = draw.pick(lambda array: singles(array) and array.ndim == 4)
    stored, size, zero = quantized(draw, x)
    made = draw.random.choice((1, 3, 16))
    ends = []
    for _ in range(draw.random.randint(1, 2)):
        y = draw.add("DequantizeLinear", stored, size, zero)
        steps = draw.const(np.abs(draw.array((made,), np.float32)) / 100 + 0.001)
        w = draw.const(draw.numbers.integers(-60, 60, (made, draw.shape(x)[1], 2, 2)), np.int8)
        w = draw.add("DequantizeLinear", w, steps, draw.const(np.zeros(made), np.int8), axis=0)
        bias = [draw.const(draw.array((made,), np.float32))] if draw.chance(0.5) else []
        y = draw.add("Conv", y, w, *bias, pads=[1, 0, 0, 1])
        if draw.chance(0.4):
            y = draw.add("Relu", y)
        ends.append(draw.add("DequantizeLinear", *quantized(draw, y)))
    if len(ends) == 2:
        draw.add("DequantizeLinear", *quantized(draw, draw.add("Add", *ends)))


def pairs(draw: Draw) -> None:
    """Two movements of one kind after another."""
    x = draw.pick(lambda array: array.ndim > 1)
    rank = draw.rank(x)
    how = draw.random.choice(("Transpose", "Concat", "Slice", "Reshape", "Unsqueeze", "Pad"))
    y = x
    for _ in range(2):
        if how == "Transpose":
            y = draw.add("Transpose", y, perm=draw.random.sample(range(rank), rank))
            if draw.chance(0.4):
                y = draw.add(draw.random.choice(("Relu", "Neg", "Sigmoid")), y)
        elif how == "Concat":
            y = draw.add("Concat", *draw.random.sample((y, same_shape(draw, y)), 2), axis=draw.random.choice((-1, 0)))
        elif how == "Slice":
            axis = draw.axis(y)
            first = draw.random.randint(0, max(draw.shape(y)[axis] - 1, 0))
            y = draw.add(
                "Slice", y, draw.ints(first), draw.ints(draw.random.choice((1 << 31, first + 2, -1))), draw.ints(axis)
            )
        elif how == "Reshape":
            y = draw.add(
                "Reshape", y, draw.ints(*draw.random.choice(((0, -1), (-1, 1), (-1,), (1, -1, 1), (0, 0, -1))))
            )
        elif how == "Unsqueeze":
            y = draw.add("Unsqueeze", y, draw.ints(draw.random.randint(0, 2)))
        else:
            pads = [draw.random.choice((0, 0, 1)) for _ in range(2 * rank)]
            y = draw.add("Pad", y, draw.ints(*pads))


def same_shape(draw: Draw, x: str) -> str:
    return draw.pick(lambda array: array.shape == draw.shape(x) and array.dtype == draw.dtype(x))


def embedding(draw: Draw) -> str:
    """Rows of a table by ids."""
    ids = draw.pick(lambda array: array.dtype == np.int64 and array.size > 0 and array.ndim < 3, "i")
    if np.abs(draw.values[ids]).max() > 9:
        raise Rejected
    table = draw.const(draw.array((10, draw.length()), np.float32))
    return draw.add("Gather", table, ids)


def joined_products(draw: Draw) -> None:
    """Products, convolutions or sums whose results, seen in other shapes, are joined."""
    x = draw.pick(lambda array: array.ndim > 1 and array.size > 0)
    terms, columns, dtype = draw.shape(x)[-1], draw.length(), draw.dtype(x)
    parts = []
    for _ in range(draw.random.randint(2, 3)):
        y = draw.add("MatMul", x, weight(draw, (terms, columns), terms, dtype))
        if draw.chance(0.6):
            y = draw.add("Add", y, draw.const(draw.array((columns,), dtype)))
        if draw.chance(0.4):
            y = draw.add(draw.random.choice(ACTIVATIONS), y)
        parts.append(y)
    how = draw.random.choice(("Unsqueeze", "Reshape", "Concat"))
    if how == "Unsqueeze":
        at = draw.random.randint(0, draw.rank(x))
        parts = [draw.add("Unsqueeze", part, draw.ints(at)) for part in parts]
    elif how == "Reshape":
        parts = [draw.add("Reshape", part, draw.ints(1, -1)) for part in parts]
        at = draw.random.randint(0, 1)
    else:
        at = draw.random.choice((0, draw.rank(x) - 1))
    if draw.chance(0.3):
        parts.append(draw.random.choice(parts))
    whole = draw.add("Concat", *parts, axis=at)
    if draw.chance(0.4):
        draw.add("Pad", whole, draw.ints(*(draw.random.choice((0, 0, 1)) for _ in range(2 * draw.rank(whole)))))
    elif draw.chance(0.4):
        draw.add("Split", whole, axis=at, num_outputs=2, outputs=2)


PATTERNS: dict[Any, float] = {
    conv_and_constants: 3,
    conv_chain: 2,
    padded: 2,
    sum_of_parts: 1,
    sum_of_products: 0.5,
    rotary: 1,
    heads: 1.5,
    group_norm: 1,
    last_rows: 2,
    half_weights: 1,
    mish: 1,
    bytes_between: 2,
    quantized_convs: 1.5,
    pairs: 5,
    embedding: 1,
    joined_products: 3,
}
