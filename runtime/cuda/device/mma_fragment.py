"""mma fragments: how the 32 threads of a warp share the operands of each shape, as index tables for the simulator.

Source: PTX ISA, "Warp-level matrix instructions", the figures of each shape's fragments. Thread `lane` has ``group =
lane // 4`` and ``turn = lane % 4``; a 32-bit register holds two 16-bit elements or four bytes that are adjacent
along the depth.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...base.dataclass import dataclass

LANES = 32


@dataclass(frozen=True)
class Shape:
    """One instruction shape: [rows, depth] x [depth, 8] + [rows, 8].

    Attributes:
        element: dtype of an operand's elements, by which a register is cut.
        total: dtype of the sums.
        a, b: registers of each operand.
    """

    rows: int
    depth: int
    element: np.dtype[Any]
    total: np.dtype[Any]
    a: int
    b: int

    @property
    def packed(self) -> int:
        """Elements per register."""
        return 4 // self.element.itemsize

    def a_places(self) -> np.ndarray:
        """[lanes, registers, elements, 2]: row and depth of each element of the first operand; rows 8 apart
        alternate before the depth advances."""
        lane, register, item = np.ix_(range(LANES), range(self.a), range(self.packed))
        halves = self.rows // 8
        row = lane // 4 + 8 * (register % halves) + 0 * item
        deep = self.packed * (lane % 4) + item + 4 * self.packed * (register // halves)
        return np.stack([row, deep], -1)

    def b_places(self) -> np.ndarray:
        """[lanes, registers, elements, 2]: depth and column of each element of the second operand."""
        lane, register, item = np.ix_(range(LANES), range(self.b), range(self.packed))
        deep = self.packed * (lane % 4) + item + 4 * self.packed * register
        return np.stack([deep, lane // 4 + 0 * deep], -1)

    def c_places(self) -> np.ndarray:
        """[lanes, sums, 2]: row and column of each sum of a thread."""
        lane, item = np.ix_(range(LANES), range(self.rows // 4))
        return np.stack([lane // 4 + 8 * (item // 2), 2 * (lane % 4) + item % 2], -1)

    def multiplied(self, sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """[lanes, sums] from the previous sums and the registers [lanes, registers] of both operands as int32."""
        left, right = np.zeros((self.rows, self.depth), self.total), np.zeros((self.depth, 8), self.total)
        for matrix, registers, places in ((left, a, self.a_places()), (right, b, self.b_places())):
            elements = np.ascontiguousarray(registers, np.int32).view(self.element).reshape(places.shape[:-1])
            matrix[places[..., 0], places[..., 1]] = elements.astype(self.total)
        found = (left @ right).astype(self.total)
        places = self.c_places()
        return (sums + found[places[..., 0], places[..., 1]]).astype(self.total)


def _bf16() -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


F32, I32, F16, I8 = (np.dtype(kind) for kind in (np.float32, np.int32, np.float16, np.int8))


def shape_of(kind: str, depth: int = 16) -> Shape:
    """The 16-row shape of ``f16``, ``bf16`` (depth 16) or ``s8`` (depth 16 or 32)."""
    if kind == "s8":
        return Shape(16, depth, I8, I32, depth // 8, depth // 16)
    return Shape(16, depth, F16 if kind == "f16" else _bf16(), F32, depth // 4, depth // 8)


class Exchange:
    """Register exchange between a block's simulated threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: dict[tuple[int, int], dict[int, Any]] = {}
        self.results: dict[tuple[int, int], Any] = {}
        self.counts: dict[int, int] = {}

    def shared(self, mine: Any, whole: Any) -> Any:
        """Call `whole` once with `mine` of all lanes of this thread's warp; return its result. All threads of the
        block must call it."""
        thread: Any = threading.current_thread()
        number = self.counts[thread.thread_id] = self.counts.get(thread.thread_id, 0) + 1
        key = (thread.thread_id // LANES, number)
        with self.lock:
            self.calls.setdefault(key, {})[thread.thread_id % LANES] = mine
        thread.syncthreads()
        with self.lock:
            if key not in self.results:
                given = self.calls.pop(key)
                if len(given) != LANES:
                    raise RuntimeError(f"{len(given)} threads of a warp reached an instruction that needs all {LANES}")
                self.results[key] = whole([given[lane] for lane in range(LANES)])
                self.results.pop((key[0], number - 2), None)
            return self.results[key]


def exchange() -> Exchange:
    """The exchange of the current thread's block."""
    manager: Any = threading.current_thread()._manager  # type: ignore[attr-defined]
    found: Exchange = vars(manager).setdefault("exchange", Exchange())
    return found
