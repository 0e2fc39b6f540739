"""Few rows times a weight on the device: each output by a block of threads that read the weight once, quantized ones as they are stored.

Source of the integer products: dp4a, which adds four products of signed bytes; llama.cpp rounds activations for it in the same way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...runtime.cuda import generated
from ...runtime.cuda.coded import Coded
from ...runtime.cuda.element import computing, stored
from ...runtime.cuda.fold import THREADS, Fold, Result, add, folded, larger
from ...runtime.cuda.kernel import Launch
from ...runtime.cuda.operand import Lookup, Operand, Writer, over
from ...runtime.cuda.place import Step
from ...runtime.cuda.zip import BLOCKS, Chain
from ...runtime.launch import Buffer
from ..quants.device import digest
from ..quants.device.runs import RUNS, Run
from .linear import GROUP

FEW = 4
"""Rows that are multiplied together, and up to which a weight is not read tile by tile."""
F32, WORDS = np.dtype(np.float32), np.dtype(np.uint16)


def few_rows(step: Step, x: Buffer, w: Buffer, y: Buffer, rounded: bool = False) -> list[Launch | Chain]:
    """y [rows, out] from x [rows, in] and w [out, in]; `rounded` to 8 bits first, for which `rounds` has to be true of the weight."""
    rows, depth = x.shape
    run = RUNS.get(w.kind.name) if isinstance(w, Coded) else None
    if run is None or x.dtype != F32 or y.dtype != F32:
        return [_plain(x, w, y)]
    assert isinstance(w, Coded)
    launches: list[Launch | Chain] = []
    scales = None
    if rounded:
        x, scales = codes_of(step, x, launches)
    for first in range(0, rows, FEW):
        count = min(FEW, rows - first)
        part = x.view((count, x.shape[1]), first * x.shape[1])
        scale = None if scales is None else scales.view((count, scales.shape[1]), first * scales.shape[1])
        launches.append(_runs(part, scale, w, y.view((count, w.shape[0]), first * w.shape[0]), run, depth))
    return launches


def rounds(w: Buffer) -> bool:
    """Whether there are integer products with a weight."""
    return isinstance(w, Coded) and w.kind.name in RUNS


def _times(x: float, w: float) -> float:
    return x * w


def _total(total: float) -> float:
    return total


SUM = Fold("total", _times, add)


def _plain(x: Buffer, w: Buffer, y: Buffer) -> Launch:
    (rows, depth), columns = x.shape, w.shape[0]
    operands = {"x": Operand(x, (depth, 0, 1)), "w": Operand(w, (0, depth, 1))}
    return folded([rows, columns], [depth], operands, [SUM], [Result(_total, Operand(y, (columns, 1, 0)), per_row=True)], computing(x.dtype))


def of_experts(step: Step, x: Buffer, w: Buffer, ids: Buffer, y: Buffer, each: bool) -> Launch:
    """y [tokens, k, out] from rows of x [tokens, (k,) in] and those of w [experts, out, in] that `ids` [tokens, k] choose."""
    chosen, (experts, columns, depth) = ids.count, w.shape
    count = ids.shape[-1]
    flag = step.flag(f"an expert of {step.node.op.name} is outside of the weights")
    lookup = Lookup(ids, (count, 1, 0, 0), columns * depth, experts, flag=flag)
    box = [chosen // count, count, columns]
    operands = {
        "x": Operand(x, (count * depth, depth, 0, 1) if each else (depth, 0, 0, 1)), "w": Operand(w, (0, 0, depth, 1), lookups=(lookup,)),
    }
    result = Result(_total, Operand(y, (count * columns, columns, 1, 0)), per_row=True)
    return folded(box, [depth], operands, [SUM], [result], computing(x.dtype))


def _magnitude(x: float) -> float:
    return x if x >= 0 else -x


def _step(total: float) -> float:
    return total / 127


def _inverse(step: float) -> float:
    return 1 / step if step != 0 else step


def _nearest(x: float, inverse: float) -> float:
    """Ties to even: adding and taking away 1.5 * 2**23 leaves no fraction."""
    return (x * inverse + 12582912) - 12582912


def _of_step(step: float) -> float:
    return step


def codes_of(step: Step, x: Buffer, launches: list[Launch | Chain]) -> tuple[Buffer, Buffer]:
    """Rows as signed bytes, in words of four, and the scale of each run of `GROUP` neighbours."""
    rows, depth = x.shape
    groups = depth // GROUP
    codes, scales = step.temporary(np.int8, (rows, depth)), step.temporary(F32, (rows, groups))
    apart = x.view((rows, groups, GROUP))
    results = [Result(_nearest, over(codes.view(apart.shape), apart.shape)), Result(_of_step, Operand(scales, (groups, 1, 0)), per_row=True)]
    folds = [Fold("step", _magnitude, larger, _step), Fold("inverse", _nothing, add, _inverse_of_step)]
    launches.append(folded([rows, groups], [GROUP], {"x": over(apart, apart.shape)}, folds, results, F32))
    return codes.view((rows, depth // 4), dtype=np.dtype(np.int32)), scales


def _nothing(x: float) -> float:
    return 0


def _inverse_of_step(step: float) -> float:
    return _inverse(step)


def _runs(x: Buffer, scales: Buffer | None, w: Coded, y: Buffer, run: Run, depth: int) -> Launch:
    """Each thread sums runs of a row of the weight: products of integers where there are scales, of floats otherwise."""
    rows, each, per = y.shape[0], run.length, w.kind.block // run.length
    writer = Writer()
    writer.head += [
        f"# {digest()}", f"from {__package__.rpartition('.')[0]}.quants.device.runs import RUNS", f"run = RUNS[{w.kind.name!r}]",
        "run_codes, run_scale, run_least = run.codes, run.scale, run.least", f"from {generated.__package__}.bits import dp4a, from_packed",
    ]
    for name, value in (("columns", y.shape[1]), ("runs", depth // each), ("wide", x.shape[1])):
        writer.parameter(name, value)
    writer.parameter("x", x)
    writer.parameter("w", replace(w, unit=WORDS))
    writer.parameter("y", y)
    if scales is not None:
        writer.parameter("scales", scales)
        writer.parameter("groups", scales.shape[1])
    kind = "int32" if scales is not None else "float32"
    writer.add(
        1, f"shared = cuda.shared.array({THREADS}, np.float32)", f"totals = cuda.local.array({rows}, np.float32)",
        f"sums = cuda.local.array({rows}, np.{kind})", f"plain = cuda.local.array({rows}, np.{kind})", "thread = np.int64(cuda.threadIdx.x)",
        "for column in range(np.int64(cuda.blockIdx.x), columns, cuda.gridDim.x):",
    )
    writer.add(2, f"for row in range({rows}):", "    totals[row] = np.float32(0)", f"for item in range(thread, runs, {THREADS}):")
    writer.add(
        3, f"block = (column * runs + item) // {per} * {w.kind.block_nbytes // 2}", f"part = item % {per}", f"for row in range({rows}):",
        f"    sums[row] = np.{kind}(0)", f"    plain[row] = np.{kind}(0)",
        f"for four in range({each // 4}):", "    codes = run_codes(w, block, part, four)",
        f"    for row in range({rows}):",
    )
    if scales is not None:
        writer.add(5, f"there = x[row * wide + item * {each // 4} + four]", "sums[row] = dp4a(codes, there, sums[row])")
        if run.least is not None:
            writer.add(5, "plain[row] = dp4a(np.int32(16843009), there, plain[row])")
    else:
        writer.add(5, "for k in range(4):")
        writer.add(5, f"    there = x[row * wide + item * {each} + 4 * four + k]", "    sums[row] += from_packed(codes, k) * there")
        if run.least is not None:
            writer.add(6, "plain[row] += there")
    writer.add(3, "scale = run_scale(w, block, part)")
    if run.least is not None:
        writer.add(3, "least = run_least(w, block, part)")
    found = "scale * np.float32(sums[row])" + (" - least * np.float32(plain[row])" if run.least is not None else "")
    if scales is not None:
        found = f"({found}) * scales[row * groups + item * {each} // {GROUP}]"
    writer.add(3, f"for row in range({rows}):", f"    totals[row] += {found}")
    writer.add(
        2, f"for row in range({rows}):", "    shared[thread] = totals[row]", "    cuda.syncthreads()", f"    width = {THREADS // 2}",
        "    while width > 0:",
        "        if thread < width:", "            shared[thread] += shared[thread + width]", "        cuda.syncthreads()", "        width //= 2",
        "    if thread == 0:", f"        y[row * columns + column] = {stored(y.dtype).store.format('shared[0]')}", "    cuda.syncthreads()",
    )
    kernel = generated.made(f"{'integers' if scales is not None else 'floats'} by rows of {w.kind.name}", writer.text(), (THREADS,))
    return Launch(kernel, writer.values, max(1, min(BLOCKS, y.shape[1])))
