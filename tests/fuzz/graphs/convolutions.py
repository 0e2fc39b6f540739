"""Networks of convolutions: stems, residual, inverted and dense blocks, gates of channels, pools, resizes and heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from candle_convert.tests.fuzz.graphs.draw import Draw, Rejected, Template

CHANNELS = (16, 16, 16, 17, 20, 24, 24, 31, 32, 32, 33, 40, 48, 64)
"""Numbers of channels: complete and incomplete blocks of 16."""
SIZES = (4, 5, 7, 8, 9, 12, 13, 14, 16, 19)
WINDOWS = ((3, 3), (3, 3), (3, 3), (1, 1), (1, 1), (2, 2), (5, 5), (1, 3), (3, 1), (7, 1))
ACTIVATIONS = ("Relu", "Relu", "LeakyRelu", "HardSwish", "Sigmoid", "Tanh", "Gelu", "Elu")


def constant(draw: Draw, shape: Sequence[int], terms: int = 1, shift: float = 0) -> str:
    return draw.const(draw.array(tuple(shape), np.float32, max(terms, 1) ** -0.5) + np.float32(shift))


def conv(draw: Draw, x: str, outputs: int, window: tuple[int, int] | None = None, **attributes: Any) -> str:
    """A convolution; the size is kept unless attributes say otherwise."""
    window = window or draw.random.choice(WINDOWS)
    group = attributes.get("group", 1)
    terms = draw.shape(x)[1] // group
    if "pads" not in attributes and "auto_pad" not in attributes:
        dilations = attributes.get("dilations", (1, 1))
        around = [dilation * (length - 1) for dilation, length in zip(dilations, window, strict=True)]
        attributes["pads"] = [*(total // 2 for total in around), *(total - total // 2 for total in around)]
    w = constant(draw, (outputs, terms, *window), terms * window[0] * window[1])
    bias = [constant(draw, (outputs,))] if draw.chance(0.6) else []
    return draw.add("Conv", x, w, *bias, **attributes)


def activated(draw: Draw, x: str) -> str:
    """One of the activations of such networks, or none; a normalization before it at times."""
    channels = draw.shape(x)[1]
    if draw.chance(0.2):
        vectors = [constant(draw, (channels,)) for _ in range(3)]
        x = draw.add("BatchNormalization", x, *vectors, draw.const(np.full(channels, 1.25, np.float32)))
    how = draw.random.choice((*ACTIVATIONS, "clip", "swish", "prelu", "mish", "scale", "none", "none"))
    if how == "clip":
        return draw.add("Clip", x, draw.const(0, np.float32), draw.const(6, np.float32))
    if how == "swish":
        return draw.add("Mul", x, draw.add("Sigmoid", x))
    if how == "prelu":
        return draw.add("PRelu", x, constant(draw, (channels, 1, 1)))
    if how == "mish":
        return draw.add("Mul", x, draw.add("Tanh", draw.add("Softplus", x)))
    if how == "scale":
        return draw.add("Add", draw.add("Mul", x, constant(draw, (1, channels, 1, 1))), draw.const(0.5, np.float32))
    return x if how == "none" else draw.add(how, x)


def plain(draw: Draw, x: str) -> str:
    """A convolution with strides, dilations, groups and pads of any kind."""
    channels, window = draw.shape(x)[1], draw.random.choice(WINDOWS)
    outputs, more = draw.random.choice(CHANNELS), dict[str, Any]()
    if draw.chance(0.3):
        more["strides"] = draw.random.choice(([2, 2], [2, 2], [1, 2], [3, 3]))
    if draw.chance(0.15):
        more["dilations"] = draw.random.choice(([2, 2], [1, 2]))
    if draw.chance(0.15):
        group = draw.random.choice([count for count in range(1, channels + 1) if channels % count == 0])
        more["group"], outputs = group, group * draw.random.choice((1, 2, 4))
    if draw.chance(0.25):
        more |= draw.random.choice(
            ({"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"pads": [0] * 4}, {"pads": [1, 0, 2, 1]})
        )
    return activated(draw, conv(draw, x, outputs, window, **more))


def residual(draw: Draw, x: str) -> str:
    channels = draw.shape(x)[1]
    outputs = channels if draw.chance(0.7) else draw.random.choice(CHANNELS)
    y = activated(draw, conv(draw, x, draw.random.choice(CHANNELS), (3, 3)))
    y = conv(draw, y, outputs, (3, 3))
    short = x if outputs == channels else conv(draw, x, outputs, (1, 1))
    if draw.chance(0.3):
        y = gated(draw, y)
    return activated(draw, draw.add("Add", *draw.random.sample((y, short), 2)))


def depthwise(draw: Draw, x: str) -> str:
    channels, window = draw.shape(x)[1], draw.random.choice(((3, 3), (3, 3), (5, 5), (7, 7), (1, 3)))
    more = {"strides": [2, 2]} if draw.chance(0.25) else {"dilations": [2, 2]} if draw.chance(0.15) else {}
    outputs = channels * draw.random.choice((1, 1, 1, 1, 2))
    return activated(draw, conv(draw, x, outputs, window, group=channels, **more))


def inverted(draw: Draw, x: str) -> str:
    """1 x 1, depthwise, a gate at times, 1 x 1, and the input added where it fits."""
    channels = draw.shape(x)[1]
    y = depthwise(draw, activated(draw, conv(draw, x, draw.random.choice(CHANNELS), (1, 1))))
    if draw.chance(0.5):
        y = gated(draw, y)
    y = conv(draw, y, channels if draw.chance(0.7) else draw.random.choice(CHANNELS), (1, 1))
    return draw.add("Add", y, x) if draw.shape(y) == draw.shape(x) else y


def gated(draw: Draw, x: str) -> str:
    """Squeeze-and-excitation: channels times factors that are computed of their means."""
    channels, few = draw.shape(x)[1], draw.random.choice((4, 8, 16))
    mean = draw.add("GlobalAveragePool", x) if draw.chance(0.5) else draw.add("ReduceMean", x, draw.ints(2, 3))
    if draw.chance(0.25):
        mean = draw.add("ReduceMean", x, draw.ints(-1, -2), keepdims=0)
        y = draw.add("Relu", draw.add("MatMul", mean, constant(draw, (channels, few), channels)))
        y = draw.add("Sigmoid", draw.add("MatMul", y, constant(draw, (few, channels), few)))
        factors = draw.add("Reshape", y, draw.ints(0, channels, 1, 1))
    else:
        y = draw.add("Relu", conv(draw, mean, few, (1, 1)))
        factors = draw.add(draw.random.choice(("Sigmoid", "HardSigmoid")), conv(draw, y, channels, (1, 1)))
    return draw.add("Mul", *draw.random.sample((x, factors), 2))


def dense(draw: Draw, x: str) -> str:
    """The input, and what is computed of it, side by side."""
    parts = [x, activated(draw, conv(draw, x, draw.random.choice(CHANNELS), (3, 3)))]
    if draw.chance(0.4):
        parts.append(pooled(draw, x, 1))
    draw.random.shuffle(parts)
    return draw.add("Concat", *parts, axis=draw.random.choice((1, -3)))


def split(draw: Draw, x: str) -> str:
    """Half of the channels through a convolution, then both side by side, shuffled at times."""
    channels = draw.shape(x)[1]
    one, other = draw.add("Split", x, draw.ints(channels // 2, channels - channels // 2), axis=1, outputs=2)
    other = activated(draw, conv(draw, other, draw.random.choice(CHANNELS), (3, 3)))
    y = draw.add("Concat", one, other, axis=1)
    count, height, width = draw.shape(y)[1], *draw.shape(y)[2:]
    if count % 2 or draw.chance(0.5):
        return y
    y = draw.add("Reshape", y, draw.ints(-1, 2, count // 2, height, width))
    return draw.add("Reshape", draw.add("Transpose", y, perm=[0, 2, 1, 3, 4]), draw.ints(-1, count, height, width))


def pooled(draw: Draw, x: str, stride: int = 2) -> str:
    window = draw.random.choice((2, 3)) if stride > 1 else 3
    pads = [0, 0, 0, 0] if window == 2 else draw.random.choice(([1, 1, 1, 1], [0, 0, 1, 1])) if stride > 1 else [1] * 4
    op = draw.random.choice(("MaxPool", "AveragePool"))
    more = {"count_include_pad": draw.random.randint(0, 1)} if op == "AveragePool" else {}
    return draw.add(op, x, kernel_shape=[window] * 2, strides=[stride] * 2, pads=pads, **more)


def enlarged(draw: Draw, x: str) -> str:
    """Twice the size, by Resize or by a transposed convolution."""
    if max(draw.shape(x)[2:]) > 12:
        raise Rejected
    if draw.chance(0.3):
        outputs = draw.random.choice(CHANNELS)
        w = constant(draw, (draw.shape(x)[1], outputs, 2, 2), draw.shape(x)[1])
        return draw.add("ConvTranspose", x, w, strides=[2, 2])
    scales = draw.const([1, 1, 2, 2], np.float32)
    if draw.chance(0.5):
        more = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        more = {"mode": "linear", "coordinate_transformation_mode": draw.random.choice(("half_pixel", "asymmetric"))}
    return draw.add("Resize", x, "", scales, **more)


def joined(draw: Draw, x: str) -> str:
    """An earlier value of the same size added or put beside it."""
    size = draw.shape(x)[0], *draw.shape(x)[2:]
    other = draw.pick(lambda array: array.ndim == 4 and (array.shape[0], *array.shape[2:]) == size)
    if draw.shape(other) == draw.shape(x) and draw.chance(0.6):
        return draw.add(draw.random.choice(("Add", "Add", "Mul", "Sub", "Max")), x, other)
    return draw.add("Concat", x, other, axis=1)


def moved(draw: Draw, x: str) -> str:
    """What has no blocks of channels between convolutions."""
    channels = draw.shape(x)[1]
    how = draw.random.choice(("pad", "slice", "flip", "norm", "softmax", "transpose"))
    if how == "pad":
        return draw.add("Pad", x, draw.ints(0, 0, 1, 0, 0, 0, 0, 2))
    if how == "slice":
        start = draw.random.choice((0, 1, channels // 2))
        return draw.add("Slice", x, draw.ints(start), draw.ints(1 << 40), draw.ints(1))
    if how == "flip":
        return draw.add("Slice", x, draw.ints(-1), draw.ints(-(1 << 40)), draw.ints(3), draw.ints(-1))
    if how == "norm":
        return draw.add(
            "InstanceNormalization", x, constant(draw, (channels,)), constant(draw, (channels,)), epsilon=0.01
        )
    if how == "softmax":
        return draw.add("Softmax", x, axis=draw.random.choice((1, -1)))
    y = draw.add("Transpose", x, perm=[0, 2, 3, 1])
    y = draw.add("LayerNormalization", y, constant(draw, (channels,)), epsilon=0.01)
    return draw.add("Transpose", y, perm=[0, 3, 1, 2])


BLOCKS: dict[Any, float] = {
    plain: 5,
    residual: 4,
    depthwise: 2,
    inverted: 3,
    gated: 1,
    dense: 2,
    split: 1.5,
    pooled: 1.5,
    enlarged: 1,
    joined: 2,
    moved: 1,
}


def head(draw: Draw, x: str) -> None:
    """A classifier, or a result in channels last."""
    channels = draw.shape(x)[1]
    if draw.chance(0.5):
        y = draw.add("Flatten", draw.add("GlobalAveragePool", x), axis=1)
        draw.add("Gemm", y, constant(draw, (10, channels), channels), constant(draw, (10,)), transB=1)
    elif draw.chance(0.5):
        draw.add("Transpose", conv(draw, x, draw.random.choice((3, 21)), (1, 1)), perm=[0, 2, 3, 1])


def grow_network(draw: Draw, blocks: int) -> None:
    """Add blocks after one another to a new input; what fails is left out."""
    draw.large = True
    size = [draw.random.choice(SIZES) for _ in range(2)]
    images, channels = draw.random.choice((1, 1, 2, 3)), draw.random.choice((1, 3, 3, 4, 16, 17, 32))
    x = draw.input((images, channels, *size), np.float32, known=(1,))
    templates: list[Template] = list(BLOCKS)
    for index in range(blocks):
        block = plain if not index else draw.random.choices(templates, list(BLOCKS.values()))[0]
        try:
            y = block(draw, x)
        except Rejected:
            continue
        if min(draw.shape(y)[2:]) > 1 or draw.chance(0.3):
            x = y
    try:
        head(draw, x)
    except Rejected:
        return
