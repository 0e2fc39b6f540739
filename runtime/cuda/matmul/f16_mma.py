"""f16 and bf16 GEMM on tensor cores with f32 accumulation; quantized operands are dequantized into the tiles.

Source: the m16n8k16 instructions of PTX (two of m16n8k8 on compute capability 7.5). Contiguous operands are copied
with cp.async.
"""

from __future__ import annotations

import numpy as np

from ...plan.kernel_api import Buffer
from ..element.block_quantized import QuantizedBuffer
from ..element.element import storage_of
from ..element.kernel_text import PACKAGE
from ..kernel import source_module
from ..kernel.contraction_axes import Contraction, offsets
from ..kernel.kernel import Launch
from ..kernel.operand import Writer
from .mma_tile import Tiling, grid, head, multiply_stage, stages, stores, tiling_for

KINDS = {"float16": "f16", "bfloat16": "bf16"}
MIN_CAPABILITY = {"f16": (7, 5), "bf16": (8, 0)}
"""Minimum compute capability of each input type."""
WORDS = np.dtype(np.int32)
HEAD = (
    "from {package}.device.mma import bf16_pair, cp_async, cp_async_commit, cp_async_wait, ldmatrix, "
    "f16_pair, mma_bf16, mma_f16"
)
SIXTEEN = 16
"""Elements of a quantized row that a thread dequantizes at a time."""


def mma_input_type(a: Buffer, b: Buffer) -> str | None:
    """The input type for tensor cores, None if unsupported: both operands have the same 16-bit dtype, or one is
    quantized."""
    kinds = {KINDS.get(item.dtype.name) for item in (a, b) if not isinstance(item, QuantizedBuffer)}
    return kinds.pop() if len(kinds) == 1 else None


def f16_gemm(a: Buffer, b: Buffer, c: Buffer, axes: Contraction, kind: str, tiling: Tiling | None = None) -> Launch:
    """c = sum over depth of a * b."""
    stack, rows, columns, depth = axes.stack, axes.rows, axes.columns, axes.depth
    tiling = tiling or tiling_for(rows.count)
    writer = Writer()
    writer.head.append(HEAD.format(package=PACKAGE))
    sides = [_Fill(name, axes, buffer, kind, tiling) for name, buffer in (("a", a), ("b", b))]
    ways = [side.way for side in sides]
    for name, buffer, start, way in zip("abc", (a, b, c), axes.starts, (*ways, None), strict=True):
        whole = buffer.view((buffer.count // 2,), dtype=WORDS) if way == "copied" else buffer
        writer.parameter(name, whole.seen_by_runs() if isinstance(whole, QuantizedBuffer) and way == "runs" else whole)
        writer.parameter(f"{name}_start", start)
    for name, count in (("rows", rows.count), ("columns", columns.count), ("depth", depth.count)):
        writer.parameter(name, count)
    blocks = grid(writer, tiling, rows.count, columns.count, stack.count)
    head(writer, tiling)
    offsets(writer, 1, "s", "matrix", stack, {"a": "a_s", "b": "b_s", "c": "c_s"})
    stages(
        writer, tiling, 2 * tiling.words, [side.write for side in sides], lambda: multiply_stage(writer, tiling, kind)
    )
    stores(
        writer,
        tiling,
        lambda level, at: offsets(writer, level, "m", at, rows, {"c": "c_m"}),
        lambda level, at: offsets(writer, level, "n", at, columns, {"c": "c_n"}),
        lambda level, found: writer.add(
            level, f"c[c_start + c_s + c_m + c_n] = {storage_of(c.dtype).store.format(found)}"
        ),
    )
    title = f"product of {a.dtype} and {b.form.name if isinstance(b, QuantizedBuffer) else b.dtype} on tensor cores"
    kernel = source_module.compile_source(title, writer.text(), (tiling.threads,), MIN_CAPABILITY[kind])
    return Launch(kernel, writer.values, blocks)


def _way(name: str, axes: Contraction, buffer: Buffer, kind: str) -> str:
    """How a tile is loaded: ``copied`` by 16 bytes, ``runs`` of quantized elements, or single ``elements``."""
    stack, depth = axes.stack, axes.depth
    strides, start = (
        ((stack.a, axes.rows.a, depth.a), axes.starts[0])
        if name == "a"
        else ((stack.b, axes.columns.b, depth.b), axes.starts[1])
    )
    along = [stride for length, stride in zip(depth.lengths, strides[2] or (), strict=True) if length > 1]
    others = [start, *(strides[0] or ()), *(strides[1] or ())]
    if along != [1]:
        return "elements"
    if isinstance(buffer, QuantizedBuffer):
        return "runs" if buffer.run is not None and not any(item % buffer.form.whole for item in others) else "elements"
    aligned = not any(item % 8 for item in (depth.count, *others)) and buffer.offset % 16 == 0 and buffer.count % 8 == 0
    return "copied" if aligned and KINDS.get(buffer.dtype.name) == kind else "elements"


class _Fill:
    """Code that loads one operand's tile."""

    def __init__(self, name: str, axes: Contraction, buffer: Buffer, kind: str, tiling: Tiling) -> None:
        self.name, self.depth, self.buffer, self.tiling = name, axes.depth, buffer, tiling
        self.way = _way(name, axes, buffer, kind)
        if name == "a":
            self.tile, self.limit, self.rows, self.group, self.block = (
                "left",
                "rows",
                tiling.rows,
                axes.rows,
                f"tile_y * {tiling.rows}",
            )
        else:
            self.tile, self.limit, self.rows, self.group, self.block = (
                "right",
                "columns",
                tiling.columns,
                axes.columns,
                f"tile_x * {tiling.columns}",
            )
        self.pair = "f16_pair" if kind == "f16" else "bf16_pair"
        self.same = not isinstance(buffer, QuantizedBuffer) and KINDS.get(buffer.dtype.name) == kind

    def write(self, writer: Writer, base: str, to: str) -> None:
        """Write the code at depth 3."""
        each = {"copied": 4, "runs": SIXTEEN // 2, "elements": 1}[self.way]
        across = self.tiling.words // each
        writer.add(3, f"for e in range(thread, {self.rows * across}, {self.tiling.threads}):")
        writer.add(4, f"place, item = e // {across}, e % {across}", f"at = {self.block} + place")
        writer.add(
            4, f"word = {to} + place * {self.tiling.pitch} + item * {each}", f"deep = {base} + item * {2 * each}"
        )
        getattr(self, f"_{self.way}")(writer)

    def _row(self, writer: Writer, level: int) -> None:
        offsets(writer, level, "m" if self.name == "a" else "n", "at", self.group, {self.name: "found_at"})
        writer.add(level, f"found_at += {self.name}_start + {self.name}_s")

    def _copied(self, writer: Writer) -> None:
        writer.add(4, f"there = at < {self.limit} and deep < depth", "source = np.int64(0)", "if there:")
        self._row(writer, 5)
        writer.add(5, "source = (found_at + deep) // 2")
        writer.add(4, f"cp_async({self.tile}, word, {self.name}, source, there)")

    def _elements(self, writer: Writer) -> None:
        zero = f"np.{'int32' if self.same else 'float32'}(0)"
        writer.add(4, f"low, high = {zero}, {zero}", f"if at < {self.limit}:")
        self._row(writer, 5)
        for name, more in (("low", 0), ("high", 1)):
            writer.add(5, f"k = deep + {more}", "if k < depth:")
            offsets(writer, 6, "d", "k", self.depth, {self.name: "found_deep"})
            if self.same:
                writer.add(6, f"{name} = np.int32({self.name}[found_at + found_deep])")
            else:
                writer.add(6, f"{name} = np.float32({writer.loaded(self.buffer, self.name, 'found_at + found_deep')})")
        writer.add(
            4, f"{self.tile}[word] = " + ("low | (high << np.int32(16))" if self.same else f"{self.pair}(low, high)")
        )

    def _runs(self, writer: Writer) -> None:
        assert isinstance(self.buffer, QuantizedBuffer)
        name, run = self.name, self.buffer.run
        assert run is not None
        writer.head.append(f"from {PACKAGE}.element.bits import from_packed")
        run.head(writer, name)
        writer.add(4, f"if at < {self.limit} and deep < depth:")
        self._row(writer, 5)
        writer.add(
            5,
            "index = found_at + deep",
            *run.find("index"),
            f"scale = {run.scale(name)}",
            f"least = {run.subtracted(name) if run.least else 'np.float32(0)'}",
            f"for four in range({SIXTEEN // 4}):",
            f"    codes = {run.four(name, 'four_at + four')}",
        )
        for more in (0, 2):
            values = ", ".join(f"from_packed(codes, {more + item}) * scale - least" for item in range(2))
            writer.add(6, f"{self.tile}[word + 2 * four + {more // 2}] = {self.pair}({values})")
        writer.add(4, "else:", f"    for four in range({SIXTEEN // 2}):", f"        {self.tile}[word + four] = 0")
