"""Flash attention of prompts on tensor cores: each warp keeps the scores and sums of 16 queries in registers.

Source: Dao 2023, FlashAttention-2 (arXiv:2307.08691); the registers of a product's result are those that the next
product takes as its first operand, two tiles of eight keys at a time (PTX ISA, fragments of m16n8k16). Scores are f32,
powers of e are rounded to the values' dtype.
"""

from __future__ import annotations

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.cuda.device.device import SIMULATED, capability
from ...runtime.cuda.element.element import storage_of
from ...runtime.cuda.element.kernel_text import PACKAGE
from ...runtime.cuda.kernel import source_module
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Writer
from ...runtime.cuda.matmul.f16_mma import KINDS, MIN_CAPABILITY
from ...runtime.cuda.matmul.mma_tile import LANES, shared
from .flash_cuda import BOOL, Heads, Rule

WARPS = 1 if SIMULATED else 4
ROWS, KEYS = 16 * WARPS, 16 if SIMULATED else 32
"""Queries of a block, and keys of a tile."""
FEWEST = 4 if SIMULATED else 16
"""Queries from which a block of them is worth its tiles."""
WIDEST = 128
"""Elements of a head up to which sums fit into registers."""
WORDS = np.dtype(np.int32)
HEAD = (
    "from {package}.device.mma import bf16_pair, cp_async, cp_async_commit, cp_async_wait, "
    "ldmatrix, ldmatrix_transposed, shfl_xor"
)
MORE = "from {package}.device.mma import f16_pair, mma_bf16, mma_f16"
NONE = "np.float32(-np.inf)"


def tensor_kind(q: Heads, k: Heads, v: Heads) -> str | None:
    """The dtype that tensor cores multiply these heads in, None if they cannot."""
    names = {item.buffer.dtype.name for item in (q, k, v)}
    kind = KINDS.get(names.pop()) if len(names) == 1 else None
    if (
        kind is None
        or max(q.shape[3], v.shape[3]) > WIDEST
        or q.shape[1] // k.shape[1] * q.shape[2] < FEWEST
        or capability() < MIN_CAPABILITY[kind]
    ):
        return None
    return kind


def prompt(q: Heads, k: Heads, v: Heads, y: Heads, rule: Rule, kind: str) -> Launch:
    """y = softmax(scores) v, heads of queries sharing those of keys; `kind` as `tensor_kind` says."""
    n, heads, queries, size = q.shape
    groups, keys, width = k.shape[1], k.shape[2], v.shape[3]
    each = heads // groups
    writer = Writer()
    writer.head += ["import math", *(line.format(package=PACKAGE) for line in (HEAD, MORE))]
    tiles = -(-(queries * each) // ROWS)
    counts = {"groups": groups, "each": each, "rows": queries * each, "keys": keys, "tiles": tiles}
    for name, number in counts.items():
        writer.parameter(name, number)
    kernel = _Kernel(writer, rule, kind, size, width)
    for name, item in zip("qkvy", (q, k, v, y), strict=True):
        kernel.strided(name, item)
    kernel.write(y)
    made = source_module.compile_source(
        "attention on tensor cores", writer.text(), (LANES * WARPS,), MIN_CAPABILITY[kind]
    )
    return Launch(made, writer.values, n * groups * tiles)


@dataclass(frozen=True)
class _Tile:
    """Rows of an array in shared memory.

    Attributes:
        array, name: of the parameter, and of the tile.
        rows, size, pitch: rows, elements of a row, and words from one row of the tile to the next.
        first, limit: texts of the first row, and of the one after the array's last.
        head, place: texts of a `row`'s head, and of its place in the sequence.
    """

    array: str
    name: str
    rows: int
    size: int
    pitch: int
    first: str
    limit: str
    head: str
    place: str


class _Kernel:
    """Sums of a thread: ``s{j}_{e}`` scores of tile `j` of eight keys, ``o{d}_{e}`` outputs; rows ``0`` and ``1`` are
    eight apart."""

    def __init__(self, writer: Writer, rule: Rule, kind: str, size: int, width: int) -> None:
        self.writer, self.rule, self.kind, self.size, self.width = writer, rule, kind, size, width
        self.deep, self.across = -(-size // 16), -(-width // 16)
        self.pitch, self.value_pitch = 8 * self.deep + 4, 8 * self.across + 4
        self.pair = "f16_pair" if kind == "f16" else "bf16_pair"
        self.copied: dict[str, bool] = {}

    def strided(self, name: str, item: Heads) -> None:
        """An array and its strides; one whose rows lie at multiples of 16 bytes is read as words."""
        whole = [*item.strides[:3], item.shape[3], item.buffer.count]
        self.copied[name] = (
            name != "y"
            and item.strides[3] == 1
            and item.buffer.offset % 16 == 0
            and not any(number % 8 for number in whole)
        )
        self.writer.parameter(
            name, item.buffer.view((item.buffer.count // 2,), dtype=WORDS) if self.copied[name] else item.buffer
        )
        for axis, stride in zip(("n", "h", "l", "e"), item.strides, strict=True):
            self.writer.parameter(f"{name}_{axis}", stride)

    def write(self, y: Heads) -> None:
        """All lines."""
        self.rule.declare(self.writer)
        self.rule.declare_sink(self.writer)
        self._head()
        self._load(
            1,
            _Tile(
                "q",
                "queries_tile",
                ROWS,
                self.size,
                self.pitch,
                "first",
                "rows",
                "group * each + row % each",
                "row // each",
            ),
        )
        self.writer.add(1, "cp_async_commit()", f"queries_at = (warp * 16 + lane % 16) * {self.pitch} + lane // 16 * 4")
        self.writer.add(1, f"for base in range(start, stop, {KEYS}):")
        self._load(2, _Tile("k", "keys_tile", KEYS, self.size, self.pitch, "base", "stop", "group", "row"))
        self.writer.add(2, "cp_async_commit()")
        self._load(2, _Tile("v", "values_tile", KEYS, self.width, self.value_pitch, "base", "stop", "group", "row"))
        self.writer.add(2, "cp_async_commit()", "cp_async_wait(1)", "cuda.syncthreads()")
        self._scores()
        self._softmax()
        self._sums()
        self._results(y)

    def _head(self) -> None:
        writer, rule = self.writer, self.rule
        writer.add(
            1,
            shared("queries_tile", ROWS * self.pitch, "int32"),
            shared("keys_tile", KEYS * self.pitch, "int32"),
            shared("values_tile", KEYS * self.value_pitch, "int32"),
            "thread = np.int64(cuda.threadIdx.x)",
            f"lane, warp = thread % {LANES}, thread // {LANES}",
            "unit = np.int64(cuda.blockIdx.x)",
            f"first = unit % tiles * {ROWS}",
            "group = unit // tiles % groups",
            "batch = unit // tiles // groups",
            "start, stop = np.int64(0), keys",
        )
        for side in range(2):
            writer.add(
                1,
                f"row{side} = first + warp * 16 + {8 * side} + lane // 4",
                f"top{side}, total{side} = {NONE}, np.float32(0)",
            )
            writer.add(1, f"query{side}, head{side} = row{side} // each, group * each + row{side} % each")
        for tile in range(2 * self.across):
            writer.add(1, *(f"o{tile}_{e} = np.float32(0)" for e in range(4)))
        if rule.length is not None:
            writer.add(1, "stop = min(stop, to_int64(length[batch * length_n]))")
        if rule.placed:
            writer.add(1, "place = to_int64(offset[batch * offset_n])")
            if rule.causal or rule.right >= 0:
                writer.add(1, f"stop = min(stop, place + min(first + {ROWS - 1}, rows - 1) // each + 1 + right)")
            if rule.left >= 0:
                writer.add(1, "start = max(start, place + first // each - left)")
        if rule.mask is not None and rule.mask.shape[-1] != 1:
            writer.add(1, "stop = min(stop, mask_keys)")

    def _load(self, level: int, tile: _Tile) -> None:
        """A tile of an array as words of two halves, zeros beyond its rows and elements."""
        name, words = tile.array, tile.pitch - 4
        each = 4 if self.copied[name] else 1
        writer = self.writer
        # a number of its own: unrolled, these loops would fill the registers
        items = writer.parameter(f"{name}_items", tile.rows * words // each)
        writer.add(level, f"for e in range(thread, {items}, {LANES * WARPS}):")
        writer.add(level + 1, f"line, item = e // {words // each}, e % {words // each} * {each}")
        writer.add(level + 1, f"row, word = {tile.first} + line, line * {tile.pitch} + item")
        at = f"batch * {name}_n + ({tile.head}) * {name}_h + ({tile.place}) * {name}_l"
        if self.copied[name]:
            writer.add(
                level + 1,
                f"there = row < {tile.limit} and 2 * item < {tile.size}",
                f"source = ({at} + 2 * item) // 2 if there else 0",
            )
            writer.add(level + 1, f"cp_async({tile.name}, word, {name}, source, there)")
            return
        writer.add(level + 1, "low, high = np.int32(0), np.int32(0)", f"if row < {tile.limit}:", f"    at = {at}")
        for half, number in (("low", "2 * item"), ("high", "2 * item + 1")):
            writer.add(
                level + 2, f"if {number} < {tile.size}:", f"    {half} = np.int32({name}[at + ({number}) * {name}_e])"
            )
        writer.add(level + 1, f"{tile.name}[word] = low | (high << np.int32(16))")

    def _scores(self) -> None:
        writer = self.writer
        for j in range(KEYS // 8):
            writer.add(2, *(f"s{j}_{e} = np.float32(0)" for e in range(4)))
        for deep in range(self.deep):
            operands = ", ".join(f"a{item}" for item in range(4))
            writer.add(2, f"{operands} = ldmatrix(queries_tile, queries_at + {8 * deep})")
            for j in range(0, KEYS // 8, 2):
                place = f"({8 * j} + lane % 8 + lane // 16 * 8) * {self.pitch} + lane // 8 % 2 * 4 + {8 * deep}"
                writer.add(2, f"b0, b1, b2, b3 = ldmatrix(keys_tile, {place})")
                for tile, right in ((j, "b0, b1"), (j + 1, "b2, b3")):
                    totals = ", ".join(f"s{tile}_{e}" for e in range(4))
                    writer.add(2, f"{totals} = mma_{self.kind}({totals}, {operands}, {right})")
        self._sight()
        for j in range(KEYS // 8):
            for e in range(4):
                self._score(f"s{j}_{e}", e // 2, 8 * j + e % 2)

    def _sight(self) -> None:
        """For each of a thread's rows, from which to which of the tile's keys it sees, counted from the first key of
        the thread."""
        writer, rule = self.writer, self.rule
        writer.add(2, "since = base + lane % 4 * 2")
        for side in range(2):
            writer.add(
                2,
                f"after{side} = min(stop, place + query{side} + right + 1)"
                if rule.causal or rule.right >= 0
                else f"after{side} = stop",
            )
            writer.add(2, f"after{side} = after{side} - since if row{side} < rows else np.int64(0)")
            if rule.left >= 0:
                writer.add(2, f"before{side} = place + query{side} - left - since")

    def _score(self, name: str, side: int, key: int) -> None:
        writer, rule = self.writer, self.rule
        writer.add(2, f"score = {name} * to_float32(scale)")
        if rule.softcap > 0:
            writer.add(2, "score = np.float32(math.tanh(score / to_float32(cap))) * to_float32(cap)")
        hidden = f"{key} >= after{side}" + (f" or {key} < before{side}" if rule.left >= 0 else "")
        writer.add(2, f"if {hidden}:", f"    score = {NONE}")
        if rule.mask is not None:
            at = f"batch * mask_n + head{side} * mask_h + query{side} * mask_l + (since + {key}) * mask_e"
            loaded = storage_of(rule.mask.dtype).load.format(f"mask[{at}]")
            writer.add(
                2,
                "else:",
                f"    score = score if {loaded} else {NONE}"
                if rule.mask.dtype == BOOL
                else f"    score += np.float32({loaded})",
            )
        writer.add(2, f"{name} = score")

    def _softmax(self) -> None:
        """Scores become powers of e over the row's largest score so far; neighbours of four threads have a row
        together."""
        writer = self.writer
        for side in range(2):
            mine = [f"s{j}_{2 * side + e}" for j in range(KEYS // 8) for e in range(2)]
            writer.add(2, f"new = {mine[0]}", *(f"new = {name} if {name} > new else new" for name in mine[1:]))
            for mask in (1, 2):
                writer.add(2, f"other = shfl_xor(new, np.int32({mask}))", "new = other if other > new else new")
            writer.add(2, f"new = new if new > top{side} else top{side}")
            writer.add(
                2,
                f"fade{side} = np.float32(math.exp(top{side} - new)) if top{side} > {NONE} else np.float32(0)",
                f"top{side} = new",
            )
            writer.add(2, f"total{side} *= fade{side}")
            for name in mine:
                writer.add(
                    2,
                    f"{name} = np.float32(math.exp({name} - new)) if {name} > {NONE} else np.float32(0)",
                    f"total{side} += {name}",
                )
        for tile in range(2 * self.across):
            writer.add(2, *(f"o{tile}_{e} *= fade{e // 2}" for e in range(4)))

    def _sums(self) -> None:
        writer = self.writer
        writer.add(2, "cp_async_wait(0)", "cuda.syncthreads()")
        for j in range(0, KEYS // 8, 2):
            pairs = ((j, 0), (j, 2), (j + 1, 0), (j + 1, 2))
            writer.add(
                2, *(f"a{item} = {self.pair}(s{tile}_{e}, s{tile}_{e + 1})" for item, (tile, e) in enumerate(pairs))
            )
            for tile in range(0, 2 * self.across, 2):
                place = f"({8 * j} + lane % 16) * {self.value_pitch} + lane // 16 * 4 + {4 * tile}"
                writer.add(2, f"b0, b1, b2, b3 = ldmatrix_transposed(values_tile, {place})")
                for number, right in ((tile, "b0, b1"), (tile + 1, "b2, b3")):
                    totals = ", ".join(f"o{number}_{e}" for e in range(4))
                    writer.add(2, f"{totals} = mma_{self.kind}({totals}, a0, a1, a2, a3, {right})")
        writer.add(2, "cuda.syncthreads()")

    def _results(self, y: Heads) -> None:
        writer = self.writer
        for side in range(2):
            for mask in (1, 2):
                writer.add(1, f"total{side} += shfl_xor(total{side}, np.int32({mask}))")
            writer.add(1, *self.rule.sunk(f"total{side}", f"top{side}", f"head{side}"))
            writer.add(
                1,
                f"over{side} = np.float32(1) / total{side} if total{side} != np.float32(0) else np.float32(0)",
                f"if row{side} < rows:",
            )
            writer.add(2, f"at = batch * y_n + head{side} * y_h + query{side} * y_l")
            for tile in range(2 * self.across):
                for e in range(2):
                    found = storage_of(y.buffer.dtype).store.format(f"o{tile}_{2 * side + e} * over{side}")
                    writer.add(
                        2,
                        f"element = {8 * tile + e} + lane % 4 * 2",
                        f"if element < {self.width}:",
                        f"    y[at + element * y_e] = {found}",
                    )
