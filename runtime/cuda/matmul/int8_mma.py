"""int8 GEMM on tensor cores for quantized weights: signed bytes are multiplied run by run, and scaled in f32.

Activations have a scale per 32 elements; weights a scale, and for some types a minimum, per run of 16 or 32. Source:
the instructions m16n8k32 and m16n8k16 of PTX for signed bytes (m8n8k16 on compute capability 7.5); llama.cpp
multiplies quantized matrices in the same way.
"""

from __future__ import annotations

from ...plan.kernel_api import Buffer
from ..device.device import SIMULATED
from ..element.block_quantized import QuantizedBuffer, Runs
from ..element.element import storage_of
from ..element.kernel_text import PACKAGE
from ..kernel import source_module
from ..kernel.kernel import Launch
from ..kernel.operand import Writer
from .mma_tile import TILINGS, Tiling, grid, head, loads, shared, stages, stores, tiling_for

GROUP = 32
"""Elements of an activation row that share a scale."""
INTEGER_TILINGS = TILINGS if SIMULATED else (*TILINGS[:2], Tiling((2, 4), (2, 4), 16))
HEAD = "from {package}.device.mma import cp_async, cp_async_commit, cp_async_wait, ldmatrix, mma_s8, mma_s8_k16"


def int8_gemm(
    codes: Buffer, scales: Buffer, sums: Buffer | None, w: QuantizedBuffer, y: Buffer, tiling: Tiling | None = None
) -> Launch:
    """y [rows, columns] from activation codes and w [columns, depth].

    Args:
        codes: int32 [rows, depth / 4], four signed bytes each.
        scales: f32 [rows, depth / GROUP].
        sums: f32 [rows, depth / run], of the codes that meet a run of the weight; None where its type has no minimum.
    """
    (rows, words), columns = codes.shape, w.shape[0]
    tiling = tiling or tiling_for(rows, INTEGER_TILINGS)
    writer = Writer()
    writer.head.append(HEAD.format(package=PACKAGE))
    for name, value in (
        ("rows", rows),
        ("columns", columns),
        ("depth", 4 * words),
        ("words", words),
        ("groups", scales.shape[1]),
    ):
        writer.parameter(name, value)
    for name, buffer in (("a", codes), ("scales", scales), ("w", w.seen_by_runs()), ("y", y)):
        writer.parameter(name, buffer)
    if sums is not None:
        writer.parameter("sums", sums)
        writer.parameter("runs", sums.shape[1])
    assert w.run is not None
    w.run.head(writer, "w")
    kernel = _Kernel(writer, tiling, w.run)
    blocks = grid(writer, tiling, rows, columns, 1)
    head(writer, tiling)
    kernel.arrays()
    stages(writer, tiling, 4 * tiling.words, [kernel.fill_rows, kernel.fill_weights], kernel.multiply)
    store = storage_of(y.dtype).store
    stores(
        writer,
        tiling,
        _nothing,
        _nothing,
        lambda level, found: writer.add(level, f"y[m * columns + n] = {store.format(found)}"),
    )
    return Launch(
        source_module.compile_source(f"integers by {w.form.name} on tensor cores", writer.text(), (tiling.threads,)),
        writer.values,
        blocks,
    )


def _nothing(level: int, name: str) -> None:
    """No per-row or per-column code."""


class _Kernel:
    def __init__(self, writer: Writer, tiling: Tiling, run: Runs) -> None:
        self.writer, self.tiling, self.run, self.least = writer, tiling, run, run.least
        self.groups, self.runs = 4 * tiling.words // GROUP, 4 * tiling.words // self.run.length

    def arrays(self) -> None:
        """Shared arrays for the scales of a stage, by run, then by row or column."""
        tiling = self.tiling
        self.writer.add(
            1,
            shared("row_scale", 2 * self.groups * tiling.rows, "float32"),
            shared("scale", 2 * self.runs * tiling.columns, "float32"),
        )
        if self.least:
            self.writer.add(
                1,
                shared("row_sum", 2 * self.runs * tiling.rows, "float32"),
                shared("least", 2 * self.runs * tiling.columns, "float32"),
            )

    def fill_rows(self, writer: Writer, base: str, to: str) -> None:
        """Load codes by 16 bytes, then scales and sums."""
        tiling, across = self.tiling, self.tiling.words // 4
        writer.add(
            3,
            f"for e in range(thread, {tiling.rows * across}, {tiling.threads}):",
            f"    place, item = e // {across}, e % {across}",
            f"    at, deep = tile_y * {tiling.rows} + place, {base} + item * 16",
            "    there = at < rows and deep < depth",
            f"    cp_async(left, {to} + place * {tiling.pitch} + item * 4, a, at * words + deep // 4 if there else "
            "0, there)",
        )
        filled = [("row_scale", "scales", "groups", self.groups, GROUP)]
        filled += [("row_sum", "sums", "runs", self.runs, self.run.length)] if self.least else []
        for name, source, count, each, length in filled:
            writer.add(
                3,
                f"for e in range(thread, {tiling.rows * each}, {tiling.threads}):",
                f"    place, item = e // {each}, e % {each}",
                f"    at, item_at = tile_y * {tiling.rows} + place, {base} // {length} + item",
                "    number = np.float32(0)",
                f"    if at < rows and item_at < {count}:",
                f"        number = {source}[at * {count} + item_at]",
                f"    {name}[((1 - stage) * {each} + item) * {tiling.rows} + place] = number",
            )

    def fill_weights(self, writer: Writer, base: str, to: str) -> None:
        """Load sixteen codes per thread, and the scale of their run."""
        tiling, across, run = self.tiling, self.tiling.words // 4, self.run
        writer.add(
            3,
            f"for e in range(thread, {tiling.columns * across}, {tiling.threads}):",
            f"    place, item = e // {across}, e % {across}",
            f"    at, deep = tile_x * {tiling.columns} + place, {base} + item * 16",
            f"    word = {to} + place * {tiling.pitch} + item * 4",
            f"    held = ((1 - stage) * {self.runs} + item * 16 // {run.length}) * {tiling.columns} + place",
            "    if at < columns and deep < depth:",
        )
        writer.add(
            5,
            "index = at * depth + deep",
            *run.find("index"),
            "for four in range(4):",
            f"    right[word + four] = {run.four('w', 'four_at + four')}",
            "if four_at == 0:",
            f"    scale[held] = {run.scale('w')}",
        )
        if self.least:
            writer.add(6, f"least[held] = {run.subtracted('w')}")
        writer.add(
            4, "else:", "    for four in range(4):", "        right[word + four] = 0", "    scale[held] = np.float32(0)"
        )
        if self.least:
            writer.add(5, "least[held] = np.float32(0)")

    def multiply(self) -> None:
        """One integer product per run, scaled per row and column."""
        down, across = self.tiling.tiles
        halves = GROUP // self.run.length
        for group in range(self.groups):
            loads(self.writer, self.tiling, 8 * group)
            for half in range(halves):
                number = group * halves + half
                self._scales("p", "row_scale", self.groups, group, down=True)
                self._scales("q", "scale", self.runs, number, down=False)
                if self.least:
                    self._scales("t", "row_sum", self.runs, number, down=True)
                    self._scales("l", "least", self.runs, number, down=False)
                for i in range(down):
                    for j in range(across):
                        self._tile(i, j, half, halves)

    def _scales(self, name: str, array: str, each: int, number: int, down: bool) -> None:
        """Load a thread's per-row or per-column values as ``p0_0``, ``p0_1``, ``p1_0``, ..."""
        tiles, length = (
            (self.tiling.tiles[0], self.tiling.rows) if down else (self.tiling.tiles[1], self.tiling.columns)
        )
        for tile in range(tiles):
            for side in range(2):
                place = (
                    f"warp_row + {16 * tile + 8 * side} + lane // 4"
                    if down
                    else f"warp_column + {8 * tile + side} + lane % 4 * 2"
                )
                self.writer.add(3, f"{name}{tile}_{side} = {array}[(stage * {each} + {number}) * {length} + {place}]")

    def _tile(self, i: int, j: int, half: int, halves: int) -> None:
        zeros, integers = ", ".join(["np.int32(0)"] * 4), ", ".join(f"i{e}" for e in range(4))
        if halves == 1:
            operands = ", ".join([f"a{i}_{item}" for item in range(4)] + [f"b{j}_{item}" for item in range(2)])
            self.writer.add(3, f"{integers} = mma_s8({zeros}, {operands})")
        else:
            operands = f"a{i}_{2 * half}, a{i}_{2 * half + 1}, b{j}_{half}"
            self.writer.add(3, f"{integers} = mma_s8_k16({zeros}, {operands})")
        for e in range(4):
            row, column = f"{i}_{e // 2}", f"{j}_{e % 2}"
            found = f"np.float32(i{e}) * q{column}" + (f" - t{row} * l{column}" if self.least else "")
            self.writer.add(3, f"s{i}_{j}_{e} += ({found}) * p{row}")
