"""Few rows times a quantized weight: each row of the weight is read once, by several warps that take sixteen of its numbers at a time.

Source of the integer products: dp4a, which adds four products of signed bytes; llama.cpp rounds activations for it in the same way.
"""

from __future__ import annotations

from ..launch import Buffer
from ..record import dataclass
from . import generated
from .coded import Coded
from .element import stored
from .kernel import Launch
from .machine import SIMULATED
from .operand import Writer
from .zip import BLOCKS

LANES, SIXTEEN, GROUP = 32, 16, 32
WARPS = 1 if SIMULATED else 4
HEAD = ("from {package}.bits import dp4a, from_packed", "from {package}.warp import exchanged, sixteen")


@dataclass(frozen=True)
class Chosen:
    """Rows that choose which of several weights they meet.

    Attributes:
        ids: whole numbers, one for each row of the result.
        weights: how many there are.
        each: rows of the result for one row of x.
        flag: set to 1 where a number is outside of the weights.
    """

    ids: Buffer
    weights: int
    each: int
    flag: Buffer


def row_product(x: Buffer, scales: Buffer | None, w: Coded, y: Buffer, chosen: Chosen | None = None) -> Launch:
    """y [rows, columns] from w [columns, depth] ([weights, columns, depth] where rows choose) and x.

    Args:
        x: f32 [rows, depth], or int32 [rows, depth / 4], four signed bytes each, with `scales` f32 [rows, depth / 32].
    """
    rows, columns, run = (1 if chosen is not None else y.shape[0]), y.shape[-1], w.run
    assert run is not None
    depth = w.shape[-1]
    writer = Writer()
    writer.head += [line.format(package=__package__) for line in HEAD]
    run.head(writer, "w")
    for name, number in (("columns", columns), ("items", depth // SIXTEEN), ("wide", x.shape[-1]), ("outputs", columns * y.shape[0] // rows)):
        writer.parameter(name, number)
    for name, buffer in (("x", x), ("w", w.seen_by_runs()), ("y", y)):
        writer.parameter(name, buffer)
    if scales is not None:
        writer.parameter("scales", scales)
        writer.parameter("groups", scales.shape[-1])
    threads = LANES * WARPS
    writer.add(
        1, f"shared = cuda.shared.array({WARPS * rows}, np.float32)", "thread = np.int64(cuda.threadIdx.x)",
        f"lane, warp = thread % {LANES}, thread // {LANES}",
        "for output in range(np.int64(cuda.blockIdx.x), outputs, np.int64(cuda.gridDim.x)):",
    )
    _choose(writer, chosen)
    writer.add(2, *(f"total{row} = np.float32(0)" for row in range(rows)), f"for item in range(thread, items, {threads}):")
    writer.add(3, f"index = (column * items + item) * {SIXTEEN}", *run.find("index"), *run.sixteen("w"), f"scale = {run.scale('w')}")
    if run.least:
        writer.add(3, f"least = {run.subtracted('w')}")
    for row in range(rows):
        _row(writer, row, scales is not None, run.least)
    _joined(writer, rows)
    for row in range(rows):
        text = " + ".join(f"shared[{warp * rows + row}]" for warp in range(WARPS))
        at = "output" if chosen is not None else f"{row} * columns + column"
        writer.add(2, f"if thread == {row}:", f"    y[{at}] = {stored(y.dtype).store.format(text)}")
    writer.add(2, "cuda.syncthreads()")
    title = f"{'integers' if scales is not None else 'floats'} by rows of {w.form.name}{' that are chosen' if chosen is not None else ''}"
    return Launch(generated.made(title, writer.text(), (threads,)), writer.values, max(1, min(BLOCKS, columns * y.shape[0] // rows)))


def _choose(writer: Writer, chosen: Chosen | None) -> None:
    """Which row of x and which row of the weights an output has."""
    if chosen is None:
        writer.add(2, "column, first = output, np.int64(0)")
        return
    for name, value in (("ids", chosen.ids), ("weights", chosen.weights), ("each", chosen.each), ("flag", chosen.flag)):
        writer.parameter(name, value)
    writer.add(
        2, "chosen = np.int64(ids[output // columns])", "if chosen < 0:", "    chosen += weights", "if chosen < 0 or chosen >= weights:",
        "    flag[0] = 1", "    chosen = np.int64(0)", "column, first = chosen * columns + output % columns, output // columns // each",
    )


def _row(writer: Writer, row: int, integers: bool, least: bool) -> None:
    """What sixteen numbers of the weight add to a row's total."""
    start = f"(first + {row}) * wide"
    if integers:
        writer.add(3, f"x0, x1, x2, x3 = sixteen(x, {start} + item * 4)")
        for name, codes in (("found", "c{}"), ("plain", "np.int32(16843009)"))[: 1 + least]:
            text = "np.int32(0)"
            for four in range(4):
                text = f"dp4a({codes.format(four)}, x{four}, {text})"
            writer.add(3, f"{name} = {text}")
    else:
        writer.add(3, "found, plain = np.float32(0), np.float32(0)")
        for four in range(4):
            writer.add(3, f"x0, x1, x2, x3 = sixteen(x, {start} + item * {SIXTEEN} + {4 * four})")
            writer.add(3, *(f"found += from_packed(c{four}, {place}) * x{place}" for place in range(4)))
            if least:
                writer.add(3, "plain += (x0 + x1) + (x2 + x3)")
    text = "scale * np.float32(found)" + (" - least * np.float32(plain)" if least else "")
    writer.add(3, f"total{row} += ({text})" + (f" * scales[(first + {row}) * groups + item * {SIXTEEN} // {GROUP}]" if integers else ""))


def _joined(writer: Writer, rows: int) -> None:
    """The totals of a warp's threads, in a fixed order, then of the warps."""
    for row in range(rows):
        writer.add(2, *(f"total{row} += exchanged(total{row}, np.int32({width}))" for width in (16, 8, 4, 2, 1)))
    writer.add(2, "if lane == 0:", *(f"    shared[warp * {rows} + {row}] = total{row}" for row in range(rows)), "cuda.syncthreads()")
