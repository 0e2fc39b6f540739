"""Tensor-core kernels by name with arguments, for simulation or compilation without a GPU."""

import ml_dtypes
import numpy as np
from candle_convert.ops.attention.attention_cuda import in_heads
from candle_convert.ops.attention.flash_cuda import Pages, Rule, flash
from candle_convert.ops.attention.flash_mma_cuda import prompt, tensor_kind
from candle_convert.runtime.cuda.element.block_quantized import kernel_view, quantized_buffer
from candle_convert.runtime.cuda.element.group_quantized import GroupForm, grouped
from candle_convert.runtime.cuda.kernel.contraction_axes import Axes, Contraction
from candle_convert.runtime.cuda.matmul.f16_mma import f16_gemm
from candle_convert.runtime.cuda.matmul.gemv import gemv
from candle_convert.runtime.cuda.matmul.int8_mma import int8_gemm
from candle_convert.runtime.cuda.matmul.mma_tile import Tiling
from candle_convert.runtime.plan.kernel_api import Allocation, Buffer
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.runtime.tensor.storage import Held
from candle_convert.runtime.tensor.stored_tensor import StoredTensor
from candle_convert.runtime.tensor.weight_array import load_weight
from candle_convert.tests.builders.block_weights import weight

BF16 = ml_dtypes.bfloat16
TWO_WARPS = Tiling((2, 1), (1, 2), 8)
TWO_TILES = Tiling((1, 1), (2, 4), 16)


def buffer(array):
    return Buffer(array.dtype, array.shape, Allocation(array.nbytes, constant=array))


def numbers(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rows_of(name, count, length=256):
    """The first rows of a weight of blocks, and their numbers."""
    dtype = DTYPES[name]
    tensor, values = weight(name, (64, length))
    return StoredTensor(dtype, (count, length), Held(tensor.raw()[: dtype.nbytes(count * length)])), values[:count]


def dense(rows, columns, depth, dtype, tiling=None, transposed=False):
    """Rows by the rows of a matrix, or by its columns where `transposed`."""
    a = numbers(0, rows, depth, dtype=dtype)
    b = numbers(1, *((depth, columns) if transposed else (columns, depth)), dtype=dtype)
    y = np.zeros((rows, columns), np.float32)
    across, deep = (1, columns) if transposed else (depth, 1)
    launch = f16_gemm(
        buffer(a),
        buffer(b),
        buffer(y),
        Contraction(
            stack=Axes([], [], [], []),
            rows=Axes([rows], [depth], None, [columns]),
            columns=Axes([columns], None, [across], [1]),
            depth=Axes([depth], [1], [deep], None),
        ),
        "f16" if dtype is np.float16 else "bf16",
        tiling,
    )
    return launch, y, a.astype(np.float32) @ (b if transposed else b.T).astype(np.float32), 1e-5


def decoded(name, rows, columns, tiling=None):
    """f16 rows by quantized rows that are dequantized to f16."""
    tensor, values = rows_of(name, columns)
    a, y = numbers(0, rows, 256, dtype=np.float16), np.zeros((rows, columns), np.float32)
    launch = f16_gemm(
        buffer(a),
        quantized_buffer(load_weight(tensor)),
        buffer(y),
        Contraction(
            stack=Axes([], [], [], []),
            rows=Axes([rows], [256], None, [columns]),
            columns=Axes([columns], None, [256], [1]),
            depth=Axes([256], [1], [1], None),
        ),
        "f16",
        tiling,
    )
    return launch, y, a.astype(np.float32) @ values.astype(np.float16).astype(np.float32).T, 1e-5


def integers(name, rows, columns, tiling=None):
    """Rows of 8 bits by quantized rows."""
    tensor, values = rows_of(name, columns)
    w = quantized_buffer(load_weight(tensor))
    codes = np.random.default_rng(0).integers(-127, 128, (rows, 256)).astype(np.int8)
    scales = np.abs(numbers(1, rows, 8)) / 127
    sums = codes.reshape(rows, -1, w.run.length).sum(2).astype(np.float32)
    y = np.zeros((rows, columns), np.float32)
    given = buffer(codes.view(np.int32)), buffer(scales), buffer(sums) if w.run.least else None
    expected = (codes * np.repeat(scales, 32, 1)) @ values.T
    if rows > 4:
        return int8_gemm(*given, w, buffer(y), tiling), y, expected, 1e-5
    return gemv(given[0], given[1], w, buffer(y)), y, expected, 1e-5


def groups(rows, columns, bits, dtype=None):
    """Rows by packed codes in groups of 32 with zero points: f16 rows, or int8 rows without a dtype."""
    made = GroupForm(
        bits, 32, 8, buffer(np.zeros((columns, 8), np.float32)), buffer(np.zeros((columns, bits), np.uint8))
    )
    w = grouped(buffer(np.zeros((columns, 32 * bits), np.uint8)), columns, made)
    y = np.zeros((rows, columns), np.float32)
    if dtype is None:
        given = buffer(np.zeros((rows, 64), np.int32)), buffer(np.zeros((rows, 8), np.float32))
        if rows > 4:
            return int8_gemm(*given, given[1], w, buffer(y)), y, y, 0
        return gemv(buffer(np.zeros((rows, 256), np.float32)), None, w, buffer(y)), y, y, 0
    launch = f16_gemm(
        buffer(np.zeros((rows, 256), dtype)),
        w,
        buffer(y),
        Contraction(
            stack=Axes([], [], [], []),
            rows=Axes([rows], [256], None, [columns]),
            columns=Axes([columns], None, [256], [1]),
            depth=Axes([256], [1], [1], None),
        ),
        "f16" if dtype is np.float16 else "bf16",
    )
    return launch, y, y, 0


def attention(queries, keys, size, dtype, pages=0):
    """Attention of four heads over two, causal: prompts on tensor cores, others by tiles of keys, in pages of so many
    slots where given."""
    shapes = ((4, queries), (2, keys), (2, keys), (4, queries))
    q, k, v, y = (in_heads(buffer(np.zeros((1, heads, length, size), dtype)), None) for heads, length in shapes)
    rule = Rule(0.1, 0.0, buffer(np.zeros(1, np.int64)), True, -1, -1, None, None)
    kind = tensor_kind(q, k, v)
    if kind is not None:
        return prompt(q, k, v, y, rule, kind), None, None, 0
    held = (
        Pages(
            buffer(np.zeros((1, keys // pages), np.int32)),
            buffer(np.zeros(1, np.int64)),
            buffer(np.zeros(1, np.int64)),
            pages,
            buffer(np.zeros(1, np.uint8)),
        )
        if pages
        else None
    )
    return flash(q, k, v, y, rule, held)[0], None, None, 0


KERNELS = {
    "f16": lambda: dense(5, 9, 24, np.float16),
    "bf16, odd": lambda: dense(17, 18, 13, BF16),
    "f16, transposed": lambda: dense(9, 6, 10, np.float16, transposed=True),
    "f16, two warps": lambda: dense(34, 17, 24, np.float16, TWO_WARPS),
    "bf16, four tiles": lambda: dense(33, 35, 40, BF16, TWO_TILES),
    "decoded q8_0": lambda: decoded("q8_0", 5, 4),
    "decoded iq2_xs": lambda: decoded("iq2_xs", 5, 3),
    "decoded q4_k, four tiles": lambda: decoded("q4_k", 9, 5, TWO_TILES),
    "integers q5_1": lambda: integers("q5_1", 17, 3),
    "integers q2_k, four tiles": lambda: integers("q2_k", 6, 5, TWO_TILES),
    "integers q6_k, two warps": lambda: integers("q6_k", 34, 3, TWO_WARPS),
    "row q5_k": lambda: integers("q5_k", 2, 3),
}
LARGE = {
    "f16": lambda: dense(256, 256, 64, np.float16),
    "bf16": lambda: dense(256, 256, 64, BF16),
    "decoded": lambda: decoded("q4_k", 256, 8),
    "integers": lambda: integers("q4_k", 256, 8),
    "integers of 16": lambda: integers("q2_k", 256, 8),
    "groups of 4 bits": lambda: groups(256, 8, 4, np.float16),
    "groups of 2 bits": lambda: groups(256, 8, 2, BF16),
    "integers in groups": lambda: groups(256, 8, 4),
    "integers of 8 bits in groups": lambda: groups(256, 8, 8),
    "few rows of groups": lambda: groups(4, 8, 4),
    "few rows": lambda: integers("q4_k", 4, 8),
    "prompt": lambda: attention(256, 256, 128, np.float16),
    "prompt of bf16": lambda: attention(99, 99, 64, BF16),
    "decoding": lambda: attention(1, 4096, 128, np.float32),
    "decoding in pages": lambda: attention(1, 4096, 128, np.float16, 16),
}
"""Of the sizes that a card is given, so that the text is that of its tilings."""


def arguments(launch):
    """Arrays and numbers, and the array that is written."""
    found = []
    for item in launch.arguments:
        if isinstance(item, Buffer):
            array = item.allocation.constant
            array = array if array.flags.writeable else array.copy()
            item = array.reshape(-1).view(np.uint8).view(kernel_view(item)[0])
        found.append(item)
    return found
