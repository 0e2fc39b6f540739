"""GEMV for quantized weights: a few activation rows times a weight whose rows are each read once, by several warps.

Source of the integer products: dp4a, a dot product of four signed bytes; llama.cpp quantizes activations for it in
the same way.
"""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...plan.kernel_api import Buffer
from ..device.device import SIMULATED
from ..element.block_quantized import QuantizedBuffer
from ..element.element import storage_of
from ..element.kernel_text import PACKAGE
from ..kernel import source_module
from ..kernel.elementwise import BLOCKS
from ..kernel.kernel import Launch
from ..kernel.operand import Writer

LANES, SIXTEEN, GROUP = 32, 16, 32
WARPS = 1 if SIMULATED else 4
HEAD = (
    "from {package}.element.bits import dp4a, from_packed",
    "from {package}.device.mma import load_16_bytes, shfl_xor",
)


@dataclass(frozen=True)
class ExpertSelection:
    """Per-row selection among several weights (experts).

    Attributes:
        ids: integers, one for each row of the result.
        weights: how many there are.
        each: rows of the result for one row of x.
        flag: set to 1 where a number is outside of the weights.
    """

    ids: Buffer
    weights: int
    each: int
    flag: Buffer


def gemv(
    x: Buffer, scales: Buffer | None, w: QuantizedBuffer, y: Buffer, chosen: ExpertSelection | None = None
) -> Launch:
    """y [rows, columns] from x and w [columns, depth] ([weights, columns, depth] with `chosen`).

    Args:
        x: f32 [rows, depth], or int32 [rows, depth / 4], four signed bytes each, with `scales` f32 [rows, depth / 32].
    """
    rows, columns, run = (1 if chosen is not None else y.shape[0]), y.shape[-1], w.run
    assert run is not None
    depth = w.shape[-1]
    writer = Writer()
    writer.head += [line.format(package=PACKAGE) for line in HEAD]
    run.head(writer, "w")
    for name, number in (
        ("columns", columns),
        ("items", depth // SIXTEEN),
        ("wide", x.shape[-1]),
        ("outputs", columns * y.shape[0] // rows),
    ):
        writer.parameter(name, number)
    for name, buffer in (("x", x), ("w", w.seen_by_runs()), ("y", y)):
        writer.parameter(name, buffer)
    if scales is not None:
        writer.parameter("scales", scales)
        writer.parameter("groups", scales.shape[-1])
    threads = LANES * WARPS
    writer.add(
        1,
        f"shared = cuda.shared.array({WARPS * rows}, np.float32)",
        "thread = np.int64(cuda.threadIdx.x)",
        f"lane, warp = thread % {LANES}, thread // {LANES}",
        "for output in range(np.int64(cuda.blockIdx.x), outputs, np.int64(cuda.gridDim.x)):",
    )
    _choose(writer, chosen)
    writer.add(
        2, *(f"total{row} = np.float32(0)" for row in range(rows)), f"for item in range(thread, items, {threads}):"
    )
    writer.add(
        3,
        f"index = (column * items + item) * {SIXTEEN}",
        *run.find("index"),
        *run.sixteen("w"),
        f"scale = {run.scale('w')}",
    )
    if run.least:
        writer.add(3, f"least = {run.subtracted('w')}")
    for row in range(rows):
        _row(writer, row, scales is not None, run.least)
    _joined(writer, rows)
    for row in range(rows):
        text = " + ".join(f"shared[{warp * rows + row}]" for warp in range(WARPS))
        at = "output" if chosen is not None else f"{row} * columns + column"
        writer.add(2, f"if thread == {row}:", f"    y[{at}] = {storage_of(y.dtype).store.format(text)}")
    writer.add(2, "cuda.syncthreads()")
    title = (
        f"{'integers' if scales is not None else 'floats'} by rows of "
        f"{w.form.name}{' that are chosen' if chosen is not None else ''}"
    )
    return Launch(
        source_module.compile_source(title, writer.text(), (threads,)),
        writer.values,
        max(1, min(BLOCKS, columns * y.shape[0] // rows)),
    )


def _choose(writer: Writer, chosen: ExpertSelection | None) -> None:
    """Write the activation row and the weight row of an output."""
    if chosen is None:
        writer.add(2, "column, first = output, np.int64(0)")
        return
    for name, value in (("ids", chosen.ids), ("weights", chosen.weights), ("each", chosen.each), ("flag", chosen.flag)):
        writer.parameter(name, value)
    writer.add(
        2,
        "chosen = np.int64(ids[output // columns])",
        "if chosen < 0:",
        "    chosen += weights",
        "if chosen < 0 or chosen >= weights:",
        "    flag[0] = 1",
        "    chosen = np.int64(0)",
        "column, first = chosen * columns + output % columns, output // columns // each",
    )


def _row(writer: Writer, row: int, integers: bool, least: bool) -> None:
    """Write the contribution of sixteen weight elements to a row's sum."""
    start = f"(first + {row}) * wide"
    if integers:
        writer.add(3, f"x0, x1, x2, x3 = load_16_bytes(x, {start} + item * 4)")
        for name, codes in (("found", "c{}"), ("plain", "np.int32(16843009)"))[: 1 + least]:
            text = "np.int32(0)"
            for four in range(4):
                text = f"dp4a({codes.format(four)}, x{four}, {text})"
            writer.add(3, f"{name} = {text}")
    else:
        writer.add(3, "found, plain = np.float32(0), np.float32(0)")
        for four in range(4):
            writer.add(3, f"x0, x1, x2, x3 = load_16_bytes(x, {start} + item * {SIXTEEN} + {4 * four})")
            writer.add(3, *(f"found += from_packed(c{four}, {place}) * x{place}" for place in range(4)))
            if least:
                writer.add(3, "plain += (x0 + x1) + (x2 + x3)")
    text = "scale * np.float32(found)" + (" - least * np.float32(plain)" if least else "")
    writer.add(
        3,
        f"total{row} += ({text})"
        + (f" * scales[(first + {row}) * groups + item * {SIXTEEN} // {GROUP}]" if integers else ""),
    )


def _joined(writer: Writer, rows: int) -> None:
    """Write the sum over a warp's threads in a fixed order, then over the warps."""
    for row in range(rows):
        writer.add(2, *(f"total{row} += shfl_xor(total{row}, np.int32({width}))" for width in (16, 8, 4, 2, 1)))
    writer.add(
        2,
        "if lane == 0:",
        *(f"    shared[warp * {rows} + {row}] = total{row}" for row in range(rows)),
        "cuda.syncthreads()",
    )
