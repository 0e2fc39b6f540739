"""Winograd's F(4 x 4, 3 x 3) and F(2 x 2, 3 x 3): transforms of input and output tiles, sixteen channels at a time.

A result of 16 takes 36 products instead of 144, one of 4 takes 16 instead of 36. Rounding errors are about those of the
sum; what is infinite or NaN reaches all results of its squares. Source: Lavin and Gray 2016, "Fast Algorithms for
Convolutional Neural Networks".
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.base.dataclass import dataclass
from .....runtime.jit.range_kernel import inner
from .....runtime.simd.memory import load_f32, store_f32
from .....runtime.simd.vector import LANES, select, splat
from ...gemm.register_tile import PANEL

NEAR, FAR = 2 / 3, 3 / 2
"""The polynomials of 4 x 4 are known at 0, at these two numbers and their negatives, and at infinity. Errors are a
third of those with 1 and 2."""
NEAR_2, FAR_2, BOTH = (np.float32(number) for number in (NEAR**2, FAR**2, NEAR**2 + FAR**2))
NEAR_1, NEAR_3, FAR_1, FAR_3 = (np.float32(number) for number in (NEAR, NEAR**3, FAR, FAR**3))
VECTOR = 4 * LANES
"""Bytes of a vector."""
COLUMNS = 512
"""Columns that are multiplied together: they stay in the cache, and BLAS starts no threads for so few, which would wait
for each other."""


def _kernel_row(point: float, other: float) -> list[float]:
    """A row of the kernel transform's matrix."""
    factor = 2 * point**2 * (point**2 - other**2)
    return [1 / factor, point / factor, point**2 / factor]


NEAR_SIDES, FAR_SIDES = (
    tuple(np.float32(number) for number in _kernel_row(*pair)) for pair in ((NEAR, FAR), (FAR, NEAR))
)


@inner
def _input_4(source: Any, step: Any, target: Any, target_step: Any) -> None:
    """Transform six vectors `step` bytes apart, store `target_step` bytes apart."""
    near, far, both = splat(NEAR_2), splat(FAR_2), splat(BOTH)
    a, b, c = load_f32(source), load_f32(source + step), load_f32(source + 2 * step)
    d, e, f = load_f32(source + 3 * step), load_f32(source + 4 * step), load_f32(source + 5 * step)
    inner_even, inner_odd = e - c * far, (d - b * far) * splat(NEAR_1)
    outer_even, outer_odd = e - c * near, (d - b * near) * splat(FAR_1)
    store_f32(target, a - c * both + e)
    store_f32(target + target_step, inner_even + inner_odd)
    store_f32(target + 2 * target_step, inner_even - inner_odd)
    store_f32(target + 3 * target_step, outer_even + outer_odd)
    store_f32(target + 4 * target_step, outer_even - outer_odd)
    store_f32(target + 5 * target_step, b - d * both + f)


@inner
def _output_4(source: Any, step: Any) -> Any:
    """Output transform of six vectors to four."""
    a, b, c = load_f32(source), load_f32(source + step), load_f32(source + 2 * step)
    d, e, f = load_f32(source + 3 * step), load_f32(source + 4 * step), load_f32(source + 5 * step)
    total, gap, far_total, far_gap = b + c, b - c, d + e, d - e
    first = gap * splat(NEAR_1) + far_gap * splat(FAR_1)
    second = total * splat(NEAR_2) + far_total * splat(FAR_2)
    third = gap * splat(NEAR_3) + far_gap * splat(FAR_3) + f
    return a + total + far_total, first, second, third


@inner
def _store_4(vectors: Any, target: Any, target_step: Any) -> None:
    store_f32(target, vectors[0])
    store_f32(target + target_step, vectors[1])
    store_f32(target + 2 * target_step, vectors[2])
    store_f32(target + 3 * target_step, vectors[3])


@inner
def _kernel_4(a: Any, b: Any, c: Any, target: Any, target_step: Any) -> None:
    """Kernel transform of three vectors, stored `target_step` bytes apart."""
    near, near_odd = a * splat(NEAR_SIDES[0]) + c * splat(NEAR_SIDES[2]), b * splat(NEAR_SIDES[1])
    far, far_odd = a * splat(FAR_SIDES[0]) + c * splat(FAR_SIDES[2]), b * splat(FAR_SIDES[1])
    store_f32(target, a)
    store_f32(target + target_step, near + near_odd)
    store_f32(target + 2 * target_step, near - near_odd)
    store_f32(target + 3 * target_step, far + far_odd)
    store_f32(target + 4 * target_step, far - far_odd)
    store_f32(target + 5 * target_step, c)


@inner
def _input_2(source: Any, step: Any, target: Any, target_step: Any) -> None:
    """Like `_input_4`, for four vectors."""
    a, b, c, d = (load_f32(source), load_f32(source + step), load_f32(source + 2 * step), load_f32(source + 3 * step))
    store_f32(target, a - c)
    store_f32(target + target_step, b + c)
    store_f32(target + 2 * target_step, c - b)
    store_f32(target + 3 * target_step, b - d)


@inner
def _kernel_2(a: Any, b: Any, c: Any, target: Any, target_step: Any) -> None:
    """Like `_kernel_4`, for F(2 x 2, 3 x 3)."""
    even, odd = (a + c) * splat(np.float32(0.5)), b * splat(np.float32(0.5))
    store_f32(target, a)
    store_f32(target + target_step, even + odd)
    store_f32(target + 2 * target_step, even - odd)
    store_f32(target + 3 * target_step, c)


@inner
def _output_2(source: Any, step: Any) -> Any:
    """Output transform of four vectors to two."""
    a, b, c, d = (load_f32(source), load_f32(source + step), load_f32(source + 2 * step), load_f32(source + 3 * step))
    return a + b + c, b - c - d


@inner
def _store_2(vectors: Any, target: Any, target_step: Any) -> None:
    store_f32(target, vectors[0])
    store_f32(target + target_step, vectors[1])


@inner
def _clamp(x: Any, bias: Any, low: Any, high: Any) -> Any:
    x = x + bias
    x = select(x < low, low, x)
    return select(x > high, high, x)


@inner
def _clamp_4(vectors: Any, bias: Any, low: Any, high: Any) -> Any:
    a, b, c, d = vectors
    return (
        _clamp(a, bias, low, high),
        _clamp(b, bias, low, high),
        _clamp(c, bias, low, high),
        _clamp(d, bias, low, high),
    )


@inner
def _clamp_2(vectors: Any, bias: Any, low: Any, high: Any) -> Any:
    a, b = vectors
    return _clamp(a, bias, low, high), _clamp(b, bias, low, high)


@dataclass(frozen=True)
class TileTransform:
    """Transform of square tiles.

    Attributes:
        edge: results along one axis.
        kernel: what a kernel is multiplied with from both sides.
        input_transform, output_transform, store, clamp: vectors to transformed ones; to results; these to memory; with
            a bias, between limits.
        kernel_transform: vectors of kernels to transformed ones.
    """

    edge: int
    kernel: np.ndarray
    input_transform: Any
    output_transform: Any
    store: Any
    clamp: Any
    kernel_transform: Any

    @property
    def input_edge(self) -> int:
        """Edge of an input tile in elements."""
        return self.edge + 2

    @property
    def points(self) -> int:
        """Products per tile."""
        return self.input_edge**2

    def pack_weights(self, w: np.ndarray) -> np.ndarray:
        """Kernels [outputs, channels, 3, 3] as panels [outputs / PANEL, positions, channels, PANEL]."""
        outputs, channels = w.shape[:2]
        made = np.empty((-(-outputs // PANEL), self.points, channels, PANEL), np.float32)
        both, part = np.kron(self.kernel, self.kernel), np.zeros((9, channels, PANEL))
        for index, panel in enumerate(made.reshape(len(made), self.points, -1)):
            some = w[index * PANEL : (index + 1) * PANEL]
            part[:, :, : len(some)] = some.reshape(len(some), channels, 9).transpose(2, 1, 0)
            part[:, :, len(some) :] = 0
            for start in range(0, channels * PANEL, COLUMNS):
                panel[:, start : start + COLUMNS] = both @ part.reshape(9, -1)[:, start : start + COLUMNS]
        return made


F4 = TileTransform(
    4,
    np.array(
        [
            [1, 0, 0],
            _kernel_row(NEAR, FAR),
            _kernel_row(-NEAR, FAR),
            _kernel_row(FAR, NEAR),
            _kernel_row(-FAR, NEAR),
            [0, 0, 1],
        ]
    ),
    _input_4,
    _output_4,
    _store_4,
    _clamp_4,
    _kernel_4,
)
F2 = TileTransform(
    2,
    np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    _input_2,
    _output_2,
    _store_2,
    _clamp_2,
    _kernel_2,
)
