"""Kernels of tensor cores by name, with the arrays they work on: for the simulator, and to be compiled and assembled without a card."""

import ml_dtypes
import numpy as np
from candle_convert.ops.attention.attention_cuda import in_heads
from candle_convert.ops.attention.flash_cuda import Pages, Rule, flash
from candle_convert.ops.attention.prompt_cuda import prompt, tensor_kind
from candle_convert.runtime.blocks import held
from candle_convert.runtime.cuda.coded import coded, seen_as
from candle_convert.runtime.cuda.group import Axes
from candle_convert.runtime.cuda.grouped import GroupForm, grouped
from candle_convert.runtime.cuda.half_product import half_product
from candle_convert.runtime.cuda.integer_product import integer_product
from candle_convert.runtime.cuda.row_product import row_product
from candle_convert.runtime.cuda.tiles import Tiling
from candle_convert.runtime.dtype import DTYPES
from candle_convert.runtime.launch import Buffer, Room
from candle_convert.runtime.storage import Held
from candle_convert.runtime.tensor import Tensor
from test_products import weight

BRAIN = ml_dtypes.bfloat16
TWO_WARPS = Tiling((2, 1), (1, 2), 8)
TWO_TILES = Tiling((1, 1), (2, 4), 16)


def buffer(array):
    return Buffer(array.dtype, array.shape, Room(array.nbytes, constant=array))


def numbers(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rows_of(name, count, length=256):
    """The first rows of a weight of blocks, and their numbers."""
    dtype = DTYPES[name]
    tensor, values = weight(name, (64, length))
    return Tensor(dtype, (count, length), Held(tensor.raw()[: dtype.nbytes(count * length)])), values[:count]


def dense(rows, columns, depth, dtype, tiling=None, turned=False):
    """Rows by the rows of a matrix, or by its columns where `turned`."""
    a = numbers(0, rows, depth, dtype=dtype)
    b = numbers(1, *((depth, columns) if turned else (columns, depth)), dtype=dtype)
    y = np.zeros((rows, columns), np.float32)
    across, deep = (1, columns) if turned else (depth, 1)
    launch = half_product(
        buffer(a), buffer(b), buffer(y), Axes([], [], [], []), Axes([rows], [depth], None, [columns]), Axes([columns], None, [across], [1]),
        Axes([depth], [1], [deep], None), (0, 0, 0), "f16" if dtype is np.float16 else "bf16", tiling,
    )
    return launch, y, a.astype(np.float32) @ (b if turned else b.T).astype(np.float32), 1e-5


def decoded(name, rows, columns, tiling=None):
    """Halves by quantized rows that are decoded into halves."""
    tensor, values = rows_of(name, columns)
    a, y = numbers(0, rows, 256, dtype=np.float16), np.zeros((rows, columns), np.float32)
    launch = half_product(
        buffer(a), coded(held(tensor)), buffer(y), Axes([], [], [], []), Axes([rows], [256], None, [columns]), Axes([columns], None, [256], [1]),
        Axes([256], [1], [1], None), (0, 0, 0), "f16", tiling,
    )
    return launch, y, a.astype(np.float32) @ values.astype(np.float16).astype(np.float32).T, 1e-5


def integers(name, rows, columns, tiling=None):
    """Rows of 8 bits by quantized rows."""
    tensor, values = rows_of(name, columns)
    w = coded(held(tensor))
    codes = np.random.default_rng(0).integers(-127, 128, (rows, 256)).astype(np.int8)
    scales = np.abs(numbers(1, rows, 8)) / 127
    sums = codes.reshape(rows, -1, w.run.length).sum(2).astype(np.float32)
    y = np.zeros((rows, columns), np.float32)
    given = buffer(codes.view(np.int32)), buffer(scales), buffer(sums) if w.run.least else None
    expected = (codes * np.repeat(scales, 32, 1)) @ values.T
    if rows > 4:
        return integer_product(*given, w, buffer(y), tiling), y, expected, 1e-5
    return row_product(given[0], given[1], w, buffer(y)), y, expected, 1e-5


def groups(rows, columns, bits, dtype=None):
    """Rows by packed codes in groups of 32 with zero points: halves, or where there is no dtype rows of 8 bits."""
    made = GroupForm(bits, 32, 8, buffer(np.zeros((columns, 8), np.float32)), buffer(np.zeros((columns, bits), np.uint8)))
    w = grouped(buffer(np.zeros((columns, 32 * bits), np.uint8)), columns, made)
    y = np.zeros((rows, columns), np.float32)
    if dtype is None:
        given = buffer(np.zeros((rows, 64), np.int32)), buffer(np.zeros((rows, 8), np.float32))
        if rows > 4:
            return integer_product(*given, given[1], w, buffer(y)), y, y, 0
        return row_product(buffer(np.zeros((rows, 256), np.float32)), None, w, buffer(y)), y, y, 0
    launch = half_product(
        buffer(np.zeros((rows, 256), dtype)), w, buffer(y), Axes([], [], [], []), Axes([rows], [256], None, [columns]),
        Axes([columns], None, [256], [1]), Axes([256], [1], [1], None), (0, 0, 0), "f16" if dtype is np.float16 else "bf16",
    )
    return launch, y, y, 0


def attention(queries, keys, size, dtype, pages=0):
    """Attention of four heads over two, causal: prompts on tensor cores, others by tiles of keys, in pages of so many slots where given."""
    shapes = ((4, queries), (2, keys), (2, keys), (4, queries))
    q, k, v, y = (in_heads(buffer(np.zeros((1, heads, length, size), dtype)), None) for heads, length in shapes)
    rule = Rule(0.1, 0.0, buffer(np.zeros(1, np.int64)), True, -1, -1, None, None)
    kind = tensor_kind(q, k, v)
    if kind is not None:
        return prompt(q, k, v, y, rule, kind), None, None, 0
    held = Pages(buffer(np.zeros((1, keys // pages), np.int32)), buffer(np.zeros(1, np.int64)), buffer(np.zeros(1, np.int64)), pages,
                 buffer(np.zeros(1, np.uint8))) if pages else None  # fmt: skip
    return flash(q, k, v, y, rule, held)[0], None, None, 0


KERNELS = {
    "halves": lambda: dense(5, 9, 24, np.float16),
    "halves, odd": lambda: dense(17, 18, 13, BRAIN),
    "halves, turned": lambda: dense(9, 6, 10, np.float16, turned=True),
    "halves, two warps": lambda: dense(34, 17, 24, np.float16, TWO_WARPS),
    "halves, four tiles": lambda: dense(33, 35, 40, BRAIN, TWO_TILES),
    "decoded q8_0": lambda: decoded("q8_0", 5, 4),
    "decoded iq2_xs": lambda: decoded("iq2_xs", 5, 3),
    "decoded q4_k, four tiles": lambda: decoded("q4_k", 9, 5, TWO_TILES),
    "integers q5_1": lambda: integers("q5_1", 17, 3),
    "integers q2_k, four tiles": lambda: integers("q2_k", 6, 5, TWO_TILES),
    "integers q6_k, two warps": lambda: integers("q6_k", 34, 3, TWO_WARPS),
    "row q5_k": lambda: integers("q5_k", 2, 3),
}
LARGE = {
    "halves": lambda: dense(256, 256, 64, np.float16), "brains": lambda: dense(256, 256, 64, BRAIN),
    "decoded": lambda: decoded("q4_k", 256, 8), "integers": lambda: integers("q4_k", 256, 8), "integers of 16": lambda: integers("q2_k", 256, 8),
    "groups of 4 bits": lambda: groups(256, 8, 4, np.float16), "groups of 2 bits": lambda: groups(256, 8, 2, BRAIN),
    "integers in groups": lambda: groups(256, 8, 4), "integers of 8 bits in groups": lambda: groups(256, 8, 8),
    "few rows of groups": lambda: groups(4, 8, 4),
    "few rows": lambda: integers("q4_k", 4, 8),
    "prompt": lambda: attention(256, 256, 128, np.float16), "prompt of brains": lambda: attention(99, 99, 64, BRAIN),
    "decoding": lambda: attention(1, 4096, 128, np.float32), "decoding in pages": lambda: attention(1, 4096, 128, np.float16, 16),
}
"""Of the sizes that a card is given, so that the text is that of its tilings."""


def arguments(launch):
    """Arrays and numbers, and the array that is written."""
    found = []
    for item in launch.arguments:
        if isinstance(item, Buffer):
            array = item.room.constant
            array = array if array.flags.writeable else array.copy()
            item = array.reshape(-1).view(np.uint8).view(seen_as(item)[0])
        found.append(item)
    return found
