"""Epilogues of f32 products: a residual is added and one activation is applied while the result is in cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner
from ....runtime.plan.kernel_api import Apply, Buffer, Chain, Launch
from ....runtime.simd.memory import (
    fma,
    gelu16,
    load_f32,
    load_masked,
    prefetch_read,
    prefetch_write,
    sigmoid16,
    store_f32,
    store_masked,
    tanh16,
)
from ....runtime.simd.vector import LANES, select
from .. import emitted_math

CLAMP, LEAKY_RELU, HARD_SWISH, SWISH, SIGMOID, HARD_SIGMOID, TANH, GELU, GELU_TANH = range(9)
ACTIVATIONS = {
    ".LeakyRelu": LEAKY_RELU,
    ".HardSwish": HARD_SWISH,
    ".Swish": SWISH,
    ".Sigmoid": SIGMOID,
    ".HardSigmoid": HARD_SIGMOID,
    ".Tanh": TANH,
    "Gelu:none": GELU,
    "Gelu:tanh": GELU_TANH,
}
"""Activations by the keys of their scalar functions; Relu and Clip are `CLAMP` two numbers."""
EMITTED = {
    GELU: emitted_math.gelu,
    GELU_TANH: emitted_math.gelu_tanh,
    SIGMOID: emitted_math.sigmoid,
    CLAMP: emitted_math.relu,
}
"""Activations of kernels that are emitted as LLVM IR; `CLAMP` is Relu."""
LINE = 64
"""Bytes of a line of memory."""


@inner
def _activate(kind: Any, alpha: Any, beta: Any, x: Any) -> Any:
    zero, one = np.float32(0), np.float32(1)
    if kind == CLAMP:
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
    if kind == GELU:
        return gelu16(x)
    if kind == GELU_TANH:
        return x * sigmoid16(x * fma(x * x, np.float32(0.0713548162726), np.float32(1.59576912161)))
    slope, middle = (np.float32(1 / 6), np.float32(0.5)) if kind == HARD_SWISH else (alpha, beta)
    gate = x * slope + middle
    gate = select(gate < zero, zero, gate)
    gate = select(gate > one, one, gate)
    return x * gate if kind == HARD_SWISH else gate


class EpilogueArguments(NamedTuple):
    """Kernel arguments of an epilogue.

    Attributes:
        low, high: what the product itself is limited to.
        needed: whether `apply_epilogue` has something to do, with the others.
        added_row: bytes from row to row of what is added.
    """

    low: float
    high: float
    needed: int
    kind: int
    alpha: float
    beta: float
    added: Address
    added_row: int


@inner
def apply_epilogue(epilogue: Any, c: Any, place: Any, c_row: Any, rows: Any, width: Any) -> None:
    """Rows of f32 `place` bytes after `c`, `c_row` bytes apart: ``activation(c + added)``; what is added lies as they
    do."""
    apply_epilogue_rows(epilogue, c + place, c_row, rows, width, place, c_row)


@inner
def apply_epilogue_rows(
    epilogue: Any, c: Any, c_row: Any, rows: Any, width: Any, added_place: Any, added_row: Any
) -> None:
    """The same for what is added from `added_place` on, `added_row` bytes apart."""
    if epilogue.needed == 0:
        return
    kind, alpha, beta = epilogue.kind, np.float32(epilogue.alpha), np.float32(epilogue.beta)
    vector_end = width - width % LANES
    rest = (1 << (width - vector_end)) - 1
    for row in range(rows):
        line, other = c + row * c_row, epilogue.added + added_place + row * added_row
        for j in range(0, 4 * vector_end, 4 * LANES):
            x = load_f32(line + j)
            if epilogue.added != 0:
                x = x + load_f32(other + j)
            store_f32(line + j, _activate(kind, alpha, beta, x))
        if vector_end < width:
            x = load_masked(line + 4 * vector_end, rest)
            if epilogue.added != 0:
                x = x + load_masked(other + 4 * vector_end, rest)
            store_masked(line + 4 * vector_end, _activate(kind, alpha, beta, x), rest)


@inner
def prefetch_rows(epilogue: Any, c: Any, place: Any, step: Any, rows: Any, nbytes: Any) -> None:
    """Ask for the memory of rows of results, `place` bytes after `c` and `step` bytes apart, and for that of what is
    added to them."""
    for row in range(rows):
        for line in range(place + row * step, place + row * step + nbytes + LINE - 1, LINE):
            prefetch_write(c + line)
            if epilogue.added != 0:
                prefetch_read(epilogue.added + line)


@dataclass(frozen=True)
class Epilogue:
    """The operations after a product: bias, residual, activation.

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
    def emitted(self) -> bool:
        """Whether kernels that are emitted as LLVM IR apply it."""
        relu = self.alpha == 0 and self.beta == math.inf
        return self.kind is None or (self.kind in EMITTED and (self.kind != CLAMP or relu))

    def added_step(self, columns: int) -> int:
        """Bytes from row to row of what is added."""
        return 0 if self.added is None or self.added.count == columns else 4 * columns

    def arguments(self, columns: int) -> EpilogueArguments:
        """The epilogue's arguments of a kernel whose product has rows of `columns` elements."""
        low, high = (self.alpha, self.beta) if self.kind == CLAMP and self.added is None else (-math.inf, math.inf)
        needed = int(self.added is not None or self.kind not in (None, CLAMP))
        kind = CLAMP if self.kind is None else self.kind
        added = 0 if self.added is None else self.added
        return EpilogueArguments(low, high, needed, kind, self.alpha, self.beta, added, self.added_step(columns))

    def append(self, apply: Apply, product: Buffer, columns: int) -> Epilogue | None:
        """Append one operator; None if that is not possible."""
        if self.kind is not None or apply.compute != np.float32 or apply.result != np.float32:
            return None
        first, *others = apply.operands
        if apply.key == ".Add" and self.added is None and len(others) == 1:
            other = others[0] if first is product else first
            assert other is not None
            row = columns > 1 and other.count == columns == other.shape[-1] == product.shape[-1]
            if other is product or other.dtype != np.float32 or not (row or other.shape == product.shape):
                return None
            if row and other.allocation.constant is not None and self.bias is None:
                return replace(
                    self,
                    bias=other.allocation.constant.reshape(-1)
                    .view(np.uint8)[other.offset :]
                    .view(np.float32)[:columns],
                )
            return replace(self, added=other)
        if first is not product:
            return None
        if apply.key == ".Relu":
            return replace(self, kind=CLAMP, alpha=0.0)
        if apply.key == ".Clip":
            return self._clamp(others)
        if apply.key in ACTIVATIONS and not others:
            alpha, beta = (*apply.attributes, 0.0, 0.0)[:2]
            return replace(self, kind=ACTIVATIONS[apply.key], alpha=alpha, beta=beta)
        return None

    def _clamp(self, bounds: list[Buffer | None]) -> Epilogue | None:
        values = [
            None if item is None or item.allocation.constant is None else item.allocation.constant.reshape(-1)[0]
            for item in bounds
        ]
        if (
            len(values) != 2
            or any(item is None for item in values)
            or any(bound is None or bound.offset for bound in bounds)
        ):
            return None
        low, high = (float(item) for item in values if item is not None)
        return replace(self, kind=CLAMP, alpha=low, beta=high)


def launch_with_epilogue(
    make_launch: Callable[[Epilogue, Buffer], Launch],
    product: Buffer,
    columns: int,
    epilogue: Epilogue | None = None,
    *,
    emitted: bool = False,
) -> Launch:
    """A launch that takes in operators after it.

    Args:
        make_launch: the launch for what follows, and where the result goes.
        columns: elements of a row of the product, 0 where rows are not to be added to all of it.
        emitted: whether the kernel is emitted as LLVM IR.
    """
    before = epilogue or Epilogue()

    def takes(chain: Chain, output: Buffer) -> Launch | None:
        if len(chain.steps) != 1 or chain.output.shape != product.shape or chain.steps[0].operands.count(output) != 1:
            return None
        after = before.append(chain.steps[0], output, columns)
        if after is None or (emitted and not after.emitted):
            return None
        return launch_with_epilogue(make_launch, chain.output, columns, after, emitted=emitted)

    return make_launch(before, product).changed(output=product, takes=takes)
