"""Attention in one launch that never writes its scores: keys pass tile by tile, and what was summed before is scaled when a larger score comes.

Source: Dao et al. 2022, FlashAttention (arXiv:2205.14135). A block of threads has a few queries of one head; a thread scores one key of a tile,
then sums some elements of the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...runtime.cuda import generated
from ...runtime.cuda.element import stored
from ...runtime.cuda.kernel import Launch
from ...runtime.cuda.machine import SIMULATED
from ...runtime.cuda.operand import Operand, Writer
from ...runtime.launch import Buffer

THREADS, QUERIES = (4, 2) if SIMULATED else (128, 4)
WIDEST = 512
"""Elements of a head up to which its queries fit into shared memory."""
BOOL = np.dtype(np.bool_)


@dataclass(frozen=True)
class Heads:
    """[batch, heads, length, size] in any order of axes."""

    buffer: Buffer
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]

    @property
    def operand(self) -> Operand:
        """As an operand over its own box."""
        return Operand(self.buffer, self.strides)


@dataclass(frozen=True)
class Rule:
    """Which keys a query sees, and what becomes of its scores.

    Attributes:
        offset: int64 arrays of one number, or one for each of the batch: the place of the first query among the keys; length: how many keys count.
        left, right: how far a query sees, -1 for everything.
        mask: broadcasts to [batch, heads, queries, keys]; keys beyond its end are hidden.
    """

    scale: float
    softcap: float
    offset: Buffer
    causal: bool
    left: int
    right: int
    length: Buffer | None
    mask: Buffer | None


def fits(size: int, width: int) -> bool:
    """Whether heads of this size are computed so."""
    return 0 < size <= WIDEST and 0 < width <= WIDEST


def flash(q: Heads, k: Heads, v: Heads, y: Heads, rule: Rule) -> Launch:
    """y = softmax(scores) v in f32, heads of queries sharing those of keys."""
    n, heads, queries, size = q.shape
    keys, width = k.shape[2], v.shape[3]
    tiles = -(-queries // QUERIES)
    writer = Writer()
    for name, number in (("heads", heads), ("each", heads // k.shape[1]), ("queries", queries), ("keys", keys), ("tiles", tiles)):
        writer.parameter(name, number)
    for name, item in zip("qkvy", (q, k, v, y), strict=True):
        writer.parameter(name, item.buffer)
        for axis, stride in zip(("n", "h", "l", "e"), item.strides, strict=True):
            writer.parameter(f"{name}_{axis}", stride)
    _rule(writer, rule)
    slots = -(-width // THREADS)
    writer.add(
        1, f"asked = cuda.shared.array({QUERIES * size}, np.float32)", f"held = cuda.shared.array({QUERIES * THREADS}, np.float32)",
        f"joined = cuda.shared.array({THREADS}, np.float32)", f"total = cuda.local.array({QUERIES}, np.float32)",
        f"top = cuda.local.array({QUERIES}, np.float32)", f"sums = cuda.local.array({QUERIES * slots}, np.float32)",
        "thread = np.int64(cuda.threadIdx.x)", "unit = np.int64(cuda.blockIdx.x)", f"first = unit % tiles * {QUERIES}",
        "head = unit // tiles % heads", "batch = unit // tiles // heads", "shared_head = head // each",
        f"for e in range(thread, {QUERIES * size}, {THREADS}):", f"    row, at = first + e // {size}, e % {size}", "    number = np.float32(0)",
        "    if row < queries:", f"        number = {_load(q, 'q', 'batch', 'head', 'row', 'at')}", f"    asked[e] = number * {_f32('scale')}",
        f"for r in range({QUERIES}):", "    total[r] = np.float32(0)", "    top[r] = np.float32(-np.inf)",
        f"for e in range({QUERIES * slots}):", "    sums[e] = np.float32(0)", "cuda.syncthreads()", "start, stop = np.int64(0), keys",
    )
    _limits(writer, rule)
    writer.add(1, f"for base in range(start, stop, {THREADS}):", "    key = base + thread", f"    for r in range({QUERIES}):")
    writer.add(3, "score = np.float32(-np.inf)", "row = first + r", "if key < stop and row < queries:")
    writer.add(4, "dot = np.float32(0)", f"for e in range({size}):")
    writer.add(4, f"    dot += asked[r * {size} + e] * {_load(k, 'k', 'batch', 'shared_head', 'key', 'e')}")
    writer.add(4, "score = dot")
    _score(writer, rule)
    writer.add(3, f"held[r * {THREADS} + thread] = score")
    writer.add(2, "cuda.syncthreads()", f"for r in range({QUERIES}):", f"    mine = held[r * {THREADS} + thread]")
    _joined(writer, "mine", "one if one > other else other")
    writer.add(3, "new = joined[0] if joined[0] > top[r] else top[r]", "cuda.syncthreads()")
    writer.add(3, "fade = np.float32(math.exp(top[r] - new)) if top[r] > np.float32(-np.inf) else np.float32(0)")
    writer.add(3, "power = np.float32(math.exp(mine - new)) if mine != np.float32(-np.inf) else np.float32(0)")
    writer.add(3, f"held[r * {THREADS} + thread] = power", "top[r] = new")
    _joined(writer, "power", "one + other")
    writer.add(3, "total[r] = total[r] * fade + joined[0]", "cuda.syncthreads()", f"for slot in range({slots}):")
    writer.add(4, f"at = slot * {THREADS} + thread", f"if at < {width}:", f"    found = sums[r * {slots} + slot] * fade")
    writer.add(4, f"    many = min({THREADS}, stop - base)")
    writer.add(5, "for j in range(many):", f"    found += held[r * {THREADS} + j] * {_load(v, 'v', 'batch', 'shared_head', '(base + j)', 'at')}")
    writer.add(5, f"sums[r * {slots} + slot] = found")
    writer.add(2, "cuda.syncthreads()")
    writer.add(1, f"for r in range({QUERIES}):", "    row = first + r", "    if row < queries:", f"        for slot in range({slots}):")
    writer.add(4, f"at = slot * {THREADS} + thread", f"if at < {width}:", f"    found = sums[r * {slots} + slot]")
    writer.add(5, "if total[r] != np.float32(0):", "    found = found / total[r]")
    writer.add(5, f"y[batch * y_n + head * y_h + row * y_l + at * y_e] = {stored(y.buffer.dtype).store.format('found')}")
    kernel = generated.made("attention by tiles of keys", "\n".join(["import math", writer.text()]), (THREADS,))
    return Launch(kernel, writer.values, n * heads * tiles)


def _f32(name: str) -> str:
    return f"to_float32({name})"


def _load(item: Heads, name: str, n: str, h: str, length: str, e: str) -> str:
    text = f"{name}[{n} * {name}_n + {h} * {name}_h + {length} * {name}_l + {e} * {name}_e]"
    return f"np.float32({stored(item.buffer.dtype).load.format(text)})"


def _rule(writer: Writer, rule: Rule) -> None:
    writer.parameter("scale", float(rule.scale))
    if rule.softcap > 0:
        writer.parameter("cap", float(rule.softcap))
    if rule.causal or rule.left >= 0 or rule.right >= 0:
        writer.parameter("offset", rule.offset)
        writer.parameter("offset_n", int(rule.offset.count > 1))
        writer.parameter("left", rule.left)
        writer.parameter("right", 0 if rule.causal else rule.right)
    if rule.length is not None:
        writer.parameter("length", rule.length)
        writer.parameter("length_n", int(rule.length.count > 1))
    if rule.mask is not None:
        writer.parameter("mask", rule.mask)
        shape = (1,) * (4 - len(rule.mask.shape)) + rule.mask.shape
        strides = (0,) * (4 - len(rule.mask.shape)) + rule.mask.strides
        for axis, step, count in zip("nhl", strides, shape, strict=False):
            writer.parameter(f"mask_{axis}", 0 if count == 1 else step)
        writer.parameter("mask_keys", shape[3])
        writer.parameter("mask_e", 0 if shape[3] == 1 else 1)


def _limits(writer: Writer, rule: Rule) -> None:
    """Keys that none of the block's queries sees are not looked at."""
    if rule.length is not None:
        writer.add(1, "stop = min(stop, to_int64(length[batch * length_n]))")
    if rule.causal or rule.left >= 0 or rule.right >= 0:
        writer.add(1, "place = to_int64(offset[batch * offset_n]) + first")
        if rule.causal or rule.right >= 0:
            writer.add(1, f"stop = min(stop, place + {QUERIES} + right)")
        if rule.left >= 0:
            writer.add(1, "start = max(start, place - left)")
    if rule.mask is not None and rule.mask.shape[-1] != 1:
        writer.add(1, "stop = min(stop, mask_keys)")


def _score(writer: Writer, rule: Rule) -> None:
    if rule.softcap > 0:
        writer.add(4, f"score = np.float32(math.tanh(score / {_f32('cap')})) * {_f32('cap')}")
    if rule.mask is not None:
        text = "mask[batch * mask_n + head * mask_h + row * mask_l + key * mask_e]"
        loaded = stored(rule.mask.dtype).load.format(text)
        writer.add(4, f"score = score if {loaded} else np.float32(-np.inf)" if rule.mask.dtype == BOOL else f"score += np.float32({loaded})")
    if rule.causal or rule.right >= 0:
        writer.add(4, "if key > place + r + right:", "    score = np.float32(-np.inf)")
    if rule.left >= 0:
        writer.add(4, "if key < place + r - left:", "    score = np.float32(-np.inf)")


def _joined(writer: Writer, name: str, join: str) -> None:
    """All threads' numbers joined in a fixed order."""
    writer.add(
        3, f"joined[thread] = {name}", "cuda.syncthreads()", f"half_width = {THREADS // 2}", "while half_width > 0:", "    if thread < half_width:",
        "        one, other = joined[thread], joined[thread + half_width]", f"        joined[thread] = {join}", "    cuda.syncthreads()",
        "    half_width //= 2",
    )
