"""GEMV on the device: few rows times a weight that is read once in its storage type, int8 by integer dot products."""

from __future__ import annotations

import weakref

import numpy as np

from ...runtime.base.process_cache import PROCESS, owned
from ...runtime.cuda.element.block_quantized import QuantizedBuffer
from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import copy_launch
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.matmul import cublaslt
from ...runtime.cuda.matmul.gemv import ExpertSelection, gemv
from ...runtime.cuda.matmul.int8_mma import int8_gemm
from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Step
from ...runtime.ir.graph import Value
from ...runtime.plan.kernel_api import Allocation, Buffer, Chain
from ...runtime.plan.rows import Fold, add, larger
from .linear import GROUP

FEW = 4
"""Rows that are multiplied together, and up to which a weight is not read tile by tile."""
MANY = 128
"""Rows of 8-bit activations from which cuBLASLt's f32 products of decoded weights are faster than integer products."""
DECODED_BYTES = 64 << 20
"""Most bytes of a weight that are decoded at a time."""
F32 = np.dtype(np.float32)


def _times(x: float, w: float) -> float:
    return x * w


def _total(total: float) -> float:
    return total


def _magnitude(x: float) -> float:
    return x if x >= 0 else -x


def _step(total: float) -> float:
    return total / 127


def _nothing(x: float) -> float:
    return 0


def _inverse(step: float) -> float:
    return 1 / step if step != 0 else step


def _nearest(x: float, inverse: float) -> float:
    """Ties to even: adding and taking away 1.5 * 2**23 leaves no fraction."""
    return (x * inverse + 12582912) - 12582912


def _nearest_value(x: float, inverse: float, step: float) -> float:
    return ((x * inverse + 12582912) - 12582912) * step


def _of_step(step: float) -> float:
    return step


def _code(x: float) -> float:
    return x


SUM = Fold("total", _times, add)
ROUNDING = (Fold("step", _magnitude, larger, _step), Fold("inverse", _nothing, add, _inverse))


def rows_by(step: Step, x: Buffer, w: Buffer, y: Buffer, rounded: bool) -> list[Launch | Chain]:
    """y [rows, out] from x [rows, in] and w [out, in]; where `rounded`, x is rounded to 8 bits first."""
    launches: list[Launch | Chain] = []
    rows, depth = x.shape
    runs = w if isinstance(w, QuantizedBuffer) and w.run is not None and x.dtype == F32 else None
    decoding = isinstance(w, QuantizedBuffer) and x.dtype == F32 and cublaslt.available()
    if runs is not None and rounded and not (decoding and rows > MANY):
        codes, scales = codes_of(step, x, launches)
        if rows > FEW:
            sums = _sums(step, codes, runs, depth, launches)
            return [*launches, int8_gemm(codes, scales, sums, runs, y)]
        return [*launches, gemv(codes, scales, runs, y)]
    if rounded:
        x = nearest_rows(step, x, launches)
    if rows > FEW:
        return [*launches, *(decoded_product(step, x, w, y) if decoding else [product(x, w, y, rows_times(x, w, y))])]
    return [*launches, gemv(x, None, runs, y) if runs is not None else _plain(x, w, y)]


def rows_times(x: Buffer, w: Buffer, y: Buffer, first: int = 0) -> Contraction:
    """The axes of x [rows, in] times the transpose of w [some, in], which is y [rows, out] from column `first` on."""
    (rows, depth), columns = x.shape, w.shape[0]
    return Contraction(
        stack=Axes([], [], [], []),
        rows=Axes([rows], [depth], None, [y.shape[-1]]),
        columns=Axes([columns], None, [depth], [1]),
        depth=Axes([depth], [1], [1], None),
        starts=(0, 0, first),
    )


def decoded_product(step: Step, x: Buffer, w: Buffer, y: Buffer) -> list[Launch]:
    """y [rows, out] from x and some rows of the quantized w [out, in] after others, decoded."""
    columns, depth = w.shape
    each = max(1, min(columns, DECODED_BYTES // (depth * x.dtype.itemsize)))
    numbers = step.temporary(x.dtype, (each, depth))
    launches = []
    for first in range(0, columns, each):
        count = min(each, columns - first)
        part, target = w.view((count * depth,), first * depth), numbers.view((count, depth))
        launches.append(copy_launch(part.shape, Operand(part, (1,)), Operand(target, (1,))))
        launches.append(product(x, target, y, rows_times(x, target, y, first)))
    return launches


def _plain(x: Buffer, w: Buffer, y: Buffer) -> Launch:
    (rows, depth), columns = x.shape, w.shape[0]
    operands = {"x": Operand(x, (depth, 0, 1)), "w": Operand(w, (0, depth, 1))}
    return reduce_rows(
        [rows, columns],
        [depth],
        operands,
        [SUM],
        [Result(_total, Operand(y, (columns, 1, 0)), per_row=True)],
        compute_dtype(x.dtype),
    )


def of_experts(
    step: Step, x: Buffer, w: Buffer, ids: Buffer, y: Buffer, each: bool, rounded: bool
) -> list[Launch | Chain]:
    """y [tokens, k, out] from rows of x [tokens, (k,) in] and those of w [experts, out, in] that `ids` [tokens, k]
    choose."""
    chosen, (experts, columns, depth) = ids.count, w.shape
    count = ids.shape[-1]
    flag = step.flag(f"an expert of {step.node.op.name} is out of range of the weights")
    launches: list[Launch | Chain] = []
    rows = x.view((x.count // depth, depth))
    if isinstance(w, QuantizedBuffer) and w.run is not None and x.dtype == F32:
        codes, scales = codes_of(step, rows, launches) if rounded else (rows, None)
        return [
            *launches,
            gemv(
                codes, scales, w, y.view((chosen, columns)), ExpertSelection(ids, experts, 1 if each else count, flag)
            ),
        ]
    if rounded:
        x = nearest_rows(step, rows, launches).view(x.shape)
    lookup = Lookup(ids, (count, 1, 0, 0), columns * depth, experts, flag=flag)
    box = [chosen // count, count, columns]
    operands = {
        "x": Operand(x, (count * depth, depth, 0, 1) if each else (depth, 0, 0, 1)),
        "w": Operand(w, (0, 0, depth, 1), lookups=(lookup,)),
    }
    result = Result(_total, Operand(y, (count * columns, columns, 1, 0)), per_row=True)
    return [*launches, reduce_rows(box, [depth], operands, [SUM], [result], compute_dtype(x.dtype))]


def nearest_rows(step: Step, x: Buffer, launches: list[Launch | Chain]) -> Buffer:
    """Rows as f32 numbers of 8 bits, each run of `GROUP` neighbours by its scale."""
    apart = (x.shape[0], x.shape[1] // GROUP, GROUP)
    made = step.temporary(F32, apart)
    results = [Result(_nearest_value, over(made, apart))]
    launches.append(reduce_rows(apart[:2], [GROUP], {"x": over(x.view(apart), apart)}, ROUNDING, results, F32))
    return made.view(x.shape)


_ROUNDED: weakref.WeakKeyDictionary[Value, tuple[Allocation, Buffer, Buffer]] = owned(
    weakref.WeakKeyDictionary(), PROCESS
)
"""Value -> its allocation, and its rows as codes and scales: several weights are multiplied with the same rows."""


def codes_of(step: Step, x: Buffer, launches: list[Launch | Chain]) -> tuple[Buffer, Buffer]:
    """Rows of the first input as signed bytes, in words of four, and the scale of each run of `GROUP` neighbours; a
    plan rounds them once."""
    source = step.node.inputs[0]
    assert source is not None
    known = _ROUNDED.get(source)
    if known is None or known[0] is not x.allocation:
        known = _ROUNDED[source] = (x.allocation, *_rounded(step, x, launches))
    return known[1], known[2]


def _rounded(step: Step, x: Buffer, launches: list[Launch | Chain]) -> tuple[Buffer, Buffer]:
    rows, depth = x.shape
    groups = depth // GROUP
    codes, scales = step.temporary(np.int8, (rows, depth)), step.temporary(F32, (rows, groups))
    apart = x.view((rows, groups, GROUP))
    results = [
        Result(_nearest, over(codes.view(apart.shape), apart.shape)),
        Result(_of_step, Operand(scales, (groups, 1, 0)), per_row=True),
    ]
    launches.append(reduce_rows([rows, groups], [GROUP], {"x": over(apart, apart.shape)}, ROUNDING, results, F32))
    return codes.view((rows, depth // 4), dtype=np.dtype(np.int32)), scales


def _sums(step: Step, x: Buffer, w: QuantizedBuffer, depth: int, launches: list[Launch | Chain]) -> Buffer | None:
    """Sums of the codes of each run, where a weight's type has minima."""
    assert w.run is not None
    if not w.run.least:
        return None
    rows, runs, length = x.shape[0], depth // w.run.length, w.run.length
    made, codes = step.temporary(F32, (rows, runs)), x.view((rows, runs, length), dtype=np.dtype(np.int8))
    result = Result(_total, Operand(made, (runs, 1, 0)), per_row=True)
    launches.append(
        reduce_rows([rows, runs], [length], {"x": over(codes, codes.shape)}, [Fold("total", _code, add)], [result], F32)
    )
    return made
