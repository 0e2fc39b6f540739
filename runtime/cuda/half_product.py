"""Products of halves on tensor cores, with sums in f32: operands as in `product.py`, plain ones of f16 or bf16 and quantized ones that are decoded
into the tiles.

Source: the m16n8k16 instructions of PTX (two of m16n8k8 on compute capability 7.5). What is copied as it lies goes by copies that do not wait.
"""

from __future__ import annotations

import numpy as np

from ..launch import Buffer
from . import generated
from .coded import Coded
from .element import stored
from .group import Axes, offsets
from .kernel import Launch
from .operand import Writer
from .tiles import Tiling, grid, halves, head, stages, stores, tiling_for

KINDS = {"float16": "f16", "bfloat16": "bf16"}
LEAST = {"f16": (7, 5), "bf16": (8, 0)}
"""Compute capability from which there are products of a kind."""
WORDS = np.dtype(np.int32)
HEAD = "from {package}.warp import await_copies, brain_pair, close_copies, copy_sixteen, load_four, multiply_bf16, multiply_f16, pair"
SIXTEEN = 16
"""Elements of a quantized row that a thread decodes together."""


def half_kind(a: Buffer, b: Buffer) -> str | None:
    """What operands are multiplied in, None where tensor cores cannot: both of one dtype of 16 bits, or one of them quantized."""
    kinds = {KINDS.get(item.dtype.name) for item in (a, b) if not isinstance(item, Coded)}
    return kinds.pop() if len(kinds) == 1 else None


def half_product(
    a: Buffer, b: Buffer, c: Buffer, stack: Axes, rows: Axes, columns: Axes, depth: Axes, starts: tuple[int, int, int], kind: str,
    tiling: Tiling | None = None,
) -> Launch:
    """c = sum over depth of a * b."""
    tiling = tiling or tiling_for(rows.count)
    writer = Writer()
    writer.head.append(HEAD.format(package=__package__))
    ways = [_way(*item, stack, depth, kind) for item in ((a, rows, starts[0], "a"), (b, columns, starts[1], "b"))]
    for name, buffer, start, way in zip("abc", (a, b, c), starts, (*ways, None), strict=True):
        whole = buffer.view((buffer.count // 2,), dtype=WORDS) if way == "copied" else buffer
        writer.parameter(name, whole.seen_by_runs() if isinstance(whole, Coded) and way == "runs" else whole)
        writer.parameter(f"{name}_start", start)
    for name, count in (("rows", rows.count), ("columns", columns.count), ("depth", depth.count)):
        writer.parameter(name, count)
    blocks = grid(writer, tiling, rows.count, columns.count, stack.count)
    head(writer, tiling)
    offsets(writer, 1, "s", "matrix", stack, {"a": "a_s", "b": "b_s", "c": "c_s"})
    fills = [
        _Fill(name, limit, block, group, depth, buffer, kind, tiling, way).write
        for name, limit, block, group, buffer, way in (
            ("a", "rows", f"tile_y * {tiling.rows}", rows, a, ways[0]), ("b", "columns", f"tile_x * {tiling.columns}", columns, b, ways[1]),
        )
    ]
    stages(writer, tiling, 2 * tiling.words, fills, lambda: halves(writer, tiling, kind))
    stores(
        writer, tiling, lambda level, at: offsets(writer, level, "m", at, rows, {"c": "c_m"}),
        lambda level, at: offsets(writer, level, "n", at, columns, {"c": "c_n"}),
        lambda level, found: writer.add(level, f"c[c_start + c_s + c_m + c_n] = {stored(c.dtype).store.format(found)}"),
    )
    title = f"product of {a.dtype} and {b.form.name if isinstance(b, Coded) else b.dtype} on tensor cores"
    kernel = generated.made(title, writer.text(), (tiling.threads,), LEAST[kind])
    return Launch(kernel, writer.values, blocks)


def _way(buffer: Buffer, group: Axes, start: int, name: str, stack: Axes, depth: Axes, kind: str) -> str:
    """How a tile is filled: ``copied`` by 16 bytes, ``runs`` of quantized numbers, ``elements`` one by one."""
    strides = (stack.a, group.a, depth.a) if name == "a" else (stack.b, group.b, depth.b)
    along = [stride for length, stride in zip(depth.lengths, strides[2] or (), strict=True) if length > 1]
    others = [start, *(strides[0] or ()), *(strides[1] or ())]
    if along != [1]:
        return "elements"
    if isinstance(buffer, Coded):
        return "runs" if buffer.run is not None and not any(item % buffer.form.whole for item in others) else "elements"
    aligned = not any(item % 8 for item in (depth.count, *others)) and buffer.offset % 16 == 0 and buffer.count % 8 == 0
    return "copied" if aligned and KINDS.get(buffer.dtype.name) == kind else "elements"


class _Fill:
    """Lines that fill one operand's tile."""

    def __init__(
        self, name: str, limit: str, block: str, group: Axes, depth: Axes, buffer: Buffer, kind: str, tiling: Tiling, way: str,
    ) -> None:
        self.name, self.limit, self.block, self.group, self.depth, self.buffer = name, limit, block, group, depth, buffer
        self.tiling, self.way = tiling, way
        self.tile = "left" if name == "a" else "right"
        self.rows = tiling.rows if name == "a" else tiling.columns
        self.pair = "pair" if kind == "f16" else "brain_pair"
        self.same = not isinstance(buffer, Coded) and KINDS.get(buffer.dtype.name) == kind

    def write(self, writer: Writer, base: str, to: str) -> None:
        """At depth 3."""
        each = {"copied": 4, "runs": SIXTEEN // 2, "elements": 1}[self.way]
        across = self.tiling.words // each
        writer.add(3, f"for e in range(thread, {self.rows * across}, {self.tiling.threads}):")
        writer.add(4, f"place, item = e // {across}, e % {across}", f"at = {self.block} + place")
        writer.add(4, f"word = {to} + place * {self.tiling.pitch} + item * {each}", f"deep = {base} + item * {2 * each}")
        getattr(self, f"_{self.way}")(writer)

    def _row(self, writer: Writer, level: int) -> None:
        offsets(writer, level, "m" if self.name == "a" else "n", "at", self.group, {self.name: "found_at"})
        writer.add(level, f"found_at += {self.name}_start + {self.name}_s")

    def _copied(self, writer: Writer) -> None:
        writer.add(4, f"there = at < {self.limit} and deep < depth", "source = np.int64(0)", "if there:")
        self._row(writer, 5)
        writer.add(5, "source = (found_at + deep) // 2")
        writer.add(4, f"copy_sixteen({self.tile}, word, {self.name}, source, there)")

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
        writer.add(4, f"{self.tile}[word] = " + ("low | (high << np.int32(16))" if self.same else f"{self.pair}(low, high)"))

    def _runs(self, writer: Writer) -> None:
        assert isinstance(self.buffer, Coded)
        name, run = self.name, self.buffer.run
        assert run is not None
        writer.head.append(f"from {__package__}.bits import from_packed")
        run.head(writer, name)
        writer.add(4, f"if at < {self.limit} and deep < depth:")
        self._row(writer, 5)
        writer.add(
            5, "index = found_at + deep", *run.find("index"), f"scale = {run.scale(name)}",
            f"least = {run.subtracted(name) if run.least else 'np.float32(0)'}", f"for four in range({SIXTEEN // 4}):",
            f"    codes = {run.four(name, 'four_at + four')}",
        )
        for more in (0, 2):
            values = ", ".join(f"from_packed(codes, {more + item}) * scale - least" for item in range(2))
            writer.add(6, f"{self.tile}[word + 2 * four + {more // 2}] = {self.pair}({values})")
        writer.add(4, "else:", f"    for four in range({SIXTEEN // 2}):", f"        {self.tile}[word + four] = 0")
