"""Flash attention on the device: keys are read tile by tile with a running softmax; scores are never stored.

Source: Dao et al. 2022, FlashAttention (arXiv:2205.14135). A block of threads has a few queries whose heads share one
of the keys; a thread scores one key of a tile, then sums some elements of the values. Where there are few queries and
many keys, blocks share the keys, and a second launch joins what they found (Dao et al. 2023, Flash-Decoding). Keys and
values may lie in pages (Kwon et al. 2023, arXiv:2309.06180).
"""

from __future__ import annotations

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.cuda.device.device import SIMULATED
from ...runtime.cuda.element.element import storage_of
from ...runtime.cuda.kernel import source_module
from ...runtime.cuda.kernel.elementwise import blocks_for
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Operand, Writer
from ...runtime.plan.kernel_api import Allocation, Buffer

THREADS, QUERIES = (4, 2) if SIMULATED else (128, 4)
CHUNK = 5 if SIMULATED else 256
"""Keys from which they are shared by blocks."""
BUSY = 8 if SIMULATED else 256
"""Blocks that keep a card busy."""
SPLITS = 64
"""The most parts that keys are cut in."""
WIDEST = 512
"""Elements of a head up to which its queries fit into shared memory."""
BOOL, F32 = np.dtype(np.bool_), np.dtype(np.float32)


@dataclass(frozen=True)
class Heads:
    """[batch, heads, length, size] in any order of axes."""

    buffer: Buffer
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]

    @property
    def operand(self) -> Operand:
        """The heads as an operand over their whole shape."""
        return Operand(self.buffer, self.strides)


@dataclass(frozen=True)
class Pages:
    """Keys and values in pages; every token is a batch of its own, with one query, and the length of keys and values is
    that of all pages.

    Attributes:
        table: integers [sequences, pages], which pages a sequence has in turn.
        sequences, places: int64 [tokens], the sequence of a token and its position there.
        size: slots of a page.
        flag: set to 1 where a sequence has no such page.
    """

    table: Buffer
    sequences: Buffer
    places: Buffer
    size: int
    flag: Buffer


@dataclass(frozen=True)
class Rule:
    """Visibility of keys, and scaling, capping and masking of scores.

    Attributes:
        offset: int64 arrays of one number, or one for each of the batch: the index of the first query among the keys;
            length: how many keys count.
        left, right: how far a query sees, -1 for everything.
        mask: broadcasts to [batch, heads, queries, keys]; keys beyond its end are hidden.
        sink: one more score for each head, which takes its part of the softmax and gives no value.
    """

    scale: float
    softcap: float
    offset: Buffer
    causal: bool
    left: int
    right: int
    length: Buffer | None
    mask: Buffer | None
    sink: Buffer | None = None

    @property
    def placed(self) -> bool:
        """Whether it matters where a query is."""
        return self.causal or self.left >= 0 or self.right >= 0

    def declare(self, writer: Writer, places: Buffer | None = None) -> None:
        """The parameters of a kernel that follows the rule: `offset` and so on; `places` are offsets for each of the
        batch, instead of the rule's."""
        writer.parameter("scale", float(self.scale))
        if self.softcap > 0:
            writer.parameter("cap", float(self.softcap))
        if self.placed:
            writer.parameter("offset", self.offset if places is None else places)
            writer.parameter("offset_n", int(places is not None or self.offset.count > 1))
            writer.parameter("left", self.left)
            writer.parameter("right", 0 if self.causal else self.right)
        if self.length is not None:
            writer.parameter("length", self.length)
            writer.parameter("length_n", int(self.length.count > 1))
        if self.mask is not None:
            writer.parameter("mask", self.mask)
            shape = (1,) * (4 - len(self.mask.shape)) + self.mask.shape
            strides = (0,) * (4 - len(self.mask.shape)) + self.mask.strides
            for axis, step, count in zip("nhl", strides, shape, strict=False):
                writer.parameter(f"mask_{axis}", 0 if count == 1 else step)
            writer.parameter("mask_keys", shape[3])
            writer.parameter("mask_e", 0 if shape[3] == 1 else 1)

    def declare_sink(self, writer: Writer) -> None:
        """The parameter of a kernel that adds sinks."""
        if self.sink is not None:
            writer.parameter("sink", self.sink)

    def sunk(self, total: str, top: str, head: str) -> list[str]:
        """Lines that add a head's sink to a sum of powers of e over the score `top`."""
        if self.sink is None:
            return []
        loaded = storage_of(self.sink.dtype).load.format(f"sink[{head}]")
        return [f"if {total} != np.float32(0):", f"    {total} += np.float32(math.exp(np.float32({loaded}) - {top}))"]


def fits(size: int, width: int) -> bool:
    """Whether heads of this size are computed so."""
    return 0 < size <= WIDEST and 0 < width <= WIDEST


def flash(q: Heads, k: Heads, v: Heads, y: Heads, rule: Rule, pages: Pages | None = None) -> list[Launch]:
    """y = softmax(scores) v in f32, heads of queries sharing those of keys."""
    n, heads, queries, size = q.shape
    groups, keys, width = k.shape[1], k.shape[2], v.shape[3]
    if pages is not None:
        keys = pages.table.shape[1] * pages.size
    each = heads // groups
    tiles = -(-(queries * each) // QUERIES)
    units = n * groups * tiles
    splits = max(1, min(SPLITS, -(-keys // CHUNK), BUSY // units))
    writer = Writer()
    counts = {
        "groups": groups,
        "each": each,
        "rows": queries * each,
        "keys": keys,
        "tiles": tiles,
        "splits": splits,
        "chunk": -(-keys // splits),
    }
    for name, number in counts.items():
        writer.parameter(name, number)
    for name, item in zip("qkv", (q, k, v), strict=True):
        _strided(writer, name, item)
    parts = None
    if splits == 1:
        _strided(writer, "y", y)
    else:
        parts = [
            Buffer(F32, (n * heads * queries, splits, count), Allocation(4 * n * heads * queries * splits * count))
            for count in (2, width)
        ]
        writer.parameter("found_rows", parts[0])
        writer.parameter("found_sums", parts[1])
    kernel = _Kernel(writer, rule, pages, (q, k, v, y), size, width, splits)
    kernel.write(queries)
    title = (
        "attention by tiles of "
        f"keys{' in pages' if pages is not None else ''}{', which blocks share' if parts is not None else ''}"
    )
    made = source_module.compile_source(title, "\n".join(["import math", writer.text()]), (THREADS,))
    launch = Launch(made, writer.values, units * splits)
    return [launch] if parts is None else [launch, _joining(parts, y, splits, rule)]


def _strided(writer: Writer, name: str, item: Heads) -> None:
    writer.parameter(name, item.buffer)
    for axis, stride in zip(("n", "h", "l", "e"), item.strides, strict=True):
        writer.parameter(f"{name}_{axis}", stride)


def _f32(name: str) -> str:
    return f"to_float32({name})"


class _Kernel:
    def __init__(
        self,
        writer: Writer,
        rule: Rule,
        pages: Pages | None,
        heads: tuple[Heads, Heads, Heads, Heads],
        size: int,
        width: int,
        splits: int,
    ) -> None:
        self.writer, self.rule, self.pages, self.splits = writer, rule, pages, splits
        self.q, self.k, self.v, self.y = heads
        self.size, self.width, self.slots = size, width, -(-width // THREADS)

    def write(self, queries: int) -> None:
        """All lines."""
        self._parameters()
        self._head()
        self._limits(queries)
        self._scores()
        self._softmax()
        self._values()
        self._results(queries)

    def _parameters(self) -> None:
        writer = self.writer
        self.rule.declare(writer, None if self.pages is None else self.pages.places)
        if self.splits == 1:
            self.rule.declare_sink(writer)
        if self.pages is not None:
            for name, buffer in (
                ("table", self.pages.table),
                ("sequences", self.pages.sequences),
                ("flag", self.pages.flag),
            ):
                writer.parameter(name, buffer)
            writer.parameter("page", self.pages.size)
            writer.parameter("table_n", self.pages.table.shape[1])
            writer.parameter("held_pages", self.k.shape[2] // self.pages.size)

    def _load(self, item: Heads, name: str, n: str, h: str, length: str, e: str) -> str:
        text = f"{name}[{n} * {name}_n + {h} * {name}_h + {length} * {name}_l + {e} * {name}_e]"
        return f"np.float32({storage_of(item.buffer.dtype).load.format(text)})"

    def _head(self) -> None:
        self.writer.add(
            1,
            f"asked = cuda.shared.array({QUERIES * self.size}, np.float32)",
            f"held = cuda.shared.array({QUERIES * THREADS}, np.float32)",
            f"joined = cuda.shared.array({QUERIES * THREADS}, np.float32)",
            f"total = cuda.local.array({QUERIES}, np.float32)",
            f"top = cuda.local.array({QUERIES}, np.float32)",
            f"fade = cuda.local.array({QUERIES}, np.float32)",
            f"sums = cuda.local.array({QUERIES * self.slots}, np.float32)",
            *([f"slot_of = cuda.shared.array({THREADS}, np.int64)"] if self.pages is not None else []),
            "thread = np.int64(cuda.threadIdx.x)",
            "split = np.int64(cuda.blockIdx.x) % splits",
            "unit = np.int64(cuda.blockIdx.x) // splits",
            f"first = unit % tiles * {QUERIES}",
            "group = unit // tiles % groups",
            "batch = unit // tiles // groups",
            *(["key_batch = batch"] if self.pages is None else ["key_batch, sequence = np.int64(0), sequences[batch]"]),
            f"for e in range(thread, {QUERIES * self.size}, {THREADS}):",
            f"    row, at = first + e // {self.size}, e % {self.size}",
            "    number = np.float32(0)",
            "    if row < rows:",
            "        number = "
            f"{self._load(self.q, 'q', 'batch', '(group * each + row % each)', '(row // each)', 'at')}",
            f"    asked[e] = number * {_f32('scale')}",
            f"for r in range({QUERIES}):",
            "    total[r] = np.float32(0)",
            "    top[r] = np.float32(-np.inf)",
            f"for e in range({QUERIES * self.slots}):",
            "    sums[e] = np.float32(0)",
            "cuda.syncthreads()",
            "start, stop = split * chunk, min(keys, (split + 1) * chunk)",
        )

    def _limits(self, queries: int) -> None:
        """Keys that none of the block's queries sees are not looked at."""
        rule, writer = self.rule, self.writer
        if rule.length is not None:
            writer.add(1, "stop = min(stop, to_int64(length[batch * length_n]))")
        if rule.placed:
            writer.add(1, "place = to_int64(offset[batch * offset_n])")
            if rule.causal or rule.right >= 0:
                writer.add(1, f"stop = min(stop, place + min(first + {QUERIES - 1}, rows - 1) // each + 1 + right)")
            if rule.left >= 0:
                writer.add(1, "start = max(start, place + first // each - left)")
        if rule.mask is not None and rule.mask.shape[-1] != 1:
            writer.add(1, "stop = min(stop, mask_keys)")

    def _scores(self) -> None:
        writer, rule = self.writer, self.rule
        writer.add(1, f"for base in range(start, stop, {THREADS}):", "    key = base + thread")
        slot = "key"
        if self.pages is not None:
            slot = "slot"
            writer.add(
                2,
                "slot = np.int64(0)",
                "if key < stop:",
                "    slot = to_int64(table[sequence * table_n + key // page])",
            )
            writer.add(
                3,
                "if slot < 0 or slot >= held_pages:",
                "    flag[0] = 1",
                "    slot = np.int64(0)",
                "slot = slot * page + key % page",
            )
            writer.add(2, "slot_of[thread] = slot")
        writer.add(
            2,
            f"for r in range({QUERIES}):",
            "    score, row = np.float32(-np.inf), first + r",
            "    if key < stop and row < rows:",
        )
        writer.add(
            4,
            "query, head, dot = row // each, group * each + row % each, np.float32(0)",
            f"for e in range({self.size}):",
        )
        writer.add(
            4,
            f"    dot += asked[r * {self.size} + e] * {self._load(self.k, 'k', 'key_batch', 'group', slot, 'e')}",
            "score = dot",
        )
        if rule.softcap > 0:
            writer.add(4, f"score = np.float32(math.tanh(score / {_f32('cap')})) * {_f32('cap')}")
        if rule.mask is not None:
            loaded = storage_of(rule.mask.dtype).load.format(
                "mask[batch * mask_n + head * mask_h + query * mask_l + key * mask_e]"
            )
            writer.add(
                4,
                f"score = score if {loaded} else np.float32(-np.inf)"
                if rule.mask.dtype == BOOL
                else f"score += np.float32({loaded})",
            )
        if rule.causal or rule.right >= 0:
            writer.add(4, "if key > place + query + right:", "    score = np.float32(-np.inf)")
        if rule.left >= 0:
            writer.add(4, "if key < place + query - left:", "    score = np.float32(-np.inf)")
        writer.add(3, f"held[r * {THREADS} + thread] = score", f"joined[r * {THREADS} + thread] = score")

    def _joined(self, join: str) -> None:
        """All threads' numbers of each row joined in a fixed order."""
        self.writer.add(
            2,
            "cuda.syncthreads()",
            f"half_width = {THREADS // 2}",
            "while half_width > 0:",
            "    if thread < half_width:",
            f"        for r in range({QUERIES}):",
            f"            here = r * {THREADS} + thread",
            "            one, other = joined[here], joined[here + half_width]",
            f"            joined[here] = {join}",
            "    cuda.syncthreads()",
            "    half_width //= 2",
        )

    def _softmax(self) -> None:
        """Scores become powers of e over the largest score so far; what was found before fades."""
        writer, none = self.writer, "np.float32(-np.inf)"
        self._joined("one if one > other else other")
        writer.add(
            2,
            f"for r in range({QUERIES}):",
            f"    new = joined[r * {THREADS}] if joined[r * {THREADS}] > top[r] else top[r]",
        )
        writer.add(
            3, f"fade[r] = np.float32(math.exp(top[r] - new)) if top[r] > {none} else np.float32(0)", "top[r] = new"
        )
        writer.add(2, "cuda.syncthreads()", f"for r in range({QUERIES}):", f"    mine = held[r * {THREADS} + thread]")
        writer.add(3, f"power = np.float32(math.exp(mine - top[r])) if mine != {none} else np.float32(0)")
        writer.add(3, f"held[r * {THREADS} + thread] = power", f"joined[r * {THREADS} + thread] = power")
        self._joined("one + other")

    def _values(self) -> None:
        writer = self.writer
        slot = "(base + j)" if self.pages is None else "slot_of[j]"
        writer.add(2, f"many = min({THREADS}, stop - base)", f"for r in range({QUERIES}):")
        writer.add(3, f"total[r] = total[r] * fade[r] + joined[r * {THREADS}]")
        writer.add(
            2,
            f"for at_slot in range({self.slots}):",
            f"    at = at_slot * {THREADS} + thread",
            f"    if at < {self.width}:",
        )
        writer.add(4, f"for r in range({QUERIES}):", f"    sums[r * {self.slots} + at_slot] *= fade[r]")
        writer.add(
            4, "for j in range(many):", f"    value = {self._load(self.v, 'v', 'key_batch', 'group', slot, 'at')}"
        )
        writer.add(
            5, f"for r in range({QUERIES}):", f"    sums[r * {self.slots} + at_slot] += held[r * {THREADS} + j] * value"
        )
        writer.add(2, "cuda.syncthreads()")

    def _results(self, queries: int) -> None:
        writer = self.writer
        writer.add(1, f"for r in range({QUERIES}):", "    row = first + r", "    if row < rows:")
        writer.add(3, "query, head = row // each, group * each + row % each")
        if self.splits > 1:
            writer.add(
                3, f"part = ((batch * groups * each + head) * {queries} + query) * splits + split", "if thread == 0:"
            )
            writer.add(4, "found_rows[2 * part] = top[r]", "found_rows[2 * part + 1] = total[r]")
        else:
            writer.add(3, *self.rule.sunk("total[r]", "top[r]", "head"))
        writer.add(
            3,
            f"for at_slot in range({self.slots}):",
            f"    at = at_slot * {THREADS} + thread",
            f"    if at < {self.width}:",
        )
        writer.add(5, f"found = sums[r * {self.slots} + at_slot]")
        if self.splits > 1:
            writer.add(5, f"found_sums[part * {self.width} + at] = found")
            return
        writer.add(5, "if total[r] != np.float32(0):", "    found = found / total[r]")
        writer.add(
            5,
            "y[batch * y_n + head * y_h + query * y_l + at * y_e] = "
            f"{storage_of(self.y.buffer.dtype).store.format('found')}",
        )


def _joining(parts: list[Buffer], y: Heads, splits: int, rule: Rule) -> Launch:
    """Combine the partial results over parts of the keys, rescaled by their largest scores."""
    n, heads, queries, width = y.shape
    threads = 4 if SIMULATED else 128
    writer = Writer()
    count = n * heads * queries * width
    for name, buffer in zip(("found_rows", "found_sums"), parts, strict=True):
        writer.parameter(name, buffer)
    for name, value in (("count", count), ("splits", splits), ("heads", heads), ("queries", queries), ("width", width)):
        writer.parameter(name, value)
    _strided(writer, "y", y)
    rule.declare_sink(writer)
    writer.add(
        1,
        "for i in range(np.int64(cuda.grid(1)), count, cuda.gridsize(1)):",
        "    row, at, top = i // width, i % width, np.float32(-np.inf)",
    )
    writer.add(
        2,
        "for split in range(splits):",
        "    mine = found_rows[2 * (row * splits + split)]",
        "    top = mine if mine > top else top",
    )
    writer.add(
        2,
        "total, found = np.float32(0), np.float32(0)",
        "for split in range(splits):",
        "    part = row * splits + split",
    )
    writer.add(
        3,
        "mine = found_rows[2 * part]",
        "if mine > np.float32(-np.inf):",
        "    share = np.float32(math.exp(mine - top))",
    )
    writer.add(4, "total += share * found_rows[2 * part + 1]", "found += share * found_sums[part * width + at]")
    writer.add(2, "place = row // queries", *rule.sunk("total", "top", "place % heads"))
    writer.add(2, "if total != np.float32(0):", "    found = found / total")
    store = storage_of(y.buffer.dtype).store.format("found")
    writer.add(2, f"y[place // heads * y_n + place % heads * y_h + row % queries * y_l + at * y_e] = {store}")
    kernel = source_module.compile_source(
        "parts of attention joined", "\n".join(["import math", writer.text()]), (threads,)
    )
    return Launch(kernel, writer.values, blocks_for(count, threads))
