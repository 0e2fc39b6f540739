"""What follows a product while its elements are in cache: another tensor is added, and one activation is applied."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.fusion import Apply, Chain
from ...runtime.kernel import inner
from ...runtime.launch import Buffer, Launch
from ...runtime.record import dataclass
from ...runtime.simd import LANES, select
from .lane_kernel import foresee_reading, foresee_writing, load_single, load_some, sigmoid16, store_single, store_some, tanh16

BETWEEN, LEAKY_RELU, HARD_SWISH, SWISH, SIGMOID, HARD_SIGMOID, TANH = range(7)
ACTIVATIONS = {
    ".LeakyRelu": LEAKY_RELU, ".HardSwish": HARD_SWISH, ".Swish": SWISH, ".Sigmoid": SIGMOID, ".HardSigmoid": HARD_SIGMOID, ".Tanh": TANH,
}  # fmt: skip
"""Activations by the keys of their scalar functions; Relu and Clip are `BETWEEN` two numbers."""
LINE = 64
"""Bytes of a line of memory."""


@inner
def _applied(kind: Any, alpha: Any, beta: Any, x: Any) -> Any:
    zero, one = np.float32(0), np.float32(1)
    if kind == BETWEEN:
        x = select(x < alpha, alpha, x)
        return select(x > beta, beta, x)
    if kind == LEAKY_RELU:
        return select(x < zero, x * alpha, x)
    if kind == SWISH:
        return x * sigmoid16(x * alpha)
    if kind == SIGMOID:
        return sigmoid16(x)
    if kind == TANH:
        return tanh16(x)
    slope, middle = (np.float32(1 / 6), np.float32(0.5)) if kind == HARD_SWISH else (alpha, beta)
    gate = x * slope + middle
    gate = select(gate < zero, zero, gate)
    gate = select(gate > one, one, gate)
    return x * gate if kind == HARD_SWISH else gate


@inner
def finished(kind: Any, alpha: Any, beta: Any, c: Any, c_row: Any, rows: Any, width: Any, added: Any, added_row: Any) -> None:
    """Rows of f32 at `c`, `c_row` bytes apart: ``activation(c + added)``; nothing is added where `added` is 0."""
    whole = width - width % LANES
    rest = (1 << (width - whole)) - 1
    for row in range(rows):
        line, other = c + row * c_row, added + row * added_row
        for j in range(0, 4 * whole, 4 * LANES):
            x = load_single(line + j)
            if added != 0:
                x = x + load_single(other + j)
            store_single(line + j, _applied(kind, alpha, beta, x))
        if whole < width:
            x = load_some(line + 4 * whole, rest)
            if added != 0:
                x = x + load_some(other + 4 * whole, rest)
            store_some(line + 4 * whole, _applied(kind, alpha, beta, x), rest)


@inner
def foresee(c: Any, added: Any, step: Any, rows: Any, nbytes: Any) -> None:
    """Ask for the memory of rows of results, `step` bytes apart, and for that of what is added to them unless `added` is 0."""
    for row in range(rows):
        for line in range(row * step, row * step + nbytes + LINE - 1, LINE):
            foresee_writing(c + line)
            if added != 0:
                foresee_reading(added + line)


@dataclass(frozen=True)
class Finish:
    """What follows a product.

    Attributes:
        bias: constants added to every row.
        added: of the product's shape, or one row of it.
        kind: of the activation, None for none.
    """

    bias: np.ndarray | None = None
    added: Buffer | None = None
    kind: int | None = None
    alpha: float = -math.inf
    beta: float = math.inf

    @property
    def limits(self) -> tuple[float, float]:
        """What the product itself can be limited to."""
        return (self.alpha, self.beta) if self.kind == BETWEEN and self.added is None else (-math.inf, math.inf)

    def arguments(self, columns: int) -> tuple[Buffer | int | float, ...]:
        """For `finished`, after whether it is needed: kind, alpha, beta, what is added and bytes from row to row of that."""
        needed = int(self.added is not None or self.kind not in (None, BETWEEN))
        kind = BETWEEN if self.kind is None else self.kind
        step = 0 if self.added is None or self.added.count == columns else 4 * columns
        return (needed, kind, float(self.alpha), float(self.beta), 0 if self.added is None else self.added, step)

    def then(self, apply: Apply, product: Buffer, columns: int) -> Finish | None:
        """With one more operator, None where that cannot be."""
        if self.kind is not None or apply.compute != np.float32 or apply.result != np.float32:
            return None
        first, *others = apply.operands
        if apply.key == ".Add" and self.added is None and len(others) == 1:
            other = others[0] if first is product else first
            assert other is not None
            row = columns > 1 and other.count == columns == other.shape[-1] == product.shape[-1]
            if other is product or other.dtype != np.float32 or not (row or other.shape == product.shape):
                return None
            if row and other.room.constant is not None and self.bias is None:
                return replace(self, bias=other.room.constant.reshape(-1).view(np.uint8)[other.offset :].view(np.float32)[:columns])
            return replace(self, added=other)
        if first is not product:
            return None
        if apply.key == ".Relu":
            return replace(self, kind=BETWEEN, alpha=0.0)
        if apply.key == ".Clip":
            return self._clipped(others)
        if apply.key in ACTIVATIONS and not others:
            alpha, beta = (*apply.attributes, 0.0, 0.0)[:2]
            return replace(self, kind=ACTIVATIONS[apply.key], alpha=alpha, beta=beta)
        return None

    def _clipped(self, bounds: list[Buffer | None]) -> Finish | None:
        values = [None if item is None or item.room.constant is None else item.room.constant.reshape(-1)[0] for item in bounds]
        if len(values) != 2 or any(item is None for item in values) or any(bound is None or bound.offset for bound in bounds):
            return None
        low, high = (float(item) for item in values if item is not None)
        return replace(self, kind=BETWEEN, alpha=low, beta=high)


def finishing(make: Callable[[Finish, Buffer], Launch], product: Buffer, columns: int, finish: Finish | None = None) -> Launch:
    """A launch that takes in operators behind it.

    Args:
        make: the launch for what follows, and where the result goes.
        columns: elements of a row of the product, 0 where rows are not to be added to all of it.
    """
    before = finish or Finish()

    def takes(chain: Chain, output: Buffer) -> Launch | None:
        if len(chain.steps) != 1 or chain.output.shape != product.shape or chain.steps[0].operands.count(output) != 1:
            return None
        after = before.then(chain.steps[0], output, columns)
        return None if after is None else finishing(make, chain.output, columns, after)

    return replace(make(before, product), output=product, takes=takes)
