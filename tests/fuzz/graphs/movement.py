"""Templates of nodes that move elements: views, joins, parts, and shapes that are computed."""

from __future__ import annotations

import numpy as np
from candle_convert.tests.fuzz.graphs.draw import Draw, Rejected

ANY = "fiub"
FAR = (1 << 31) - 1


def concat(draw: Draw) -> None:
    first = draw.pick(lambda array: array.ndim > 0, ANY)
    axis, shape = draw.axis(first), draw.shape(first)
    place = axis % len(shape)

    def fits(array: np.ndarray) -> bool:
        same = array.dtype == draw.dtype(first) and array.ndim == len(shape)
        return same and array.shape[:place] + array.shape[place + 1 :] == shape[:place] + shape[place + 1 :]

    parts = [first, *(draw.pick(fits, ANY) for _ in range(draw.random.randint(0, 3)))]
    if draw.chance(0.3):
        parts.append(draw.const(draw.array(shape, draw.dtype(first))))
    draw.random.shuffle(parts)
    draw.add("Concat", *parts, axis=axis)


def joined_rows(draw: Draw) -> None:
    """Concat of unsqueezed values, as stacks of layers do."""
    first = draw.pick(lambda array: array.ndim < 4)
    same = [
        draw.pick(lambda array: array.shape == draw.shape(first) and array.dtype == draw.dtype(first)) for _ in "ab"
    ]
    axis = draw.random.randint(0, draw.rank(first))
    made = [draw.add("Unsqueeze", name, draw.ints(axis)) for name in (first, *same)]
    draw.add("Concat", *made, axis=axis)


def split(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0 and max(array.shape) > 1, ANY)
    axis = draw.axis(x)
    length = draw.shape(x)[axis]
    if length < 2:
        raise Rejected
    parts = draw.random.randint(2, min(length, 4))
    if draw.chance(0.5):
        draw.add("Split", x, axis=axis, num_outputs=parts, outputs=parts)
        return
    cuts = sorted(draw.random.sample(range(1, length), parts - 1))
    sizes = np.diff([0, *cuts, length])
    draw.add("Split", x, draw.ints(*sizes), axis=axis, outputs=parts)


def slices(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0, ANY)
    rank = draw.rank(x)
    axes = draw.random.sample(range(rank), draw.random.randint(1, min(rank, 2)))
    starts, ends, steps = [], [], []
    for axis in axes:
        length = draw.shape(x)[axis]
        step = draw.random.choice((1, 1, 1, 1, 2, -1, -2))
        first, last = sorted((draw.random.randint(0, length), draw.random.randint(0, length)))
        if step < 0:
            first, last = draw.random.choice(
                ((length - 1, -FAR), (last, first - 1 - length), (FAR, first - 1 - length))
            )
        elif draw.chance(0.3):
            last = FAR
        elif draw.chance(0.3):
            first = first - length
        starts, ends, steps = [*starts, first], [*ends, last], [*steps, step]
    if draw.chance(0.4):
        axes = [axis - rank for axis in axes]
    draw.add("Slice", x, *(draw.ints(*numbers) for numbers in (starts, ends, axes, steps)))


def pad(draw: Draw) -> None:
    x = draw.pick(lambda array: 0 < array.ndim < 5, "f")
    rank = draw.rank(x)
    mode = draw.random.choice(("constant", "constant", "constant", "edge", "reflect"))
    pads = [draw.random.choice((0, 0, 0, 1, 2)) for _ in range(2 * rank)]
    if mode == "constant" and draw.chance(0.15):
        pads[draw.random.randrange(2 * rank)] = -1
    more = [draw.const(draw.array((), draw.dtype(x)))] if mode == "constant" and draw.chance(0.5) else []
    draw.add("Pad", x, draw.ints(*pads), *more, mode=mode)


def unsqueeze(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim < 5, ANY)
    rank = draw.rank(x) + 1
    draw.add("Unsqueeze", x, draw.ints(draw.random.randrange(-rank, rank)))


def squeeze(draw: Draw) -> None:
    x = draw.pick(lambda array: 1 in array.shape, ANY)
    axes = [axis for axis, length in enumerate(draw.shape(x)) if length == 1]
    axis = draw.random.choice(axes)
    draw.add("Squeeze", x, draw.ints(draw.random.choice((axis, axis - draw.rank(x)))))


def reshape(draw: Draw) -> None:
    x = draw.pick(lambda array: True, ANY)
    shape = list(draw.shape(x))
    if shape and draw.chance(0.5):
        at = draw.random.randrange(len(shape))
        length = shape[at]
        factors = [factor for factor in range(1, length + 1) if length % factor == 0]
        factor = draw.random.choice(factors or [1])
        shape[at : at + 1] = [factor, length // factor]
    elif len(shape) > 1:
        at = draw.random.randrange(len(shape) - 1)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        shape = [1, *shape]
    kept = [at for at in range(min(len(shape), draw.rank(x))) if shape[at] == draw.shape(x)[at]]
    if 0 not in shape and shape and draw.chance(0.6):
        shape[draw.random.randrange(len(shape))] = -1
    for at in kept:
        if draw.chance(0.4) and shape[at] != -1:
            shape[at] = 0
    draw.add("Reshape", x, draw.ints(*shape))


def flatten(draw: Draw) -> None:
    x = draw.pick(lambda array: True, ANY)
    draw.add("Flatten", x, axis=draw.random.randint(0, draw.rank(x)))


def transpose(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 1, ANY)
    perm = draw.random.sample(range(draw.rank(x)), draw.rank(x))
    if draw.chance(0.4):
        perm = [*range(draw.rank(x))]
        perm[-2:] = perm[:-3:-1]
    draw.add("Transpose", x, perm=perm)


def gather(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0 and 0 not in array.shape, ANY)
    axis = draw.axis(x)
    length = draw.shape(x)[axis]
    shape = draw.random.choice(((), (1,), (2,), (3, 1), (2, 2)))
    draw.add("Gather", x, draw.const(draw.numbers.integers(-length, length, shape)), axis=axis)


def gather_elements(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0 and 0 not in array.shape)
    axis = draw.axis(x)
    shape = list(draw.shape(x))
    shape[axis] = draw.random.randint(1, 3)
    draw.add("GatherElements", x, draw.const(draw.numbers.integers(0, draw.shape(x)[axis], shape)), axis=axis)


def scatter(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 0 and 0 not in array.shape)
    length = draw.shape(x)[0]
    count = draw.random.randint(1, length)
    places = np.array(draw.random.sample(range(length), count), np.int64)[:, None]
    shape = (count, *draw.shape(x)[1:])
    fitting = lambda array: array.shape == shape and array.dtype == draw.dtype(x)  # noqa: E731
    updates = (
        draw.pick(fitting) if any(map(fitting, draw.values.values())) else draw.const(draw.array(shape, draw.dtype(x)))
    )
    draw.add("ScatterND", x, draw.const(places), updates, reduction=draw.random.choice(("none", "none", "add")))


def expand(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim < 4, ANY)
    shape = [draw.length() if length == 1 else draw.random.choice((length, 1)) for length in draw.shape(x)]
    if draw.chance(0.4):
        shape = [draw.length(), *shape]
    draw.add("Expand", x, draw.ints(*shape))


def tile(draw: Draw) -> None:
    x = draw.pick(lambda array: 0 < array.ndim < 5, "f")
    draw.add("Tile", x, draw.ints(*(draw.random.choice((1, 1, 2, 3)) for _ in draw.shape(x))))


def identity(draw: Draw) -> None:
    draw.add("Identity", draw.pick(lambda array: True, ANY))


def blocks(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim == 4 and 0 not in array.shape)
    if draw.chance(0.5):
        draw.add("DepthToSpace", x, blocksize=2, mode=draw.random.choice(("DCR", "CRD")))
    else:
        draw.add("SpaceToDepth", x, blocksize=draw.random.choice((1, 2)))


def trilu(draw: Draw) -> None:
    x = draw.pick(lambda array: array.ndim > 1)
    draw.add("Trilu", x, draw.const(draw.random.randint(-1, 1), np.int64), upper=draw.random.randint(0, 1))


def computed_reshape(draw: Draw) -> None:
    """A shape made of another value's, as exporters write it."""
    x = draw.pick(lambda array: array.ndim > 1, ANY)
    shape = draw.add("Shape", x)
    first = draw.add("Gather", shape, draw.const(0, np.int64), axis=0)
    start = draw.add("Unsqueeze", first, draw.ints(0))
    wanted = draw.add("Concat", start, draw.ints(*draw.random.choice(((-1,), (1, -1), (-1, 1)))), axis=0)
    draw.add("Reshape", x, wanted)


def computed_slice(draw: Draw) -> None:
    """Half of an axis whose length is computed."""
    x = draw.pick(lambda array: array.ndim > 0 and array.shape[-1] > 1)
    length = draw.add("Gather", draw.add("Shape", x), draw.ints(draw.rank(x) - 1), axis=0)
    middle = draw.add("Div", length, draw.ints(2))
    one = draw.add("Slice", x, draw.ints(0), middle, draw.ints(-1))
    other = draw.add("Slice", x, middle, draw.ints(FAR), draw.ints(-1))
    if draw.chance(0.6):
        draw.add("Concat", draw.add("Neg", other), one, axis=-1)


def computed_expand(draw: Draw) -> None:
    """A value expanded to the shape of another."""
    x = draw.pick(lambda array: array.ndim > 0)
    y = draw.pick(lambda array: 1 in array.shape and array.ndim <= draw.rank(x), ANY)
    draw.add("Expand", y, draw.add("Shape", x))


def filled(draw: Draw) -> None:
    """A constant of a value's shape."""
    x = draw.pick(lambda array: array.ndim > 0)
    zeros = draw.add("ConstantOfShape", draw.add("Shape", x))
    if draw.dtype(x) == np.float32:
        draw.add("Concat", zeros, x, axis=draw.axis(x))


MOVEMENTS = {
    concat: 6,
    joined_rows: 3,
    split: 3,
    slices: 5,
    pad: 4,
    unsqueeze: 3,
    squeeze: 3,
    reshape: 5,
    flatten: 1,
    transpose: 5,
    gather: 3,
    gather_elements: 1,
    scatter: 2,
    expand: 3,
    tile: 1,
    identity: 1,
    blocks: 1,
    trilu: 1,
    computed_reshape: 2,
    computed_slice: 2,
    computed_expand: 1,
    filled: 1,
}
